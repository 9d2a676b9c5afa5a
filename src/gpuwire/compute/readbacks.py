"""Bytes for the host: copied into mappable buffers and handed out where they lie.

A view that is handed out keeps its buffer mapped; the buffer returns when the last view of it is
gone. Small reads are handed out as a copy instead: their buffer is free again at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.compute.completion import Completion
from gpuwire.compute.host_buffers import HostBuffer, HostBuffers
from gpuwire.compute.launch_scope import Range
from gpuwire.compute.native import Pointer, Usage, ffi, lib
from gpuwire.compute.polling import MAP_READ, Poller
from gpuwire.compute.storage import Storage
from gpuwire.compute.streams import Stream
from gpuwire.errors import GpuwireError

COPY_BELOW = 64 * 1024
ALIGNMENT = 64
"""Of each range in the buffer, so that NumPy finds its elements aligned."""


class Readbacks:
    """The readback buffers of one server."""

    def __init__(self, storage: Storage, poller: Poller) -> None:
        usage = Usage.MAP_READ | Usage.COPY_DST
        self.pool = HostBuffers("readback", storage, usage, mapped=False)
        self._poller = poller

    def read(self, ranges: Sequence[Range], stream: Stream) -> Completion[list[memoryview]]:
        """Copy the ranges' bytes in the stream's order and submit; a view for each range."""
        places: list[tuple[int, int]] = []
        total = 0
        for _, start, end in ranges:
            places.append((total, end - start))
            total = (total + end - start + ALIGNMENT - 1) & -ALIGNMENT
        buffer = self.pool.find(total) or self.pool.create(total)
        for (used, start, end), (place, _) in zip(ranges, places, strict=True):
            stream.touch(used)
            lib.wgpuCommandEncoderCopyBufferToBuffer(
                stream.copying(),
                used.page.buffer,
                used.offset + start,
                buffer.pointer,
                place,
                (end - start + 3) & -4,
            )
        return self._map(buffer, places, total, stream)

    def read_buffer(
        self, source: Pointer, size: int, stream: Stream
    ) -> Completion[list[memoryview]]:
        """The first `size` bytes of a buffer of the server's own."""
        buffer = self.pool.find(size) or self.pool.create(size)
        lib.wgpuCommandEncoderCopyBufferToBuffer(
            stream.copying(), source, 0, buffer.pointer, 0, size
        )
        return self._map(buffer, [(0, size)], size, stream)

    def _map(
        self, buffer: HostBuffer, places: Sequence[tuple[int, int]], total: int, stream: Stream
    ) -> Completion[list[memoryview]]:
        """Submit the copies into `buffer`, and hand out its places when they have ended."""
        stream.submit()
        completion: Completion[list[memoryview]] = self._poller.completion()

        def mapped(error: GpuwireError | None) -> None:
            if error is not None:
                lib.wgpuBufferRelease(buffer.pointer)
                completion.fail(error)
                return
            buffer.note_mapped()
            if total <= COPY_BELOW:
                copied = memoryview(bytes(buffer.bytes_at(0, total)))
                _Return(buffer, self.pool)(None)
            else:
                copied = _owning_view(buffer, total, self.pool)
            completion.succeed([copied[place : place + size] for place, size in places])

        self._poller.map(buffer.pointer, MAP_READ, buffer.size, mapped)
        return completion


class _Return:
    """Unmaps a buffer and returns it to its pool; on whatever thread the last view was dropped."""

    __slots__ = ("_buffer", "_pool")

    def __init__(self, buffer: HostBuffer, pool: HostBuffers) -> None:
        self._buffer = buffer
        self._pool = pool

    def __call__(self, _address: Pointer) -> None:
        self._buffer.unmap()
        if self._pool.closed:
            lib.wgpuBufferRelease(self._buffer.pointer)
        else:
            self._pool.returned.append(self._buffer)


def _owning_view(buffer: HostBuffer, size: int, pool: HostBuffers) -> memoryview:
    owned = ffi.gc(buffer.address, _Return(buffer, pool))
    return memoryview(ffi.buffer(owned, size)).toreadonly()
