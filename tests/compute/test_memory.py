"""Pools and their manager: pure bookkeeping over pages of no buffer."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.compute.memory.manager import KIB, MIB, AllocationMode, MemoryManager
from gpuwire.compute.memory.pages import Page
from gpuwire.compute.memory.report import PoolKind
from gpuwire.compute.memory.sliced_pool import SlicedPool
from gpuwire.config import LoggerConfig, MemoryConfig
from gpuwire.errors import ArgumentError, OutOfMemory
from gpuwire.telemetry.logs import disabled_logger, open_logger


class Pages:
    """Pages without buffers, and what became of them."""

    def __init__(self, limit: int | None = None) -> None:
        self.live: dict[int, Page] = {}
        self.reserved = self.high = 0
        self.limit = limit
        self._numbers = 0

    def create(self, size: int) -> Page:
        if self.limit is not None and self.reserved + size > self.limit:
            raise OutOfMemory("full", wanted=size)
        self._numbers += 1
        page = self.live[self._numbers] = Page(self._numbers, size, None, self)
        self.reserved += size
        self.high = max(self.high, self.reserved)
        return page

    def destroy(self, page: Page) -> None:
        del self.live[page.number]
        self.reserved -= page.size


def manager(pages, policy="enabled", logger=None):
    return MemoryManager(
        pages,
        alignment=64,
        config=MemoryConfig(persistent_memory=policy),
        logger=logger or disabled_logger("memory"),
        owner=None,
    )


def disjoint(slices):
    by_page = {}
    for held in slices:
        by_page.setdefault(held.page.number, []).append((held.offset, held.offset + held.capacity))
    for spans in by_page.values():
        spans.sort()
        for (_, end), (start, _) in zip(spans, spans[1:], strict=False):  # noqa: RUF007
            if start < end:
                return False
    return True


def test_100_000_random_allocations_neither_overlap_nor_fragment_without_bound():
    pages, chance = Pages(), random.Random(7)
    memory = manager(pages)
    held, live, high = [], 0, 0
    for step in range(100_000):
        while held and (live > 256 * MIB or chance.random() < 0.45):
            index = chance.randrange(len(held))
            held[index], held[-1] = held[-1], held[index]
            live -= held.pop().size
        held.append(memory.allocate(int(2 ** chance.uniform(4, 23))))
        live += held[-1].size
        high = max(high, live)
        if step % 10_000 == 0:
            assert disjoint(held)
    report = memory.report()
    assert report.bytes_in_use == live == sum(one.size for one in held)
    assert report.bytes_reserved == pages.reserved == sum(p.size for p in pages.live.values())
    assert pages.high <= 1.5 * high
    held.clear()
    memory.cleanup()
    assert pages.reserved == 0
    assert memory.report().bytes_reserved == 0


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40_000)), max_size=200))
def test_the_sliced_pool_keeps_blocks_apart_and_merges_all_of_them_back(steps):
    pages = Pages()
    pool = SlicedPool("test", pages, max_slice=64 * KIB, min_page=64 * KIB, max_page=256 * KIB)
    held = []
    for allocates, number in steps:
        if allocates or not held:
            size = (number + 63) & -64
            block = pool.reserve(size)
            assert block.size == size
            assert block.used
            for other in held:
                assert (
                    other.page is not block.page
                    or other.offset + other.size <= block.offset
                    or block.offset + block.size <= other.offset
                )
            held.append(block)
        else:
            pool.release(held.pop(number % len(held)))
    for block in held:
        pool.release(block)
    pool.cleanup()
    assert not pages.live


def test_a_loop_settles_on_a_few_sets_of_places():
    """Each step makes its values anew and lets go of the old ones, in an order of its own."""
    memory = manager(Pages())
    sizes = [4096, 4096, 1024, 4096, 512, 1024, 64]
    values = [memory.allocate(size) for size in sizes]
    chance = random.Random(1)
    seen = []
    for _ in range(60):
        scratch = [memory.allocate(size) for size in (8192, 4096, 64)]
        values, old = [memory.allocate(size) for size in sizes], values
        seen.append(tuple(used.block.place for used in (*old, *scratch, *values)))
        chance.shuffle(old)
        chance.shuffle(scratch)
        for group in (old, scratch):
            while group:
                group.pop()
    assert len(set(seen[20:])) <= 3


def test_a_repeating_program_gets_its_places_again():
    memory = manager(Pages())

    def places():
        slices = [memory.allocate(size) for size in (100, 200, 5000, 200)]
        return [(one.page.number, one.offset) for one in slices]

    places()
    assert Counter(places()) == Counter(places())


def test_a_small_program_reserves_little():
    pages = Pages()
    memory = manager(pages)
    kept = memory.allocate(16)
    assert pages.reserved <= 256 * KIB
    del kept


def test_slices_are_padded_to_the_alignment_and_report_what_was_asked_for():
    memory = manager(Pages())
    held = memory.allocate(100)
    assert (held.size, held.capacity, held.offset % 64) == (100, 128, 0)
    small = next(pool for pool in memory.report().pools if pool.name == "small")
    assert (small.bytes_in_use, small.bytes_padding, small.slices) == (100, 28, 1)


def test_large_allocations_are_direct_and_their_pages_kept_for_like_ones():
    pages = Pages()
    memory = manager(pages)
    number = memory.allocate(100 * MIB).page.number
    assert memory.allocate(90 * MIB).page.number == number
    assert memory.allocate(50 * MIB).page.number != number
    assert pages.reserved <= 100 * MIB
    memory.cleanup()
    assert pages.reserved == 0
    direct = next(pool for pool in memory.report().pools if pool.kind is PoolKind.DIRECT)
    assert direct.high_water_reserved == 100 * MIB


def test_persistent_buckets_keep_their_exact_size_until_a_cleanup():
    pages = Pages()
    memory = manager(pages)
    memory.mode = AllocationMode.PERSISTENT
    number = memory.allocate(1000).page.number
    assert memory.allocate(1000).page.number == number
    assert memory.allocate(1064).page.number != number
    memory.mode = AllocationMode.AUTOMATIC
    assert memory.allocate(1000).page.number != number
    memory.cleanup()
    assert pages.reserved == 0


def test_size_match_serves_automatic_allocations_from_existing_buckets():
    memory = manager(Pages(), "size-match")
    memory.mode = AllocationMode.PERSISTENT
    number = memory.allocate(1000).page.number
    memory.mode = AllocationMode.AUTOMATIC
    assert memory.allocate(1000).page.number == number
    assert memory.allocate(5000).block.pool.name == "small"


def test_disabled_and_enforced_persistence_overrule_the_mode():
    never = manager(Pages(), "disabled")
    never.mode = AllocationMode.PERSISTENT
    assert never.allocate(1000).block.pool.name == "small"
    always = manager(Pages(), "enforced")
    assert always.allocate(1000).block.pool.name == "persistent"


@pytest.mark.parametrize("size", [0, -5])
def test_no_bytes_are_refused(size):
    with pytest.raises(ArgumentError, match="at least 1"):
        manager(Pages()).allocate(size)


def test_a_refused_page_leaves_the_books_right():
    pages = Pages(limit=8 * MIB)
    memory = manager(pages)
    held = memory.allocate(MIB)
    with pytest.raises(OutOfMemory):
        memory.allocate(64 * MIB)
    assert memory.report().bytes_in_use == MIB
    del held


def test_the_report_lists_pools_in_the_order_in_which_they_are_tried():
    names = [pool.name for pool in manager(Pages()).report().pools]
    assert names == ["persistent", "small", "medium", "direct"]


def test_basic_logs_cleanups_and_full_each_allocation(tmp_path):
    path = tmp_path / "log"
    logger = open_logger(LoggerConfig(file=path, level="full"), "memory")
    memory = manager(Pages(), logger=logger)
    memory.allocate(1234)
    memory.cleanup()
    text = path.read_text()
    assert "allocated 1234 bytes in small" in text
    assert "gave back 262144 bytes" in text


def test_a_servers_streams_switch_modes_and_clean_up_each_for_itself(fresh_work):
    server = fresh_work.server
    server.allocation_mode(AllocationMode.PERSISTENT, 1)
    handles = [fresh_work.put(np.zeros(1000, np.uint8), stream) for stream in (0, 1)]
    pools = [held.slice.block.pool.name for held in handles]
    assert pools == ["small", "persistent"]
    handles.clear()
    for stream in (0, 1):
        server.sync((), stream).wait(60)
    assert server.memory_cleanup(1) >= 1024
    persistent = server.memory_report(1).pools[0]
    assert (persistent.kind, persistent.bytes_reserved) == (PoolKind.PERSISTENT, 0)
    assert persistent.high_water_reserved == 1024
    assert server.memory_report(0).bytes_reserved > 0
    server.memory_cleanup(0)
    assert server.memory_report(0).bytes_reserved == 0
