"""Memory: handles are bound to it, it is counted, and what nothing holds is given back."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.compute.handles import Handle
from gpuwire.compute.indirect import IndirectCounts
from gpuwire.compute.memory.manager import AllocationMode
from gpuwire.compute.memory.report import MemoryReport, added_up
from gpuwire.compute.polling import Poller
from gpuwire.compute.properties import MemoryProperties
from gpuwire.compute.readbacks import Readbacks
from gpuwire.compute.scheduler import Scheduler
from gpuwire.compute.sequence_launcher import SequenceLauncher
from gpuwire.compute.uniforms import Uniforms
from gpuwire.compute.uploads import Staging, Uploads
from gpuwire.errors import ArgumentError, UnsupportedIo


class MemoryFace:
    """What a server does with memory."""

    _indirect: IndirectCounts
    _memory_properties: MemoryProperties
    _poller: Poller
    _readbacks: Readbacks
    _scheduler: Scheduler
    _sequences: SequenceLauncher
    _uniforms: Uniforms
    _uploads: Uploads

    def initialize_memory(self, memory: Handle, size: int, stream_id: int = 0) -> None:
        """Bind `memory` to a fresh slice of `size` bytes. Padding up to a multiple of the storage
        alignment, at least 32, is the handle's own. Reading bytes that were never written is an
        error. Raises ArgumentError for a size below 1, OutOfMemory where there is no room.
        """
        memory.slice = self._scheduler.stream(stream_id).memory.allocate(size)

    def staging(self, sizes: Sequence[int], stream_id: int = 0) -> list[Staging]:
        """Host memory to fill and to hand to `write` without one more copy. Raises ArgumentError
        for a size below 1, UnsupportedIo for one that the adapter cannot map, OutOfMemory."""
        most = self._memory_properties.max_buffer
        for size in sizes:
            if size < 1:
                raise ArgumentError(f"staging memory of {size} bytes: at least 1 is needed")
            if size > most:
                raise UnsupportedIo(
                    f"staging memory of {size} bytes: the adapter maps at most {most} at once; "
                    "write it in parts"
                )
        self._scheduler.stream(stream_id)
        return [self._uploads.staging(size) for size in sizes]

    def memory_report(self, stream_id: int = 0) -> MemoryReport:
        """The pools of the stream, in the order in which they are tried, then the pools that all
        streams share: uploads, readbacks, uniforms."""
        own = self._scheduler.stream(stream_id).memory.report()
        shared = (
            self._uploads.pool.report(),
            self._readbacks.pool.report(),
            self._uniforms.report(),
        )
        return MemoryReport.of((*own.pools, *shared))

    def memory_overview(self) -> MemoryReport:
        """As `memory_report`, over all streams: pools of one name are added up."""
        own = [pool for stream in self._scheduler for pool in stream.memory.report().pools]
        shared = (
            self._uploads.pool.report(),
            self._readbacks.pool.report(),
            self._uniforms.report(),
        )
        return MemoryReport.of(added_up((*own, *shared)))

    def memory_cleanup(self, stream_id: int = 0) -> int:
        """Give back what nothing holds, of this stream and of the shared pools; bytes given back.
        Work on its way is not waited for: what it uses goes back at a later cleanup."""
        stream = self._scheduler.stream(stream_id)
        stream.submit()
        self._poller.poll()
        self._sequences.clear()
        returned = stream.memory.cleanup() + self._give_back_shared()
        self._scheduler.forget_idle(stream)
        return returned

    def allocation_mode(self, mode: AllocationMode, stream_id: int = 0) -> None:
        """Whether the stream's allocations are by size or kept in buckets of exact sizes."""
        self._scheduler.stream(stream_id).memory.mode = mode

    def _give_back_everything(self) -> int:
        self._poller.wait_for_work()
        self._sequences.clear()
        returned = sum(stream.memory.cleanup() for stream in self._scheduler)
        return returned + self._give_back_shared()

    def _bytes_in_use(self) -> int:
        return sum(stream.memory.report().bytes_in_use for stream in self._scheduler)

    def _give_back_shared(self) -> int:
        return (
            self._uploads.pool.cleanup()
            + self._readbacks.pool.cleanup()
            + self._uniforms.cleanup()
            + self._indirect.cleanup()
        )
