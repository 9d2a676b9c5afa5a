"""Sliced pages: memory for small and medium tensors.

The sliced pool is a two-level segregated fit (Masmano et al., "TLSF: a new dynamic memory
allocator for real-time systems", ECRTS 2004): free blocks in bins eight to an octave, a bitmap of
the bins that hold any, neighbours merged on release. In front of it lies a heap for each size of
blocks that were just released and not yet merged, which is 0.4 µs instead of 2 µs. Of blocks that
fit alike the first in memory is taken, whatever the order in which they were released: so a program
that repeats settles on a few sets of places, and what was bound there is found again.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import islice

from gpuwire.compute.memory.pages import Block, Page, PageSource
from gpuwire.compute.memory.pools import PoolUsage, tightness
from gpuwire.compute.memory.report import PoolKind, PoolReport
from gpuwire.errors import OutOfMemory

_SUBBINS_LOG2 = 3
_SUBBINS = 1 << _SUBBINS_LOG2
_PAGE_STEP = 64 * 1024
_GROWTH_LOG2 = 3
_SLICES_OF_A_PAGE = 4
_LOOK_AT = 16
"""Blocks of a bin that are compared: the best of 16 fragments as little as the best of all."""


class SlicedPool:
    """Pages cut into slices.

    A new page is as large as an eighth of what the pool already has and as four of the slices
    asked for, between `min_page` and `max_page`: a small program reserves little, and a large one
    has little left over in its last page.
    """

    def __init__(
        self, name: str, source: PageSource, *, max_slice: int, min_page: int, max_page: int
    ) -> None:
        self.name = name
        self.max_slice = max_slice
        self.usage = PoolUsage()
        self._source = source
        self._min_page = min_page
        self._max_page = max_page
        self._bins: list[dict[Block, None]] = []
        self._filled = 0
        self._warm: dict[int, list[tuple[int, Block]]] = {}
        self._warm_bytes = 0
        self._first_blocks: dict[Page, Block] = {}

    def reserve(self, size: int) -> Block:
        warm = self._warm.get(size)
        if warm:
            _, block = heappop(warm)
            self._warm_bytes -= size
            block.used = True
            block.page.used_blocks += 1
            return block
        block_or_none = self._take(size)
        if block_or_none is None and self._warm_bytes:
            self._merge_warm()
            block_or_none = self._take(size)
        if block_or_none is None:
            self._grow(size)
            block_or_none = self._take(size)
        assert block_or_none is not None
        return block_or_none

    def release(self, block: Block) -> None:
        block.used = False
        block.page.used_blocks -= 1
        size = block.size
        warm = self._warm.get(size)
        if warm is None:
            self._warm[size] = [(block.place, block)]
        else:
            heappush(warm, (block.place, block))
        self._warm_bytes += size
        if self._warm_bytes > self.usage.reserved >> 3:
            self._merge_warm()

    def cleanup(self) -> int:
        self._merge_warm()
        returned = 0
        for page in [page for page in self._first_blocks if page.used_blocks == 0]:
            self._unlink(self._first_blocks.pop(page))
            self.usage.drop_page(page.size)
            returned += page.size
            self._source.destroy(page)
        return returned

    def report(self) -> PoolReport:
        return self.usage.report(self.name, PoolKind.SLICED, self.max_slice)

    def _take(self, size: int) -> Block | None:
        # Any block of a bin above the request's own fits; in its own bin some may, and one that
        # does fits best.
        own = _bin_of(size)
        if own < len(self._bins):
            fitting = [block for block in islice(self._bins[own], _LOOK_AT) if block.size >= size]
            if fitting:
                return self._cut(min(fitting, key=tightness), size)
        above = self._filled >> (own + 1)
        if not above:
            return None
        index = own + (above & -above).bit_length()
        return self._cut(min(islice(self._bins[index], _LOOK_AT), key=tightness), size)

    def _cut(self, block: Block, size: int) -> Block:
        self._unlink(block)
        rest_size = block.size - size
        if rest_size:
            rest = Block(block.page, block.offset + size, rest_size, self)
            rest.previous, rest.next = block, block.next
            if block.next is not None:
                block.next.previous = rest
            block.next = rest
            block.size = size
            self._link(rest)
        block.used = True
        block.page.used_blocks += 1
        return block

    def _merge_warm(self) -> None:
        for blocks in self._warm.values():
            for _, block in blocks:
                self._merge(block)
        self._warm.clear()
        self._warm_bytes = 0

    def _merge(self, block: Block) -> None:
        following = block.next
        if following is not None and following.bin >= 0:
            self._unlink(following)
            block.size += following.size
            block.next = following.next
            if following.next is not None:
                following.next.previous = block
        before = block.previous
        if before is not None and before.bin >= 0:
            self._unlink(before)
            before.size += block.size
            before.next = block.next
            if block.next is not None:
                block.next.previous = before
            block = before
        self._link(block)

    def _grow(self, size: int) -> None:
        least = (size + _PAGE_STEP - 1) & -_PAGE_STEP
        share = max(self._min_page, self.usage.reserved >> _GROWTH_LOG2, size * _SLICES_OF_A_PAGE)
        wanted = max(min(self._max_page, share) & -_PAGE_STEP, least)
        try:
            page = self._source.create(wanted)
        except OutOfMemory:
            if wanted == least:
                raise
            page = self._source.create(least)
        block = Block(page, 0, page.size, self)
        self._first_blocks[page] = block
        self.usage.add_page(page.size)
        self._link(block)

    def _link(self, block: Block) -> None:
        index = _bin_of(block.size)
        while index >= len(self._bins):
            self._bins.append({})
        self._bins[index][block] = None
        self._filled |= 1 << index
        block.bin = index

    def _unlink(self, block: Block) -> None:
        blocks = self._bins[block.bin]
        del blocks[block]
        if not blocks:
            self._filled &= ~(1 << block.bin)
        block.bin = -1


def _bin_of(size: int) -> int:
    """Eight bins to an octave: the top four bits of the size."""
    octave = size.bit_length() - 1 - _SUBBINS_LOG2
    return (octave << _SUBBINS_LOG2) + (size >> octave) - _SUBBINS
