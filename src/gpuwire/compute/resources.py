"""The wgpu buffer behind a binding, for code that goes to the device by itself."""

from __future__ import annotations

from gpuwire.compute.memory.slices import Slice
from gpuwire.compute.native import Pointer, lib


class Resource:
    """A range of a wgpu buffer. The memory is the holder's while this object lives."""

    __slots__ = ("_held", "buffer", "offset", "size")

    def __init__(self, held: Slice, offset: int, size: int) -> None:
        self._held = held
        self.buffer: Pointer = held.page.buffer
        """The `WGPUBuffer`."""
        self.offset = held.offset + offset
        """Bytes from the buffer's start."""
        self.size = size
        lib.wgpuBufferAddRef(self.buffer)

    def __del__(self) -> None:
        if hasattr(self, "size"):
            lib.wgpuBufferRelease(self.buffer)
