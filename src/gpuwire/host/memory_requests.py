"""What a session may know of the device's memory, and ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpuwire.compute.memory.report import PoolReport as ComputePoolReport
from gpuwire.errors import GpuwireError
from gpuwire.host.dataflow import Dataflow
from gpuwire.host.device import Device
from gpuwire.wire.device_tasks import (
    AskMemory,
    CleanMemory,
    MemoryFreed,
    MemoryReport,
    MemoryReported,
    PoolReport,
    SetAllocationMode,
)
from gpuwire.wire.messages import Failed, Reply
from gpuwire.wire.records import to_record


class MemoryRequests:
    """The memory side of one session."""

    def __init__(self, device: Device, dataflow: Dataflow, reply: Callable[[Reply], None]) -> None:
        self._device = device
        self._dataflow = dataflow
        self._reply = reply
        self._running: set[asyncio.Task[None]] = set()

    def set_mode(self, task: SetAllocationMode) -> None:
        """What is allocated on the stream from here on, is allocated so."""
        self._dataflow.stream(task.stream).persistent = task.persistent

    def ask(self, task: AskMemory) -> None:
        """Answers with the pools behind a stream."""
        stream = self._dataflow.stream(task.stream)
        found = self._device.server.memory_report(stream.number)
        account = self._dataflow.account
        report = MemoryReport(
            tuple([_pool(pool) for pool in found.pools]),
            found.bytes_in_use,
            found.bytes_reserved,
            account.in_use,
            account.limit,
        )
        self._reply(MemoryReported(task.request, report))

    def clean(self, task: CleanMemory) -> None:
        """Gives back what nothing holds once the session's work so far has ended, and says how
        much."""

        def settled() -> None:
            running = asyncio.ensure_future(self._clean(task))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

        self._dataflow.when_all_settled(None, settled)

    def close(self) -> None:
        for running in self._running:
            running.cancel()

    async def _clean(self, task: CleanMemory) -> None:
        server = self._device.server
        numbers = [stream.number for stream in self._dataflow.streams(None)] or [0]
        try:
            for completion in [server.sync((), number) for number in numbers]:
                await completion
            freed = sum(server.memory_cleanup(number) for number in numbers)
        except GpuwireError as error:
            self._device.note(error)
            self._reply(Failed(task.request, to_record(error), 0))
        else:
            self._reply(MemoryFreed(task.request, freed))


def _pool(pool: ComputePoolReport) -> PoolReport:
    return PoolReport(
        pool.name,
        pool.kind.value,
        pool.page_bytes,
        pool.max_slice_bytes,
        pool.pages,
        pool.slices,
        pool.bytes_in_use,
        pool.bytes_reserved,
        pool.bytes_padding,
        pool.high_water_in_use,
        pool.high_water_reserved,
    )
