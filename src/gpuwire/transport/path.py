"""What is known of the way to the peer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Round trips as measured from acknowledgements, in seconds; None before the first one."""

    minimum: float | None
    latest: float | None
    smoothed: float | None


@dataclass(frozen=True, slots=True)
class PathInfo:
    """A snapshot of a connection's path."""

    host: str
    """The peer's address as text, without brackets."""
    port: int
    engine: str
    """aioquic."""
    datagram_bytes: int
    """Size of the largest datagram that is sent now."""
    rtt_seconds: RoundTrip
    bytes_sent: int
    """UDP payload, both counts."""
    bytes_received: int
    congestion_window_bytes: int
    packets_lost: int
    """Packets declared lost since the start, and sent again."""

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
