"""How far a sender may be ahead of the program that reads: windows that grow with the path.

A window must hold what the path does, its rate times its round trip, and after a loss twice that:
what comes behind the hole cannot be read. Else it is the limit. But it is memory that a reader who
stops reading is made to hold. So it begins small, and doubles when a round trip brings more than
half of it, or when the peer had used it up although the program had read all it could. Bytes that
nobody reads never make it grow, nor does a fast peer of a slow reader.

Pure: the engine says what was read, and when.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.transport.options import MIB

FIRST_STREAM_WINDOW_BYTES = MIB
FIRST_CONNECTION_WINDOW_BYTES = 2 * MIB
"""Where windows begin. A stream always begins at the first, whatever others have learned since: the
peer is told more as soon as the stream is known, which at 50 ms is in time for 160 Mb/s."""

HELD_BACK_ROUND_TRIPS = 4
"""Room is announced by quarters of a window. A peer that had used it up was stopped by it; but if a
quarter takes longer than this to be read, then the reader is what is slow."""

USED_UP_BYTES = 64 * 1024
"""A sender ends so near to the limit: a short rest waits for a full packet."""


@dataclass(frozen=True, slots=True)
class FlowWindows:
    """What this side lets its peer send beyond what the program has read, now."""

    stream_bytes: int
    connection_bytes: int


class Mark:
    """What is remembered of a window's use: when room was announced last, and since when and from
    which total on a half of it is being timed."""

    __slots__ = ("announced_at", "since", "total")

    def __init__(self, now: float) -> None:
        self.announced_at = self.since = now
        self.total = 0


class GrowingWindow:
    """A window's size; streams that learn together share one, each with a `Mark` of its own."""

    __slots__ = ("most", "size")

    def __init__(self, *, first: int, most: int) -> None:
        self.size = min(first, most)
        self.most = most

    def announced(
        self, mark: Mark, total: int, now: float, round_trip: float | None, *, used_up: bool
    ) -> bool:
        """The peer is being told of room: the program has read `total` bytes. `used_up`: the peer
        had sent all it was let, and nothing of it waits to be read. Whether the window has grown;
        while `round_trip` is not known it does not."""
        trip = 0.0 if round_trip is None else round_trip
        is_limit = used_up and now - mark.announced_at < HELD_BACK_ROUND_TRIPS * trip
        mark.announced_at = now
        if 2 * (total - mark.total) >= self.size:
            is_limit = is_limit or now - mark.since < trip
            mark.since, mark.total = now, total
        if not is_limit or self.size >= self.most:
            return False
        self.size = min(2 * self.size, self.most)
        return True

    def grow_to(self, size: int) -> None:
        """At least `size`, if that is allowed."""
        self.size = max(self.size, min(size, self.most))
