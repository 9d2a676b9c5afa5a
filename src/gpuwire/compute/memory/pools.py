"""The pools that serve handles: what they have in common, persistent buckets, direct allocation."""

from __future__ import annotations

from typing import Protocol

from gpuwire.compute.memory.pages import Block, PageSource
from gpuwire.compute.memory.report import PoolKind, PoolReport

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
            block = min(fitting, key=tightness)
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


def tightness(block: Block) -> tuple[int, int]:
    """The smallest that fits, and of those the first on the oldest page: new pages stay empty."""
    return block.size, block.place
