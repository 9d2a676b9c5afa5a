"""The probe: nothing unless somebody watches, and never more than there is room for."""

from __future__ import annotations

from gpuwire.telemetry.event_block import unpacked
from gpuwire.telemetry.probe import Probe
from gpuwire.telemetry.snapshots import NO_EVENTS, EventName

NAME = EventName("matmul", "matmul", "float32[2, 3]", 24)


def test_a_watch_ends_when_nobody_renews_it() -> None:
    probe = Probe(4)
    assert not probe.watched
    assert not probe.is_open
    probe.watch(now=10.0, seconds=2.0)
    probe.watch(now=11.0, seconds=2.0)
    assert not probe.expire(now=12.5)
    assert probe.watched
    assert probe.expire(now=13.0)
    assert not probe.watched
    assert not probe.is_open
    assert not probe.expire(now=14.0), "it ends once"


def test_events_beyond_the_room_are_counted_and_not_kept() -> None:
    probe = Probe(2)
    probe.watch(now=0.0, seconds=1.0)
    for number in range(5):
        if probe.is_open:
            probe.add(float(number), 0.0, 0.0, 1, 1, NAME)
    probe.watch(now=0.5, seconds=1.0)
    assert not probe.is_open, "to be watched again makes no room"
    events, dropped = probe.take(5)
    assert [event.moment for event in unpacked(events)] == [0.0, 1.0]
    assert dropped == 3
    assert probe.is_open, "what was taken makes room"
    assert probe.take(0) == (NO_EVENTS, 0)


def test_what_nobody_took_is_gone_with_the_watch() -> None:
    probe = Probe(2)
    probe.watch(now=0.0, seconds=1.0)
    probe.add(1.0, 0.0, 0.0, 1, 1, NAME)
    probe.expire(now=1.0)
    assert probe.take(0) == (NO_EVENTS, 0)
    assert not probe.is_open
