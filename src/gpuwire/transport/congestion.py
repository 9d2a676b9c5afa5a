"""Congestion control and pacing of the aioquic engine.

NewReno as aioquic has it, plus what a path's owner wants to know (true round trips, losses) and
three corrections: a lost size probe says nothing about congestion (RFC 9000 section 14.4), a near
path needs no large window, and a pacer must not demand finer timing than an event loop has.
"""

from __future__ import annotations

from collections.abc import Iterable

from aioquic.quic.congestion.reno import RenoCongestionControl
from aioquic.quic.packet_builder import QuicSentPacket
from aioquic.quic.recovery import QuicPacketPacer

from gpuwire.transport.path import RoundTrip

TIMER_GRANULARITY_SECONDS = 0.002
"""epoll rounds a wait up to whole milliseconds, so a pacing gap of 0.1 ms becomes 1 to 2 ms."""

SMOOTHING = 1 / 8
"""RFC 9002 section 5.3."""

NEAR_SECONDS = 0.005
NEAR_WINDOW_BYTES = 1024 * 1024
"""On a path with a round trip below `NEAR_SECONDS` this much under way already carries 200 MB/s;
Reno, which stops at a loss only, goes on to megabytes that just stand in the receiver's socket. On
loopback with 16,000-byte datagrams, on a busy 2-core machine, a small round trip beside an upload
took 17 to 37 ms without this bound and 2 to 13 ms with it, at rates that differed no more than the
machine's load did."""


class MeasuringReno(RenoCongestionControl):
    """NewReno that also keeps the path's numbers."""

    def __init__(self, *, max_datagram_size: int) -> None:
        super().__init__(max_datagram_size=max_datagram_size)
        self.packets_lost = 0
        self._minimum: float | None = None
        self._latest: float | None = None
        self._smoothed: float | None = None

    @property
    def round_trip(self) -> RoundTrip:
        """aioquic's own estimate never goes below 1 ms, which hides a local network."""
        return RoundTrip(self._minimum, self._latest, self._smoothed)

    def set_datagram_bytes(self, size: int) -> None:
        """Counts in datagrams of `size` from now on; two may always be under way (RFC 9002 7.2)."""
        self._max_datagram_size = size
        self.congestion_window = max(self.congestion_window, 2 * size)

    def on_rtt_measurement(self, *, now: float, rtt: float) -> None:
        super().on_rtt_measurement(now=now, rtt=rtt)
        self._latest = rtt
        self._minimum = rtt if self._minimum is None else min(self._minimum, rtt)
        if self._minimum < NEAR_SECONDS:
            self.congestion_window = min(self.congestion_window, NEAR_WINDOW_BYTES)
        previous = rtt if self._smoothed is None else self._smoothed
        self._smoothed = previous + SMOOTHING * (rtt - previous)

    def on_packets_lost(self, *, now: float, packets: Iterable[QuicSentPacket]) -> None:
        probes: list[QuicSentPacket] = []
        lost: list[QuicSentPacket] = []
        for packet in packets:
            (probes if packet.sent_bytes > self._max_datagram_size else lost).append(packet)
        if probes:
            self.on_packets_expired(packets=probes)
        if lost:
            self.packets_lost += len(lost)
            super().on_packets_lost(now=now, packets=lost)


class CoarsePacer(QuicPacketPacer):
    """Lets a burst last as long as the timer that would follow it."""

    def set_datagram_bytes(self, size: int) -> None:
        self._max_datagram_size = size

    def update_rate(self, congestion_window: int, smoothed_rtt: float) -> None:
        super().update_rate(congestion_window, smoothed_rtt)
        self.bucket_max = max(self.bucket_max, TIMER_GRANULARITY_SECONDS)
