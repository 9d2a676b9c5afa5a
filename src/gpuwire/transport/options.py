"""What a connection may use: windows, sizes, times and counts, each set on purpose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from gpuwire.errors import ArgumentError
from gpuwire.telemetry.logs import Logger

KIB = 1024
MIB = 1024 * KIB

SMALLEST_DATAGRAM_BYTES = 1_200
"""What every path of QUIC must take (RFC 9000 section 14)."""

LARGEST_DATAGRAM_BYTES = 64_000
"""Near the most that UDP carries, 65,507; only loopback takes it."""

LARGEST_ROUTED_DATAGRAM_BYTES = 8_952
"""What is probed for off loopback: jumbo frames of 9,000 bytes, less IPv6's and UDP's headers."""

EngineName = Literal["auto", "aioquic", "qh3"]


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """Options of one connection, or of one listener and its connections.

    The windows bound what a sender may have under way that the receiving program has not yet
    consumed, so they are both the memory bound of a receiver and, divided by the round trip, the
    ceiling of the rate: 16 MiB over 50 ms is 335 MB/s for one stream and 24 MiB is 503 MB/s for the
    connection. They are what windows may grow to (`transport/windows.py`).
    """

    engine: EngineName = "auto"
    stream_window_bytes: int = 16 * MIB
    connection_window_bytes: int = 24 * MIB
    high_water_bytes: int = 16 * MIB
    """The most of a stream that may be written and not yet acknowledged: `SendStream.write` waits
    at 4 MiB, or twice the congestion window if that is more and as far as this allows, until half
    of it is acknowledged."""
    max_bulk_streams: int = 128
    """How many bulk streams the peer may have open that this side has not read to the end."""
    idle_timeout_seconds: float = 30.0
    """Silence after which the link counts as lost. A session notices sooner by its heartbeat; this
    is the backstop that frees a connection whose session is not even there."""
    handshake_timeout_seconds: float = 10.0
    """A listener drops a connection whose handshake takes longer."""
    datagram_bytes: int | None = None
    """The largest datagram to probe for, 1,200 to 64,000 bytes. None: 8,952, and 64,000 on a
    loopback path. A connection starts at 1,200 and takes what is seen to pass."""
    segmentation_offload: bool = False
    """Lets the kernel cut bursts into datagrams (UDP_SEGMENT), as long as a path bears it."""
    max_connections: int = 1_024
    """A listener turns away more connections than this, handshakes under way included."""
    retry_above_handshakes: int = 64
    """With more handshakes than this under way, a new client must first prove its address (RFC 9000
    section 8.1.2)."""

    logger: Logger | None = field(default=None, repr=False, compare=False)
    """Gets a line where a path turns out to be worse than it was taken for."""

    def __post_init__(self) -> None:
        if self.engine not in get_args(EngineName):
            raise ArgumentError(
                f"engine is {self.engine!r}; there is {', '.join(get_args(EngineName))}"
            )
        size = self.datagram_bytes
        if size is not None and not SMALLEST_DATAGRAM_BYTES <= size <= LARGEST_DATAGRAM_BYTES:
            raise ArgumentError(
                f"datagram_bytes is {size}; it must be {SMALLEST_DATAGRAM_BYTES:,} to "
                f"{LARGEST_DATAGRAM_BYTES:,}"
            )

    def largest_datagram_bytes(self, *, is_loopback: bool) -> int:
        """The size worth probing for on a path; every connection starts at 1,200."""
        if self.datagram_bytes is not None:
            return self.datagram_bytes
        return LARGEST_DATAGRAM_BYTES if is_loopback else LARGEST_ROUTED_DATAGRAM_BYTES

    def tell(self, text: str) -> None:
        """A line for the operator."""
        if self.logger is not None:
            self.logger.basic(text)
