"""What is known of the way to the peer."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

from gpuwire.telemetry.quantities import in_bytes, in_seconds
from gpuwire.transport.offload import OffloadInfo
from gpuwire.transport.windows import FlowWindows

SMOOTHING = 1 / 8
"""RFC 9002 section 5.3."""

JITTER_SMOOTHING = 1 / 16
"""RFC 3550 section 6.4.1."""

SAMPLES_KEPT = 127


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Round trips as measured from acknowledgements, in seconds; None before the first one."""

    minimum: float | None
    latest: float | None
    smoothed: float | None
    median: float | None = None
    """Of the last 127."""
    jitter: float | None = None
    """Mean difference of neighbours, smoothed as in RFC 3550."""


class RoundTrips:
    """Collects samples. aioquic's own estimate never goes below 1 ms, which hides a local
    network."""

    def __init__(self) -> None:
        self.minimum: float | None = None
        self.latest: float | None = None
        self.smoothed: float | None = None
        self._jitter = 0.0
        self._samples: deque[float] = deque(maxlen=SAMPLES_KEPT)

    def add(self, seconds: float) -> None:
        """One more round trip."""
        if self.minimum is None or self.smoothed is None or self.latest is None:
            self.minimum = self.smoothed = self.latest = seconds
        else:
            self.minimum = min(self.minimum, seconds)
            self.smoothed += SMOOTHING * (seconds - self.smoothed)
            self._jitter += JITTER_SMOOTHING * (abs(seconds - self.latest) - self._jitter)
            self.latest = seconds
        self._samples.append(seconds)

    @property
    def recent(self) -> float | None:
        """The shortest of the last 127."""
        return min(self._samples, default=None)

    @property
    def summary(self) -> RoundTrip:
        """All of it now."""
        if not self._samples:
            return RoundTrip(None, None, None)
        median = statistics.median(self._samples)
        return RoundTrip(self.minimum, self.latest, self.smoothed, median, self._jitter)


@dataclass(frozen=True, slots=True)
class PathInfo:
    """A snapshot of a connection's path."""

    host: str
    """The peer's address as text, without brackets."""
    port: int
    engine: str
    """aioquic or qh3."""
    datagram_bytes: int
    """Size of the largest datagram that is sent now."""
    rtt_seconds: RoundTrip
    bytes_sent: int
    """UDP payload, both counts."""
    bytes_received: int
    congestion_window_bytes: int
    windows: FlowWindows
    """What this side lets the peer send beyond what the program has read."""
    packets_lost: int
    """Packets declared lost since the start, and sent again."""
    packets_sent: int
    datagram_search: str
    """How `datagram_bytes` was found, in words."""
    offload: OffloadInfo
    """UDP segmentation offload on this path."""
    resumptions: int = 0
    """How often the session lost a link and went on over another; this one is the last of them."""

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def facts(self) -> list[tuple[str, str]]:
        """Names and values, for people."""
        trip = self.rtt_seconds
        found = [("address", self.address), ("engine", self.engine)]
        if trip.minimum is not None and trip.median is not None and trip.jitter is not None:
            found.append(
                (
                    "QUIC's round trip",
                    f"min {in_seconds(trip.minimum)}, median {in_seconds(trip.median)}, "
                    f"jitter {in_seconds(trip.jitter)}",
                )
            )
        return [
            *found,
            ("congestion window", in_bytes(self.congestion_window_bytes)),
            (
                "receive windows",
                f"{in_bytes(self.windows.stream_bytes)} a stream, "
                f"{in_bytes(self.windows.connection_bytes)} in all",
            ),
            ("loss", f"{self.packets_lost:,} of {self.packets_sent:,} packets, {self.loss:.2%}"),
            ("datagrams", f"{self.datagram_bytes:,} bytes: {self.datagram_search}"),
            ("offload", f"{self.offload.state}: {self.offload.reason}".removesuffix(": ")),
            ("sent", f"{in_bytes(self.bytes_sent)} in datagrams"),
            ("received", f"{in_bytes(self.bytes_received)} in datagrams"),
            ("resumptions", str(self.resumptions)),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.facts())

    @property
    def loss(self) -> float:
        """Packets lost over packets sent."""
        return self.packets_lost / self.packets_sent if self.packets_sent else 0.0
