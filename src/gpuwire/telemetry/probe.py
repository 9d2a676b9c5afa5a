"""The probe: events for whoever watches, at no cost to anybody else.

While nobody watches, what would make an event makes one attribute test (20 ns) and goes on. While
somebody does, at most `capacity` events are kept until they are taken; those for which there is no
room are counted and never built, so a busy device is slowed by a bounded number of events.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Event = TypeVar("Event")


class Probe(Generic[Event]):
    """One source of events. Used from one thread.

    The caller asks before it builds: `if probe.watched: …; if probe.has_room(): probe.add(…)`.
    """

    __slots__ = ("_capacity", "_dropped", "_events", "_until", "watched")

    def __init__(self, capacity: int) -> None:
        self.watched = False
        """Whether anybody wants events."""
        self._capacity = capacity
        self._events: list[Event] = []
        self._dropped = 0
        self._until = 0.0

    def watch(self, now: float, seconds: float) -> None:
        """Somebody watches for so long from now; who goes on watching says so again."""
        self._until = max(self._until, now + seconds)
        self.watched = True

    def expire(self, now: float) -> bool:
        """Ends the watch if its time is over, and drops what nobody took. Whether it ended."""
        if not self.watched or now < self._until:
            return False
        self.watched = False
        self._events, self._dropped = [], 0
        return True

    def has_room(self) -> bool:
        """Whether an event may be built; if not, it counts as dropped."""
        if len(self._events) < self._capacity:
            return True
        self._dropped += 1
        return False

    def add(self, event: Event) -> None:
        """Keeps an event for which there is room."""
        self._events.append(event)

    def take(self) -> tuple[tuple[Event, ...], int]:
        """What has come since the last call, and how many were dropped."""
        events, dropped = tuple(self._events), self._dropped
        self._events, self._dropped = [], 0
        return events, dropped
