"""Flow-control windows: they grow to what the path needs, and never for who does not read."""

from __future__ import annotations

import pytest

from gpuwire.transport import Identity, TransportOptions
from gpuwire.transport.windows import (
    FIRST_CONNECTION_WINDOW_BYTES,
    FIRST_STREAM_WINDOW_BYTES,
    GrowingWindow,
    Mark,
)
from relay import LinkProfile
from simulated_link import Simulation

MIB = 1 << 20
OPTIONS = TransportOptions(datagram_bytes=8_952)
FAST_LINE = LinkProfile(delay_seconds=0.025, bytes_per_second=100e6, queue_bytes=5_000_000)


def test_a_half_read_within_a_round_trip_doubles_it() -> None:
    window, mark = GrowingWindow(first=100, most=1_000), Mark(0.0)
    assert not window.announced(mark, 25, 0.01, 0.05, used_up=False), "not a half yet"
    assert window.announced(mark, 50, 0.04, 0.05, used_up=False)
    assert window.size == 200
    assert not window.announced(mark, 150, 0.10, 0.05, used_up=False), "slower than that"
    assert window.size == 200


def test_a_peer_that_was_stopped_by_it_doubles_it_unless_the_reader_was_slow() -> None:
    window, mark = GrowingWindow(first=100, most=1_000), Mark(0.0)
    assert window.announced(mark, 25, 0.1, 0.05, used_up=True)
    assert not window.announced(mark, 75, 0.5, 0.05, used_up=True)


def test_it_never_exceeds_its_bound_and_begins_within_it() -> None:
    window, mark = GrowingWindow(first=100, most=300), Mark(0.0)
    for tick in range(1, 9):
        window.announced(mark, tick * 1_000, tick * 0.01, 0.05, used_up=True)
    assert window.size == 300
    assert GrowingWindow(first=100, most=50).size == 50


def test_without_a_round_trip_it_does_not_grow() -> None:
    window, mark = GrowingWindow(first=100, most=1_000), Mark(0.0)
    assert not window.announced(mark, 100, 0.0, None, used_up=True)


def test_a_fast_long_line_gets_the_windows_it_needs(identity: Identity) -> None:
    """800 Mb/s over 50 ms hold 5 MB; with the first window 21 MB/s would pass."""
    simulation = Simulation(identity, OPTIONS, FAST_LINE)
    simulation.upload(24 * MIB)
    windows = simulation.server.flow_windows
    assert windows.stream_bytes >= 8 * MIB
    assert windows.connection_bytes <= OPTIONS.connection_window_bytes
    assert 48 * MIB / simulation.upload(48 * MIB) >= 60e6


def test_a_near_path_keeps_its_first_windows(identity: Identity) -> None:
    near = LinkProfile(delay_seconds=0.0002, bytes_per_second=300e6, queue_bytes=2_000_000)
    simulation = Simulation(identity, OPTIONS, near)
    simulation.upload(16 * MIB)
    assert simulation.server.flow_windows.stream_bytes == FIRST_STREAM_WINDOW_BYTES


@pytest.mark.parametrize("streams", [1, 8])
def test_who_does_not_read_is_sent_the_first_windows_and_no_more(
    identity: Identity, streams: int
) -> None:
    simulation = Simulation(identity, OPTIONS, FAST_LINE)
    simulation.read_bytes_per_second = 0
    for _ in range(streams):
        stream = simulation.client.open_stream(bidirectional=False)
        simulation.client.send(stream, memoryview(bytes(8 * MIB)), end=True)
    simulation.run(lambda: simulation.now > 3.0)
    most = min(streams * FIRST_STREAM_WINDOW_BYTES, FIRST_CONNECTION_WINDOW_BYTES)
    assert most * 15 // 16 <= simulation.server.unconsumed_bytes <= most
    assert simulation.server.flow_windows.stream_bytes == FIRST_STREAM_WINDOW_BYTES


def test_a_slow_reader_is_not_sent_more(identity: Identity) -> None:
    """8 MB/s are read of a line of 100: the windows that hold 50 ms of that are enough."""
    simulation = Simulation(identity, OPTIONS, FAST_LINE)
    simulation.read_bytes_per_second = 8e6
    simulation.upload(12 * MIB)
    assert simulation.server.flow_windows.stream_bytes <= 2 * FIRST_STREAM_WINDOW_BYTES
