"""What the memory manager holds, as typed records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class PoolKind(Enum):
    """The four kinds of pool."""

    SLICED = "sliced"
    EXCLUSIVE = "exclusive"
    PERSISTENT = "persistent"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class PoolReport:
    """One pool. Sizes in bytes."""

    name: str
    kind: PoolKind
    page_bytes: int
    """The size of its largest page; for exclusive pools of the largest buffer."""
    max_slice_bytes: int
    """The largest request it serves; 0 where there is no bound."""
    pages: int
    slices: int
    """Handed out now."""
    bytes_in_use: int
    """What the holders asked for, padding not counted."""
    bytes_reserved: int
    """The sum of its pages."""
    bytes_padding: int
    """Handed out beyond what was asked for: alignment."""
    high_water_in_use: int
    high_water_reserved: int


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """All pools in the order in which a request tries them, and the totals."""

    pools: tuple[PoolReport, ...]
    bytes_in_use: int
    bytes_reserved: int

    @classmethod
    def of(cls, pools: tuple[PoolReport, ...]) -> MemoryReport:
        """The report over these pools."""
        return cls(
            pools,
            sum(pool.bytes_in_use for pool in pools),
            sum(pool.bytes_reserved for pool in pools),
        )


def added_up(pools: Iterable[PoolReport]) -> tuple[PoolReport, ...]:
    """One pool for each name, in order of first appearance. High waters are added up too, so they
    are too high where streams had theirs at different times."""
    sums: dict[str, PoolReport] = {}
    for pool in pools:
        before = sums.get(pool.name)
        sums[pool.name] = pool if before is None else _sum(before, pool)
    return tuple(sums.values())


def _sum(one: PoolReport, other: PoolReport) -> PoolReport:
    return PoolReport(
        one.name,
        one.kind,
        max(one.page_bytes, other.page_bytes),
        max(one.max_slice_bytes, other.max_slice_bytes),
        one.pages + other.pages,
        one.slices + other.slices,
        one.bytes_in_use + other.bytes_in_use,
        one.bytes_reserved + other.bytes_reserved,
        one.bytes_padding + other.bytes_padding,
        one.high_water_in_use + other.high_water_in_use,
        one.high_water_reserved + other.high_water_reserved,
    )
