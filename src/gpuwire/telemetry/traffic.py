"""The traffic aggregator: rates from counters, over a ring of intervals.

Pure: the caller says what time it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gpuwire.telemetry.snapshots import Count, Totals, TrafficPoint

KEPT_POINTS = 240
"""One minute at the interval of 250 ms."""


class Traffic:
    """The last minute of a server's traffic."""

    def __init__(self, kept: int = KEPT_POINTS) -> None:
        self._points: deque[tuple[int, TrafficPoint]] = deque(maxlen=kept)
        self._added = 0
        self._before: tuple[float, Totals, int] | None = None

    def add(
        self, moment: float, totals: Totals, saved_bytes: int, ops: Iterable[Count] = ()
    ) -> None:
        """The counters as of now, and the operations since the call before. The first call only
        says where counting begins; a counter that went back (its device host is a new one) counts
        from 0."""
        before, self._before = self._before, (moment, totals, saved_bytes)
        if before is None or moment <= before[0]:
            return
        seconds = moment - before[0]
        old, saved = before[1], saved_bytes - before[2]
        if saved < 0:
            saved = saved_bytes
        frames = totals.frames_in + totals.frames_out - old.frames_in - old.frames_out
        point = TrafficPoint(
            moment,
            frames / seconds,
            (totals.tasks - old.tasks) / seconds,
            (totals.bytes_in - old.bytes_in) / seconds,
            (totals.bytes_out - old.bytes_out) / seconds,
            saved / seconds,
            added_up(ops),
        )
        self._added += 1
        self._points.append((self._added, point))

    def pause(self) -> None:
        """Nobody watches: the time until the next `add` makes no point."""
        self._before = None

    @property
    def last(self) -> int:
        """The number of the newest point."""
        return self._added

    def since(self, number: int) -> tuple[TrafficPoint, ...]:
        """The points after the one of that number, as far as they are kept."""
        return tuple(point for n, point in self._points if n > number)


def added_up(counts: Iterable[Count]) -> tuple[Count, ...]:
    """One count for each kind, in order of first appearance."""
    sums: dict[str, int] = {}
    for count in counts:
        sums[count.kind] = sums.get(count.kind, 0) + count.count
    return tuple(Count(kind, number) for kind, number in sums.items())
