"""The device of this host: the compute server, lowering on top of it, and the streams in use."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from gpuwire.compute.completion import Completion
from gpuwire.compute.handles import Binding, CopyDescriptor
from gpuwire.compute.memory.manager import AllocationMode
from gpuwire.compute.server import WgpuServer
from gpuwire.errors import DeviceLost, WatchdogExpired
from gpuwire.host.node_graphs import NodeGraphs
from gpuwire.host.work import Stream
from gpuwire.lowering import Lowering, Value


@dataclass(slots=True)
class StreamNumbers:
    """Compute streams for the streams of all sessions: the lowest numbers that nobody has, so that
    they fold evenly onto the real ones."""

    _next: int = 0
    _returned: list[int] = field(default_factory=list)

    def take(self) -> int:
        if self._returned:
            return heapq.heappop(self._returned)
        self._next += 1
        return self._next - 1

    def give_back(self, number: int) -> None:
        heapq.heappush(self._returned, number)


@dataclass(frozen=True, slots=True)
class Device:
    """What sessions run on. Driven from one thread."""

    server: WgpuServer
    lowering: Lowering
    lost: Callable[[BaseException], None]
    """Called when an error says that the device is gone."""
    streams: StreamNumbers = field(default_factory=StreamNumbers)
    graphs: NodeGraphs = field(default_factory=NodeGraphs)

    def read(self, value: Value, stream: int) -> Completion[list[memoryview]]:
        """All bytes of a value, row-major; as one element of the list."""
        contiguous = self.lowering.contiguous(value, stream)
        return self.server.read([byte_range(contiguous, 0, value.type.nbytes)], stream)

    def allocating(self, stream: Stream) -> AbstractContextManager[None]:
        """What is allocated in the block is allocated as the stream wants it. The mode is the
        compute server's for a real stream, which other sessions' streams share, so it holds for
        no longer than that."""
        return self._persistently(stream.number) if stream.persistent else nullcontext()

    @contextmanager
    def _persistently(self, stream: int) -> Iterator[None]:
        self.server.allocation_mode(AllocationMode.PERSISTENT, stream)
        try:
            yield
        finally:
            self.server.allocation_mode(AllocationMode.AUTOMATIC, stream)

    def note(self, error: BaseException) -> None:
        """Looks whether an error means the end of the device, and says so if it does."""
        if isinstance(error, (DeviceLost, WatchdogExpired)):
            self.lost(error)


def byte_range(value: Value, start: int, size: int) -> CopyDescriptor:
    """`size` bytes of a contiguous value from byte `start` on, which is a multiple of 4."""
    offset = value.offset * value.type.dtype.itemsize + start
    return CopyDescriptor(Binding(value.handle, offset, size), (size,), (1,), 1)
