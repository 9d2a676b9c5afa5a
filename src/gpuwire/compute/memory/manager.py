"""The memory of one real stream: which pool serves a request, and what is given back when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from gpuwire.compute.memory.pages import Block, PageSource
from gpuwire.compute.memory.pools import DirectPool, PersistentPool, Pool
from gpuwire.compute.memory.report import MemoryReport
from gpuwire.compute.memory.sliced_pool import SlicedPool
from gpuwire.compute.memory.slices import Released, Slice
from gpuwire.compute.taint import NEVER_WRITTEN
from gpuwire.config import MemoryConfig
from gpuwire.errors import ArgumentError
from gpuwire.telemetry.logs import Logger

if TYPE_CHECKING:
    from gpuwire.compute.streams import Stream

KIB = 1024
MIB = 1024 * KIB


class AllocationMode(Enum):
    """What a stream's allocations are: chosen by size, or kept in buckets of exact sizes."""

    AUTOMATIC = "automatic"
    PERSISTENT = "persistent"


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """The sliced pools, smallest slices first. Sizes in bytes."""

    name: str
    max_slice: int
    min_page: int
    max_page: int


DEFAULT_LAYOUT = (
    PoolLayout("small", 64 * KIB, 256 * KIB, 8 * MIB),
    PoolLayout("medium", MIB, MIB, 32 * MIB),
)


class MemoryManager:
    """The pools of one real stream.

    A freed slice may be handed out again at once, without waiting for the device: work of one
    stream runs in order, and what another stream's open batch does with it is submitted first.
    """

    def __init__(
        self,
        source: PageSource,
        *,
        alignment: int,
        config: MemoryConfig,
        logger: Logger,
        owner: Stream | None,
        layout: tuple[PoolLayout, ...] = DEFAULT_LAYOUT,
    ) -> None:
        self.mode = AllocationMode.AUTOMATIC
        self.released: deque[Released] = deque()
        self._alignment_mask = alignment - 1
        self._policy = config.persistent_memory
        self._logger = logger
        self._owner = owner
        self._sliced = tuple(
            SlicedPool(
                pool.name,
                source,
                max_slice=pool.max_slice,
                min_page=pool.min_page,
                max_page=pool.max_page,
            )
            for pool in layout
        )
        self._smallest = self._sliced[0]
        self._by_size = config.persistent_memory in ("enabled", "disabled")
        """Whether automatic allocations are by size alone."""
        self._persistent = PersistentPool("persistent", source)
        self._direct = DirectPool("direct", source)
        self._pools: tuple[Pool, ...] = (self._persistent, *self._sliced, self._direct)

    def allocate(self, size: int) -> Slice:
        """A slice of `size` bytes, padded. Raises ArgumentError, OutOfMemory."""
        if size < 1:
            raise ArgumentError(f"an allocation of {size} bytes: at least 1 is needed")
        if self.released:
            self.take_in()
        padded = (size + self._alignment_mask) & ~self._alignment_mask
        pool = self._smallest
        if padded <= pool.max_slice and self._by_size and self.mode is AllocationMode.AUTOMATIC:
            block = pool.reserve(padded)
        else:
            block = self._reserve(padded)
        usage = block.pool.usage
        usage.blocks += 1
        usage.block_bytes += block.size
        usage.asked += size
        if usage.asked > usage.asked_high:
            usage.asked_high = usage.asked
        if self._logger.wants_full:
            self._logger.full(f"allocated {size} bytes in {block.pool.name}")
        return Slice(block, size, ((0, size, NEVER_WRITTEN),), self.released)

    def take_in(self) -> None:
        """Return the blocks of slices that nothing holds any longer to their pools."""
        released = self.released
        while released:
            try:
                ended = released.popleft()
            except IndexError:
                return
            block, size, toucher, batch = ended
            if toucher is not None and toucher is not self._owner and toucher.batch == batch:
                toucher.submit()
            usage = block.pool.usage
            usage.blocks -= 1
            usage.block_bytes -= block.size
            usage.asked -= size
            block.pool.release(block)

    def cleanup(self) -> int:
        """Give back every page that nothing holds; the number of bytes given back."""
        self.take_in()
        returned = sum(pool.cleanup() for pool in self._pools)
        if returned:
            self._logger.basic(f"memory cleanup gave back {returned} bytes")
        return returned

    def report(self) -> MemoryReport:
        """All pools, in the order in which they are tried."""
        self.take_in()
        return MemoryReport.of(tuple(pool.report() for pool in self._pools))

    def _reserve(self, padded: int) -> Block:
        if self._is_persistent(padded):
            return self._persistent.reserve(padded)
        for pool in self._sliced:
            if padded <= pool.max_slice:
                return pool.reserve(padded)
        return self._direct.reserve(padded)

    def _is_persistent(self, padded: int) -> bool:
        policy = self._policy
        if policy == "disabled":
            return False
        if self.mode is AllocationMode.PERSISTENT or policy == "enforced":
            return True
        return policy == "size-match" and self._persistent.has_bucket(padded)
