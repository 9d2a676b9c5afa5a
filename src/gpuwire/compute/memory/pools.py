"""The pools that serve handles: sliced pages, persistent buckets, direct allocation.

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
from typing import Protocol

from gpuwire.compute.memory.pages import Block, Page, PageSource
from gpuwire.compute.memory.report import PoolKind, PoolReport
from gpuwire.errors import OutOfMemory

_SUBBINS_LOG2 = 3
_SUBBINS = 1 << _SUBBINS_LOG2
_PAGE_STEP = 64 * 1024
_GROWTH_LOG2 = 3
_SLICES_OF_A_PAGE = 4
_LOOK_AT = 16
"""Blocks of a bin that are compared: the best of 16 fragments as little as the best of all."""

KEPT_BYTES = 256 * 1024 * 1024
"""What the direct pool may keep that nothing uses, whatever is in use."""


class PoolUsage:
    """The counts that every pool keeps."""

    __slots__ = (
        "asked",
        "asked_high",
        "block_bytes",
        "blocks",
        "largest_page",
        "pages",
        "reserved",
        "reserved_high",
    )

    def __init__(self) -> None:
        self.asked = self.asked_high = 0
        self.block_bytes = self.blocks = 0
        self.pages = self.largest_page = 0
        self.reserved = self.reserved_high = 0

    def add_page(self, size: int) -> None:
        """Count a page in."""
        self.pages += 1
        self.reserved += size
        self.reserved_high = max(self.reserved_high, self.reserved)
        self.largest_page = max(self.largest_page, size)

    def drop_page(self, size: int) -> None:
        """Count a page out."""
        self.pages -= 1
        self.reserved -= size

    def report(self, name: str, kind: PoolKind, max_slice_bytes: int) -> PoolReport:
        """As the public record."""
        return PoolReport(
            name=name,
            kind=kind,
            page_bytes=self.largest_page,
            max_slice_bytes=max_slice_bytes,
            pages=self.pages,
            slices=self.blocks,
            bytes_in_use=self.asked,
            bytes_reserved=self.reserved,
            bytes_padding=self.block_bytes - self.asked,
            high_water_in_use=self.asked_high,
            high_water_reserved=self.reserved_high,
        )


class Pool(Protocol):
    """What the manager asks of a pool. `size` is padded already, in bytes."""

    name: str
    usage: PoolUsage

    def reserve(self, size: int) -> Block:
        """A block of at least `size`. Raises OutOfMemory."""
        ...

    def release(self, block: Block) -> None:
        """Takes a block back."""
        ...

    def cleanup(self) -> int:
        """Gives back every page that nothing holds; the bytes given back."""
        ...

    def report(self) -> PoolReport:
        """What it holds."""
        ...


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
                return self._cut(min(fitting, key=_tightness), size)
        above = self._filled >> (own + 1)
        if not above:
            return None
        index = own + (above & -above).bit_length()
        return self._cut(min(islice(self._bins[index], _LOOK_AT), key=_tightness), size)

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


class PersistentPool:
    """Buckets of pages of one exact size each, kept until a cleanup."""

    def __init__(self, name: str, source: PageSource) -> None:
        self.name = name
        self.usage = PoolUsage()
        self._source = source
        self._buckets: dict[int, list[Block]] = {}

    def has_bucket(self, size: int) -> bool:
        """Whether pages of this size exist, used or not."""
        return size in self._buckets

    def reserve(self, size: int) -> Block:
        bucket = self._buckets.setdefault(size, [])
        return _used(bucket.pop() if bucket else _whole_page(self, self._source, size))

    def release(self, block: Block) -> None:
        block.used = False
        block.page.used_blocks = 0
        self._buckets.setdefault(block.size, []).append(block)

    def cleanup(self) -> int:
        freed = [block for bucket in self._buckets.values() for block in bucket]
        self._buckets.clear()
        return sum(_give_back(block, self._source) for block in freed)

    def report(self) -> PoolReport:
        return self.usage.report(self.name, PoolKind.PERSISTENT, 0)


class DirectPool:
    """One page for each slice, for large ones: cut out of shared pages they would fragment those.

    Released pages are kept for requests that fill them to 8/9 at least, so that a program that
    repeats makes no buffer (100 µs). They never add to the most that was ever reserved: a new page
    takes their place; nor do they outweigh what is in use and `KEPT_BYTES`.
    """

    def __init__(self, name: str, source: PageSource) -> None:
        self.name = name
        self.usage = PoolUsage()
        self._source = source
        self._kept: dict[Block, None] = {}
        """The longest kept first."""
        self._kept_bytes = 0

    def reserve(self, size: int) -> Block:
        limit = size + size // 8
        fitting = [block for block in self._kept if size <= block.size <= limit]
        if fitting:
            block = min(fitting, key=_tightness)
            del self._kept[block]
            self._kept_bytes -= block.size
            return _used(block)
        while self._kept and self.usage.reserved + size > self.usage.reserved_high:
            self._drop_oldest()
        return _used(_whole_page(self, self._source, size))

    def release(self, block: Block) -> None:
        block.used = False
        block.page.used_blocks = 0
        self._kept[block] = None
        self._kept_bytes += block.size
        while self._kept_bytes > max(KEPT_BYTES, self.usage.block_bytes):
            self._drop_oldest()

    def cleanup(self) -> int:
        returned = self._kept_bytes
        while self._kept:
            self._drop_oldest()
        return returned

    def report(self) -> PoolReport:
        return self.usage.report(self.name, PoolKind.DIRECT, 0)

    def _drop_oldest(self) -> None:
        block = next(iter(self._kept))
        del self._kept[block]
        self._kept_bytes -= _give_back(block, self._source)


def _whole_page(pool: Pool, source: PageSource, size: int) -> Block:
    page = source.create(size)
    pool.usage.add_page(page.size)
    return Block(page, 0, page.size, pool)


def _used(block: Block) -> Block:
    block.used = True
    block.page.used_blocks = 1
    return block


def _give_back(block: Block, source: PageSource) -> int:
    block.pool.usage.drop_page(block.size)
    source.destroy(block.page)
    return block.size


def _tightness(block: Block) -> tuple[int, int]:
    """The smallest that fits, and of those the first on the oldest page: new pages stay empty."""
    return block.size, block.place


def _bin_of(size: int) -> int:
    """Eight bins to an octave: the top four bits of the size."""
    octave = size.bit_length() - 1 - _SUBBINS_LOG2
    return (octave << _SUBBINS_LOG2) + (size >> octave) - _SUBBINS
