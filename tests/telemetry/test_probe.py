"""The probe: nothing unless somebody watches, and never more than there is room for."""

from __future__ import annotations

from gpuwire.telemetry.probe import Probe


def test_a_watch_ends_when_nobody_renews_it() -> None:
    probe: Probe[int] = Probe(4)
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
    probe: Probe[int] = Probe(2)
    probe.watch(now=0.0, seconds=1.0)
    for number in range(5):
        if probe.is_open:
            probe.add(number)
    probe.watch(now=0.5, seconds=1.0)
    assert not probe.is_open, "to be watched again makes no room"
    assert probe.take(5) == ((0, 1), 3)
    assert probe.is_open, "what was taken makes room"
    assert probe.take(0) == ((), 0)


def test_what_nobody_took_is_gone_with_the_watch() -> None:
    probe: Probe[int] = Probe(2)
    probe.watch(now=0.0, seconds=1.0)
    probe.add(1)
    probe.expire(now=1.0)
    assert probe.take(0) == ((), 0)
    assert not probe.is_open
