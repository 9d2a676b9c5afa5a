"""Asking the server how busy it is while something else is measured."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpuwire.client.watching import watch
from gpuwire.config import RemoteConfig
from gpuwire.errors import GpuwireError
from gpuwire.telemetry.snapshots import DeviceSnapshot, ServerSnapshot
from gpuwire.transport import Ticket

FIRST_SECONDS = 5.0
"""How long the first answer may take."""


@dataclass(frozen=True, slots=True)
class ServerBusy:
    """Cores, and the GPU's share, over a time; None where it was not told."""

    front: float | None
    host: float | None
    gpu: float | None


UNKNOWN = ServerBusy(None, None, None)


class Watcher:
    """The server's moments, as they come in on a thread of its own."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._moments: list[ServerSnapshot] = []
        self._first = threading.Event()
        self.refusal: str | None = None
        """Why the server tells nothing."""

    def mark(self) -> int:
        """Now, for `busy_since`."""
        return len(self._moments)

    def busy_since(self, mark: int) -> ServerBusy:
        """Between the first moment after the mark and the last one: at least half a second."""
        moments = self._moments[mark:]
        if len(moments) < 3:
            return UNKNOWN
        first, last = moments[0], moments[-1]
        seconds = last.moment - first.moment
        before, after = self._of_device(first), self._of_device(last)
        front = (last.totals.cpu_seconds - first.totals.cpu_seconds) / seconds
        if before is None or after is None or before.restarts != after.restarts:
            return ServerBusy(front, None, None)
        host = (after.cpu_seconds - before.cpu_seconds) / seconds
        # A viewer with a lesser token is not told about kernels.
        if not last.whole:
            return ServerBusy(front, host, None)
        gpu = (_kernel_seconds(after) - _kernel_seconds(before)) / seconds
        return ServerBusy(front, host, min(max(gpu, 0.0), 1.0))

    async def run(self, ticket: Ticket, remote: RemoteConfig) -> None:
        """Takes moments in until cancelled."""
        try:
            async with watch(ticket, remote) as viewer:
                while True:
                    self._moments.append(await viewer.next())
                    self._first.set()
        except GpuwireError as error:
            self.refusal = str(error)
        finally:
            self._first.set()

    def wait_first(self) -> None:
        """Until the server has told something, or that it will not."""
        self._first.wait(FIRST_SECONDS)

    def _of_device(self, moment: ServerSnapshot) -> DeviceSnapshot | None:
        return next((each for each in moment.devices if each.index == self._device), None)


@contextmanager
def watching(ticket: Ticket, remote: RemoteConfig, device: int) -> Iterator[Watcher]:
    """A watcher that has heard from the server, or knows that it will not."""
    watcher = Watcher(device)
    loop = asyncio.new_event_loop()
    task = loop.create_task(watcher.run(ticket, remote))
    thread = threading.Thread(
        target=loop.run_until_complete,
        args=(asyncio.gather(task, return_exceptions=True),),
        name="gpuwire bench",
        daemon=True,
    )
    thread.start()
    try:
        watcher.wait_first()
        yield watcher
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


def _kernel_seconds(device: DeviceSnapshot) -> float:
    return sum(kernel.device_seconds for kernel in device.kernels)
