"""Bytes from the host: filled into mapped buffers, copied on the device in the stream's order."""

from __future__ import annotations

from gpuwire.compute.host_buffers import HostBuffer, HostBuffers
from gpuwire.compute.native import Pointer, Usage, ffi, lib
from gpuwire.compute.polling import MAP_WRITE, Poller
from gpuwire.compute.storage import Storage
from gpuwire.compute.streams import Stream
from gpuwire.errors import GpuwireError, InvalidHandle

ARENA_BYTES = 1024 * 1024
"""Small writes of one batch share buffers of this size."""
CHUNK_BYTES = 16 * 1024 * 1024
"""A large write goes through several: the device copies one while the host fills the next."""
MAX_RESERVED_BYTES = 4 * 1024 * 1024
"""Above this, and two buffers of the size wanted, a write waits for the device instead of taking
more. What is submitted ahead is what other work of the device waits behind: with 32 MiB a small
round trip beside a large upload to a software adapter took 42 to 276 ms, with 4 it takes 7 to 10,
and the upload is as fast."""
ALIGNMENT = 16


class Staging:
    """Host memory on loan: fill `view` and hand it to `WgpuServer.write`, or drop it."""

    __slots__ = ("_buffer", "_loan", "size", "view")

    def __init__(self, buffer: HostBuffer, size: int, pool: HostBuffers) -> None:
        self.size = size
        self._buffer = buffer
        self._loan = _Loan(buffer, pool)
        owned = ffi.gc(buffer.address, self._loan)
        self.view = memoryview(ffi.buffer(owned, size))
        """Writable; released by `write`."""

    def take(self) -> tuple[HostBuffer, bool]:
        """The buffer, and whether it is the caller's now: it is not while somebody else holds a
        view of it (an array made of `view`); it then returns to its pool when that is gone.

        Raises InvalidHandle the second time.
        """
        loan = self._loan
        if loan.taken:
            raise InvalidHandle("this staging memory was written already: ask for another")
        loan.taken = loan.keep = True
        self.view.release()
        loan.keep = loan.ended
        return self._buffer, loan.ended


class _Loan:
    """Called when the last view of staging memory is gone, on whatever thread."""

    __slots__ = ("_buffer", "_pool", "ended", "keep", "taken")

    def __init__(self, buffer: HostBuffer, pool: HostBuffers) -> None:
        self._buffer = buffer
        self._pool = pool
        self.taken = self.keep = self.ended = False

    def __call__(self, _address: Pointer) -> None:
        self.ended = True
        if self.keep:
            return
        if self._pool.closed:
            lib.wgpuBufferRelease(self._buffer.pointer)
        else:
            self._pool.returned.append(self._buffer)


class Uploads:
    """The upload buffers of one server, and which open batch uses which."""

    def __init__(self, storage: Storage, poller: Poller) -> None:
        usage = Usage.MAP_WRITE | Usage.COPY_SRC
        self.pool = HostBuffers("upload", storage, usage, mapped=True)
        self._poller = poller
        self._used: dict[Stream, list[HostBuffer]] = {}

    def staging(self, size: int) -> Staging:
        """Mapped memory of `size` bytes. Raises OutOfMemory."""
        return Staging(self._acquire(size), size, self.pool)

    def has_room(self, size: int, stream: Stream) -> bool:
        """Whether `place` would not wait for the device."""
        used = self._used.get(stream)
        padded = (size + 3) & -4
        if used and used[-1].filled + padded <= used[-1].size:
            return True
        wanted = max(padded, ARENA_BYTES)
        if self.pool.has(wanted):
            return True
        self._poller.poll()  # buffers come back in its callbacks
        # Free ones of other sizes make way.
        return self.pool.has(wanted) or self.pool.in_use + wanted <= _limit(wanted)

    def place(self, data: memoryview, stream: Stream) -> tuple[HostBuffer, int]:
        """Copy `data`, at most `CHUNK_BYTES` long, into a buffer that the stream's open batch may
        copy from; where, and the offset. Rounded up to 4, the bytes behind it are zero."""
        size = len(data)
        padded = (size + 3) & -4
        used = self._used.setdefault(stream, [])
        buffer = used[-1] if used else None
        if buffer is None or buffer.filled + padded > buffer.size:
            buffer = self._acquire(max(padded, ARENA_BYTES))
            used.append(buffer)
        offset = buffer.filled
        ffi.memmove(buffer.address + offset, data, size)
        if padded != size:
            ffi.memmove(buffer.address + offset + size, bytes(padded - size), padded - size)
        buffer.filled = (offset + padded + ALIGNMENT - 1) & -ALIGNMENT
        return buffer, offset

    def adopt(self, buffer: HostBuffer, stream: Stream) -> None:
        """The stream's open batch copies from a buffer that the caller filled."""
        self._used.setdefault(stream, []).insert(0, buffer)
        buffer.filled = buffer.size

    def seal(self, stream: Stream) -> None:
        """Unmap what the batch uses: before it is submitted."""
        for buffer in self._used.get(stream, ()):
            buffer.unmap()

    def reclaim(self, stream: Stream) -> None:
        """Have the batch's buffers mapped again once it has ended: after it is submitted."""
        for buffer in self._used.pop(stream, ()):
            self._poller.map(buffer.pointer, MAP_WRITE, buffer.size, _Reclaim(buffer, self.pool))

    def close(self) -> None:
        """Let go of every buffer that nobody has a view of."""
        for used in self._used.values():
            for buffer in used:
                lib.wgpuBufferRelease(buffer.pointer)
        self._used.clear()
        self.pool.close()

    def _acquire(self, size: int) -> HostBuffer:
        buffer = self.pool.find(size)
        if buffer is not None:
            return buffer
        self._poller.poll()
        buffer = self.pool.find(size)
        if buffer is not None:
            return buffer
        if self.pool.reserved + size > _limit(size):
            self._poller.wait_for_work()
            buffer = self.pool.find(size)
            if buffer is not None:
                return buffer
            self.pool.cleanup()
        return self.pool.create(size)


def _limit(size: int) -> int:
    """What may be reserved where a buffer of `size` is wanted."""
    return max(MAX_RESERVED_BYTES, 2 * size)


class _Reclaim:
    """What happens when an upload buffer is mapped again."""

    __slots__ = ("_buffer", "_pool")

    def __init__(self, buffer: HostBuffer, pool: HostBuffers) -> None:
        self._buffer = buffer
        self._pool = pool

    def __call__(self, error: GpuwireError | None) -> None:
        if error is None and not self._pool.closed:
            self._buffer.note_mapped()
            self._pool.returned.append(self._buffer)
        else:
            lib.wgpuBufferRelease(self._buffer.pointer)
