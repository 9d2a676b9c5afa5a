"""What a session has sent and received."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the session was opened. Bytes are those of messages and bulk streams; what QUIC
    adds is in `Device.path`, which counts datagrams."""

    frames_sent: int
    tasks_sent: int
    """Drops of tensors included: one task for all that died while a batch was open."""
    bytes_sent: int
    bytes_received: int
    replies_pending: int
    """Reads and syncs whose answer is yet to come."""
    rtt_seconds: float | None
    """The smoothed round trip as QUIC measures it; None before the first measurement."""
    datagram_bytes: int
    """The size of a full datagram on the present path."""
