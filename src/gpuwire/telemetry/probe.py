"""The probe: events for whoever watches, at no cost to anybody else.

While nobody watches, what would make an event makes one attribute test (20 ns) and goes on. While
somebody does, at most `capacity` events are built until they are taken; for what happens beyond
that the test says no again, so a busy device is slowed by a bounded number of events a second.
"""

from __future__ import annotations

from gpuwire.telemetry.event_block import EventRows
from gpuwire.telemetry.snapshots import EventBlock, EventName


class Probe:
    """One source of events. Used from one thread. The caller asks before it builds:
    `if probe.is_open: probe.add(…)`."""

    __slots__ = ("_capacity", "_count", "_events", "_until", "is_open", "watched")

    def __init__(self, capacity: int) -> None:
        self.watched = False
        """Whether anybody wants events."""
        self.is_open = False
        """Whether there also is room for one."""
        self._capacity = capacity
        self._events = EventRows()
        self._count = 0
        self._until = 0.0

    def watch(self, now: float, seconds: float) -> None:
        """Somebody watches for so long from now; who goes on watching says so again."""
        self._until = max(self._until, now + seconds)
        self.watched = True
        self.is_open = self._count < self._capacity

    def expire(self, now: float) -> bool:
        """Ends the watch if its time is over, and drops what nobody took. Whether it ended."""
        if not self.watched or now < self._until:
            return False
        self.watched = self.is_open = False
        self._events.take()
        self._count = 0
        return True

    def add(
        self,
        moment: float,
        waited: float,
        seconds: float,
        frame: int,
        session: int,
        name: EventName,
    ) -> None:
        """Keeps an event for which there is room: see `event_block`."""
        self._count = self._events.add(moment, waited, seconds, frame, session, name)
        self.is_open = self._count < self._capacity

    def take(self, happened: int) -> tuple[EventBlock, int]:
        """What has come since the last call; and of all that `happened` since, how much was
        dropped for lack of room."""
        events, count = self._events.take()
        self._count = 0
        self.is_open = self.watched
        return events, max(0, happened - count)
