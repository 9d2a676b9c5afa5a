"""Buffers that the host sees: upload buffers that it fills, readback buffers that it reads.

Making one costs a page fault for every 4 KiB of it, so they are kept. Sizes are rounded up to one
of eight steps an octave, so that similar requests share buffers.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from gpuwire.compute.memory.report import PoolKind, PoolReport
from gpuwire.compute.native import Pointer, Usage, ffi, lib
from gpuwire.compute.storage import Storage

MIN_BYTES = 4096


class HostBuffer:
    """One mappable buffer."""

    __slots__ = ("address", "filled", "pointer", "size")

    def __init__(self, pointer: Pointer, size: int) -> None:
        self.pointer = pointer
        self.size = size
        self.address: Pointer = ffi.NULL
        """Where its bytes lie, while it is mapped, as a `char *`."""
        self.filled = 0

    def note_mapped(self) -> None:
        """Take the address of the mapped bytes."""
        mapped = lib.wgpuBufferGetMappedRange(self.pointer, 0, self.size)
        self.address = ffi.cast("char *", mapped)

    def unmap(self) -> None:
        """Give the bytes back to the device."""
        lib.wgpuBufferUnmap(self.pointer)
        self.address = ffi.NULL

    def bytes_at(self, offset: int, size: int) -> Any:
        """A buffer over mapped bytes; whoever keeps it must keep them mapped."""
        return ffi.buffer(self.address + offset, size)


class HostBuffers:
    """A pool of one kind of them. `free` may be filled from any thread."""

    def __init__(self, name: str, storage: Storage, usage: Usage, *, mapped: bool) -> None:
        self.name = name
        self.returned: deque[HostBuffer] = deque()
        """Ready to be used again; for upload buffers that means mapped."""
        self.in_use = 0
        self.reserved = 0
        self.closed = False
        self._storage = storage
        self._usage = usage
        self._mapped = mapped
        self._free: dict[int, list[HostBuffer]] = {}
        self._buffers = 0
        self._high_in_use = self._high_reserved = 0
        self._largest = 0

    def find(self, size: int) -> HostBuffer | None:
        """A free buffer for `size` bytes."""
        self.take_in()
        free = self._free.get(rounded(size))
        if not free:
            return None
        return self._hand_out(free.pop())

    def has(self, size: int) -> bool:
        """Whether `find` would find one."""
        self.take_in()
        return bool(self._free.get(rounded(size)))

    def create(self, size: int) -> HostBuffer:
        """A new buffer for `size` bytes. Raises OutOfMemory."""
        size = rounded(size)
        buffer = HostBuffer(self._storage.create_free(size, self._usage, mapped=self._mapped), size)
        if self._mapped:
            buffer.note_mapped()
        self._buffers += 1
        self.reserved += size
        self._high_reserved = max(self._high_reserved, self.reserved)
        self._largest = max(self._largest, size)
        return self._hand_out(buffer)

    def take_in(self) -> None:
        """Sort what was returned by size."""
        returned = self.returned
        while returned:
            buffer = returned.popleft()
            self.in_use -= buffer.size
            self._free.setdefault(buffer.size, []).append(buffer)

    def discard(self, buffer: HostBuffer) -> None:
        """End a buffer that is in use and of no use any longer."""
        self.in_use -= buffer.size
        self._end(buffer)

    def cleanup(self) -> int:
        """Give back every free buffer; the bytes given back."""
        self.take_in()
        free = [buffer for buffers in self._free.values() for buffer in buffers]
        self._free.clear()
        for buffer in free:
            self._end(buffer)
        return sum(buffer.size for buffer in free)

    def close(self) -> None:
        """Free what is free; what is not is freed by whoever returns it."""
        self.closed = True
        self.cleanup()

    def report(self) -> PoolReport:
        """What the pool holds."""
        self.take_in()
        return PoolReport(
            name=self.name,
            kind=PoolKind.EXCLUSIVE,
            page_bytes=self._largest,
            max_slice_bytes=0,
            pages=self._buffers,
            slices=self._buffers - sum(map(len, self._free.values())),
            bytes_in_use=self.in_use,
            bytes_reserved=self.reserved,
            bytes_padding=0,
            high_water_in_use=self._high_in_use,
            high_water_reserved=self._high_reserved,
        )

    def _hand_out(self, buffer: HostBuffer) -> HostBuffer:
        buffer.filled = 0
        self.in_use += buffer.size
        self._high_in_use = max(self._high_in_use, self.in_use)
        return buffer

    def _end(self, buffer: HostBuffer) -> None:
        self._buffers -= 1
        self.reserved -= buffer.size
        self._storage.destroy_free(buffer.pointer, buffer.size)


def rounded(size: int) -> int:
    """The next of eight steps an octave, at least `MIN_BYTES`."""
    if size <= MIN_BYTES:
        return MIN_BYTES
    step = 1 << max(0, (size - 1).bit_length() - 4)
    return (size + step - 1) & -step
