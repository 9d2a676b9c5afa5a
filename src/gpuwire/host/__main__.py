"""`python -m gpuwire.host`: the process of a device host, started by the front."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
import socket
import sys

from gpuwire.host.slots import SlotMemory
from gpuwire.host.worker import Worker
from gpuwire.loops import loop_factory

PR_SET_PDEATHSIG = 1
LOST_DEVICE = 3
"""Exit code after the device could not be opened, or was lost."""


def main() -> int:
    arguments = _arguments()
    _die_with_parent(arguments.parent)
    # A Ctrl-C in the terminal, or a service manager's SIGTERM to the whole group, is for the front
    # to answer: it tells the sessions first and then ends this process through the channel.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connected = socket.socket(fileno=arguments.channel)
    memory = SlotMemory(arguments.slots)
    os.close(arguments.slots)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        failure = runner.run(_serve(connected, memory))
    return 0 if failure is None else LOST_DEVICE


async def _serve(connected: socket.socket, memory: SlotMemory) -> BaseException | None:
    return await Worker(memory).run(connected)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gpuwire.host",
        description="The process that owns one device. `gpuwire serve` starts it.",
    )
    parser.add_argument("--channel", type=int, required=True, help="descriptor of the socket")
    parser.add_argument("--slots", type=int, required=True, help="descriptor of the slots")
    parser.add_argument("--parent", type=int, required=True, help="process id of the front")
    return parser.parse_args()


def _die_with_parent(parent: int) -> None:
    """The end of the channel ends this process too, but only when the loop turns; a front killed
    while a long kernel runs must not leave it behind. Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the front is gone")


if __name__ == "__main__":
    raise SystemExit(main())
