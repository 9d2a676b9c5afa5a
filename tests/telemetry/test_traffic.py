"""Rates from counters, at given moments."""

from __future__ import annotations

from gpuwire.telemetry.snapshots import Count, Totals
from gpuwire.telemetry.traffic import Traffic, added_up


def test_rates_are_per_second_of_the_interval() -> None:
    traffic = Traffic()
    traffic.add(10.0, Totals(), 0)
    assert traffic.since(0) == (), "one reading is no rate"
    traffic.add(10.5, Totals(frames_in=3, frames_out=2, tasks=40, bytes_in=1000), 50)
    (point,) = traffic.since(0)
    assert (point.frames, point.tasks, point.bytes_in, point.saved_bytes) == (10, 80, 2000, 100)


def test_a_viewer_gets_only_what_it_has_not_seen() -> None:
    traffic = Traffic(kept=3)
    for second in range(6):
        traffic.add(float(second), Totals(tasks=second), 0)
    assert [point.moment for point in traffic.since(0)] == [3.0, 4.0, 5.0]
    assert [point.moment for point in traffic.since(traffic.last - 1)] == [5.0]
    assert traffic.since(traffic.last) == ()


def test_time_in_which_nobody_watched_makes_no_point() -> None:
    traffic = Traffic()
    traffic.add(0.0, Totals(), 0)
    traffic.pause()
    traffic.add(100.0, Totals(tasks=1_000_000), 0)
    assert traffic.since(0) == ()


def test_a_new_device_host_counts_from_nothing() -> None:
    traffic = Traffic()
    traffic.add(0.0, Totals(), 5000)
    traffic.add(1.0, Totals(), 70)
    assert traffic.since(0)[0].saved_bytes == 70


def test_counts_of_one_kind_are_added_up() -> None:
    counts = (Count("matmul", 1), Count("read", 2), Count("matmul", 3))
    assert added_up(counts) == (Count("matmul", 4), Count("read", 2))
