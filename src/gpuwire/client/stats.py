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
    graphs_registered: int
    """Op-graphs that the server was told."""
    graph_executions: int
    """Runs of them, the first ones included."""
    graph_misses: int
    """How often the server had given one up and was told again."""
    baseline_bytes: int
    """What the runs would have been with the whole graph and all its bindings sent each time …"""
    actual_bytes: int
    """… and what was sent for them: each graph once, then what changed from run to run."""
    replies_pending: int
    """Reads and syncs whose answer is yet to come."""
    rtt_seconds: float | None
    """The smoothed round trip as QUIC measures it; None before the first measurement."""
    datagram_bytes: int
    """The size of a full datagram on the present path."""

    @property
    def saved_bytes(self) -> int:
        """What calling known graphs by id has saved."""
        return self.baseline_bytes - self.actual_bytes
