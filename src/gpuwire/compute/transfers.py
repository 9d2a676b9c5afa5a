"""Writes and reads: what a descriptor means, and bytes between host and device."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from gpuwire.compute.completion import Completion
from gpuwire.compute.handles import Binding, CopyDescriptor
from gpuwire.compute.launch_scope import LaunchScope, Range
from gpuwire.compute.launcher import Launcher
from gpuwire.compute.memory.slices import Slice
from gpuwire.compute.native import Pointer, lib
from gpuwire.compute.readbacks import Readbacks
from gpuwire.compute.scheduler import Scheduler
from gpuwire.compute.storage import Storage
from gpuwire.compute.streams import Stream
from gpuwire.compute.taint import detached
from gpuwire.compute.uploads import CHUNK_BYTES, Staging, Uploads
from gpuwire.errors import ArgumentError, GpuwireError, InvalidHandle, UnsupportedStrides
from gpuwire.kernels.kernel import Access, Kernel

WriteData = bytes | bytearray | memoryview | Staging

_PATCH_SOURCE = """\
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(1)
fn main() {
    let word = params[0].x;
    let mask = params[0].y;
    words[word] = (words[word] & ~mask) | (params[0].z & mask);
}
"""


class Transfers:
    """Moves bytes for one server."""

    def __init__(
        self,
        storage: Storage,
        alignment: int,
        scheduler: Scheduler,
        scope: LaunchScope,
        launcher: Launcher,
        uploads: Uploads,
        readbacks: Readbacks,
    ) -> None:
        self._storage = storage
        self._alignment = alignment
        self._scheduler = scheduler
        self._scope = scope
        self._launcher = launcher
        self._uploads = uploads
        self._readbacks = readbacks
        self._patch = Kernel("patch bytes", _PATCH_SOURCE, (Access.READ_WRITE,), (1, 1, 1), 3)

    def write(self, descriptor: CopyDescriptor, data: WriteData, stream: Stream) -> None:
        """See `WgpuServer.write`."""
        target = self.range_of(descriptor)
        staged = data if isinstance(data, Staging) else None
        size = data.size if isinstance(data, Staging) else memoryview(data).nbytes
        if target is None:
            if size:
                raise ArgumentError(f"{size} bytes are given for a tensor of none")
            return
        used, start, end = target
        if size != end - start:
            raise ArgumentError(f"{size} bytes are given for a tensor of {end - start}")
        self._scope.enter(stream, (), (), (target,))
        try:
            if staged is not None:
                self._write_staged(staged, used, start, stream)
            else:
                self._write_copied(memoryview(data), used, start, stream)  # type: ignore[arg-type]
        except GpuwireError as error:
            self._scope.fail(stream, (target,), error)
            raise
        self._scope.leave(stream, (target,))

    def read(
        self, descriptors: Sequence[CopyDescriptor], stream: Stream
    ) -> Completion[list[memoryview]]:
        """See `WgpuServer.read`."""
        ranges = [self.range_of(descriptor) for descriptor in descriptors]
        wanted = [found for found in ranges if found is not None]
        error = self.first_error(wanted)
        if error is not None:
            return Completion.failed(error)
        if not wanted:
            return Completion.of([memoryview(b"") for _ in ranges])
        stream_batch = stream.batch
        completion = self._readbacks.read(wanted, stream)
        if stream_batch in self._scope.failed_batches:
            return Completion.failed(detached(self._scope.failed_batches[stream_batch].error))
        if len(wanted) == len(ranges):
            return completion
        return completion.then(
            lambda views: _with_empty(views, [found is None for found in ranges])
        )

    def first_error(self, ranges: Sequence[Range]) -> GpuwireError | None:
        """The first cause among the ranges' bytes that do not exist."""
        failures = [self._scope.failure(used, start, end) for used, start, end in ranges]
        found = [failure for failure in failures if failure is not None]
        if not found:
            return None
        return detached(min(found, key=lambda failure: failure.order).error)

    def range_of(self, descriptor: CopyDescriptor) -> Range | None:
        """The bytes that a descriptor names; None for none. Raises InvalidHandle, ArgumentError,
        UnsupportedStrides."""
        nbytes = descriptor.itemsize
        expected: list[int] = []
        elements = 1
        for extent in reversed(descriptor.shape):
            expected.append(elements)
            elements *= extent
        nbytes *= elements
        expected.reverse()
        if len(descriptor.strides) != len(expected) or any(
            stride != wanted
            for stride, wanted, extent in zip(
                descriptor.strides, expected, descriptor.shape, strict=True
            )
            if extent > 1 and elements
        ):
            raise UnsupportedStrides(
                f"strides {descriptor.strides} of shape {descriptor.shape}: only contiguous "
                f"row-major tensors are moved, here {tuple(expected)}; copy it on the device first"
            )
        if nbytes == 0:
            return None
        binding = descriptor.binding
        if binding.size < nbytes:
            raise ArgumentError(f"a tensor of {nbytes} bytes in a binding of {binding.size}")
        used, start, _ = self.range_of_binding(binding)
        return used, start, start + nbytes

    def range_of_binding(self, binding: Binding) -> Range:
        """The bytes of a binding. Raises InvalidHandle, ArgumentError."""
        used = binding.handle.slice
        if used is None:
            raise InvalidHandle("the handle has no memory: initialize_memory comes first")
        if used.page.owner is not self._storage:
            raise InvalidHandle("the handle's memory belongs to another server")
        start, end = binding.offset, binding.offset + binding.size
        if start < 0 or start & 3 or binding.size < 1 or end > used.capacity:
            raise ArgumentError(
                f"{binding.size} bytes at {start} do not lie in a buffer of {used.size} bytes "
                "at a multiple of 4"
            )
        return used, start, end

    def _write_copied(self, data: memoryview, used: Slice, start: int, stream: Stream) -> None:
        if not data.contiguous:
            raise UnsupportedStrides("the bytes to write are not contiguous")
        data = data.cast("B")
        size = data.nbytes
        whole = size if start + size >= used.size else size & -4
        done = 0
        while done < whole:
            chunk = min(CHUNK_BYTES, whole - done)
            buffer, place = self._uploads.place(data[done : done + chunk], stream)
            self._copy(buffer.pointer, place, used, start + done, (chunk + 3) & -4, stream)
            done += chunk
            self._scheduler.written(stream, chunk)
        if whole != size:
            self._patch_bytes(bytes(data[whole:]), used, start + whole, stream)

    def _write_staged(self, staging: Staging, used: Slice, start: int, stream: Stream) -> None:
        size = staging.size
        buffer, ours = staging.take()
        if not ours:
            self._write_copied(memoryview(buffer.bytes_at(0, size)), used, start, stream)
            return
        whole = size if start + size >= used.size else size & -4
        tail = bytes(buffer.bytes_at(whole, size - whole))
        self._uploads.adopt(buffer, stream)
        if whole:
            self._copy(buffer.pointer, 0, used, start, (whole + 3) & -4, stream)
        if tail:
            self._patch_bytes(tail, used, start + whole, stream)
        self._scheduler.written(stream, size)

    def _copy(
        self, source: Pointer, place: int, used: Slice, start: int, size: int, stream: Stream
    ) -> None:
        stream.touch(used)
        lib.wgpuCommandEncoderCopyBufferToBuffer(
            stream.copying(), source, place, used.page.buffer, used.offset + start, size
        )

    def _patch_bytes(self, tail: bytes, used: Slice, start: int, stream: Stream) -> None:
        """Up to three bytes at a multiple of 4, leaving the rest of their word as it is: copies
        move whole words, so a kernel does it."""
        base = start & -self._alignment
        mask = (1 << (8 * len(tail))) - 1
        params = struct.pack("<3I", (start - base) // 4, mask, int.from_bytes(tail, "little"))
        self._launcher.run(self._patch, (1, 1, 1), [(used, base, start + 4)], params, stream)


def _with_empty(views: list[memoryview], empty: list[bool]) -> list[memoryview]:
    left = iter(views)
    return [memoryview(b"") if is_empty else next(left) for is_empty in empty]
