"""Kernel parameters as uniforms, where immediates do not hold them: cached by their bytes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from gpuwire.compute.memory.pages import Block
from gpuwire.compute.memory.report import PoolReport
from gpuwire.compute.memory.sliced_pool import SlicedPool
from gpuwire.compute.native import NativeDevice, Pointer, Usage, ffi, lib
from gpuwire.compute.storage import Storage
from gpuwire.compute.streams import Stream

PAGE_BYTES = 64 * 1024
MAX_CACHED_BYTES = 1024 * 1024
SLOT_ALIGNMENT = 256
"""WebGPU's largest minUniformBufferOffsetAlignment."""


@dataclass(slots=True, eq=False)
class Uniform:
    """Parameters that lie in a uniform buffer."""

    block: Block
    offsets: Pointer
    """Their dynamic offset, as the one element of a C array."""
    stream: Stream
    batch: int
    """The last stream and batch that used them."""
    pins: int = 0
    """Captured graphs that use them."""


class Uniforms:
    """Parameters already on the device. Least recently used ones make room."""

    def __init__(self, device: NativeDevice, storage: Storage) -> None:
        self._device = device
        source = storage.pages(Usage.UNIFORM | Usage.COPY_DST)
        self._pool = SlicedPool(
            "uniforms", source, max_slice=PAGE_BYTES, min_page=PAGE_BYTES, max_page=PAGE_BYTES
        )
        self._cached: OrderedDict[bytes, Uniform] = OrderedDict()

    def place(self, params: bytes, stream: Stream) -> Uniform:
        """The uniform that holds `params`, for a launch of the stream's open batch."""
        uniform = self._cached.get(params)
        if uniform is None:
            uniform = self._add(params, stream)
        else:
            self._cached.move_to_end(params)
        if uniform.stream is not stream:
            uniform.stream = stream
        uniform.batch = stream.batch
        return uniform

    def cleanup(self) -> int:
        """Forget everything that no graph pins and no open batch uses; bytes given back."""
        for params, uniform in tuple(self._cached.items()):
            if not uniform.pins and uniform.stream.batch != uniform.batch:
                self._evict(params)
        return self._pool.cleanup()

    def report(self) -> PoolReport:
        """What the uniforms take."""
        return self._pool.report()

    def _add(self, params: bytes, stream: Stream) -> Uniform:
        while self._pool.usage.block_bytes >= MAX_CACHED_BYTES:
            victim = next((key for key, one in self._cached.items() if not one.pins), None)
            if victim is None:
                break
            self._evict(victim)
        size = (len(params) + SLOT_ALIGNMENT - 1) & -SLOT_ALIGNMENT
        block = self._pool.reserve(size)
        self._count(block, 1)
        # Ordered before every later submission, after every earlier one; `_evict` has seen to it
        # that no open batch still uses what lay here before.
        lib.wgpuQueueWriteBuffer(
            self._device.queue, block.page.buffer, block.offset, params, len(params)
        )
        uniform = Uniform(block, ffi.new("uint32_t[1]", [block.offset]), stream, stream.batch)
        self._cached[params] = uniform
        return uniform

    def _evict(self, params: bytes) -> None:
        uniform = self._cached.pop(params)
        if uniform.stream.batch == uniform.batch:
            uniform.stream.submit()
        self._count(uniform.block, -1)
        self._pool.release(uniform.block)

    def _count(self, block: Block, one: int) -> None:
        usage = self._pool.usage
        usage.blocks += one
        usage.block_bytes += one * block.size
        usage.asked += one * block.size
        usage.asked_high = max(usage.asked_high, usage.asked)
