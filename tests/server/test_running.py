"""The server as a process: its ticket file, its signals, its parent's end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuwire.errors import ServerStopped
from plain_client import connect_plainly

PROGRAM = """
import asyncio, sys
from pathlib import Path
from gpuwire.config import Config
from gpuwire.server import Server, run
directory = Path(sys.argv[1])
server = Server(Config(), host="127.0.0.1", port=0, state_dir=directory)
ready = lambda server: print("ready", flush=True)
asyncio.run(run(server, ticket_file=directory / "ticket", on_ready=ready, until_eof_of=0))
"""


@contextmanager
def process(directory: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A server that is ready."""
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert child.stdin and child.stdout and child.stderr
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        yield child
    finally:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            stream.close()


def descendants(process_id: int) -> list[int]:
    text = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    return list(map(int, text.split()))


@pytest.mark.parametrize("ending", [signal.SIGINT, "end of stdin"])
def test_it_ends_cleanly_and_tells_its_sessions(
    tmp_path: Path, server_environment: dict[str, str], ending: signal.Signals | str
) -> None:
    with process(tmp_path, server_environment) as child:
        ticket_file = tmp_path / "ticket"
        assert stat.S_IMODE(ticket_file.stat().st_mode) == 0o600
        ticket = ticket_file.read_text().strip()

        async def scenario() -> None:
            client = await connect_plainly(ticket)
            if isinstance(ending, str):
                child.stdin.close()
            else:
                child.send_signal(ending)
            assert isinstance(await client.ended, ServerStopped)
            client.vanish()

        asyncio.run(scenario())
        assert child.wait(20) == 0
        assert [path.name for path in tmp_path.glob("ticket*")] == ["ticket"]


def test_a_killed_server_takes_its_device_host_with_it(
    tmp_path: Path, server_environment: dict[str, str]
) -> None:
    with process(tmp_path, server_environment) as child:
        (host,) = descendants(child.pid)
        os.kill(host, signal.SIGTERM)  # which it leaves to its server to answer
        os.kill(host, signal.SIGINT)
        descriptor = os.pidfd_open(host)
        child.kill()
        child.wait()
        assert ended(descriptor)


def ended(descriptor: int) -> bool:
    """Whether the process of a pidfd ends within 20 seconds."""
    try:
        return bool(select.select([descriptor], [], [], 20)[0])
    finally:
        os.close(descriptor)
