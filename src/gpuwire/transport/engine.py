"""The face of a QUIC engine: bytes, time and commands in; datagrams and events out.

An engine does no I/O and has no clock. Its driver calls, in this order and as often as it likes:
`receive` for what arrived, `handle_timer` when `timer` is due, any commands, then
`datagrams_to_send`, and `events` after each of those. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from gpuwire.transport.path import RoundTrip
from gpuwire.transport.windows import FlowWindows

ALPN = "gpuwire/1"
CONNECTION_ID_BYTES = 8

CONNECTION_REFUSED = 0x2
STREAM_LIMIT_ERROR = 0x4
INVALID_TOKEN = 0xB
"""Error codes of QUIC (RFC 9000 section 20.1)."""

CRYPTO_ERROR = 0x100
"""TLS alerts become QUIC error codes from here on (RFC 9001 section 4.8)."""

CERTIFICATE_ALERTS = frozenset(CRYPTO_ERROR + alert for alert in (42, 43, 44, 45, 46, 48))
NO_APPLICATION_PROTOCOL = CRYPTO_ERROR + 120
HANDSHAKE_FAILURE = CRYPTO_ERROR + 40
"""What aioquic sends where no protocol is shared, in place of no_application_protocol."""

Address = Any
"""A socket address as `socket.recvfrom` returns it, of IPv4 or IPv6."""

Datagram = tuple[bytes, Address]

Piece = bytes | memoryview
"""Bytes of a stream as a packet brought them; a view where copying them out would cost more."""


@dataclass(frozen=True, slots=True)
class HandshakeCompleted:
    """Both sides have proven what they had to, and streams may be used."""


@dataclass(frozen=True, slots=True)
class StreamData:
    """The next bytes of a stream, in order and without gaps, as the packets brought them; `end`
    marks its last. One event for all that a batch of datagrams brought: an event for each packet
    was a fifth of the receiver's time."""

    stream_id: int
    pieces: tuple[Piece, ...]
    end: bool

    @property
    def data(self) -> bytes:
        """All of them together."""
        return b"".join(self.pieces)


@dataclass(frozen=True, slots=True)
class StreamWasReset:
    """The peer gave up sending; no more data comes."""

    stream_id: int
    error_code: int


@dataclass(frozen=True, slots=True)
class StreamWasStopped:
    """The peer wants no more of what is sent to it; the engine has reset the stream."""

    stream_id: int
    error_code: int


@dataclass(frozen=True, slots=True)
class StreamAcknowledged:
    """The peer has the stream up to `position`: its bytes without a gap, and 1 more for its end.
    `is_final` when nothing more will be said of it: the end, or giving up, is acknowledged."""

    stream_id: int
    position: int
    is_final: bool


@dataclass(frozen=True, slots=True)
class ConnectionIdIssued:
    """Datagrams that name this connection id belong here as well."""

    connection_id: bytes


@dataclass(frozen=True, slots=True)
class ConnectionIdRetired:
    """The connection id is no longer used."""

    connection_id: bytes


class TerminationCause(Enum):
    """Who or what ended a connection."""

    CLOSED_HERE = "closed here"
    CLOSED_BY_PEER = "closed by the peer"
    SILENCE = "nothing received for the idle timeout"
    BROKEN_RULES = "the peer broke the rules of QUIC"
    WRONG_KEY = "the server's key is not the pinned one"
    UNTRUSTED_CERTIFICATE = "the server's certificate was not accepted"
    NO_COMMON_VERSION = "the sides share no version of QUIC or of the protocol on top"


@dataclass(frozen=True, slots=True)
class Terminated:
    """The connection is over: the last event, given once, after the closing datagram if any."""

    cause: TerminationCause
    error_code: int
    reason: str


Event = (
    HandshakeCompleted
    | StreamData
    | StreamWasReset
    | StreamWasStopped
    | StreamAcknowledged
    | ConnectionIdIssued
    | ConnectionIdRetired
    | Terminated
)


class QuicEngine(Protocol):
    """One connection's protocol. Stream ids are QUIC's own (RFC 9000 section 2.1)."""

    name: str

    def is_reset(self, data: bytes) -> bool:
        """Client: whether a datagram says that the server does not know the connection any more
        (RFC 9000 section 10.3). False where the engine cannot tell."""

    @property
    def peer_fingerprint(self) -> str | None:
        """Client: fingerprint of the key that the server showed, before it is proven."""

    @property
    def connection_id(self) -> bytes:
        """The first id by which the peer addresses this side."""

    @property
    def has_peer(self) -> bool:
        """Whether a valid packet of the peer was seen."""

    def connect(self, address: Address, now: float) -> None:
        """Client: starts the handshake."""

    def receive(self, datagrams: Sequence[Datagram], now: float) -> None:
        """Takes in a batch; what cannot be read is dropped."""

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        """What is to be sent now, at most one burst; `has_more_to_send` says whether to ask again
        as soon as other work had its turn."""

    @property
    def has_more_to_send(self) -> bool:
        """Whether the last burst was cut short."""

    def timer(self) -> float | None:
        """When `handle_timer` is due."""

    def handle_timer(self, now: float) -> None:
        """Time has passed."""

    def events(self) -> Iterator[Event]:
        """What happened since the last call, in order."""

    def open_stream(self, *, bidirectional: bool) -> int:
        """Opens a stream of this side and returns its id."""

    def send(self, stream_id: int, data: bytes | memoryview, *, end: bool) -> None:
        """Queues bytes, by reference, and the end of the stream."""

    def reset(self, stream_id: int, error_code: int) -> None:
        """Gives up sending; does nothing on a stream that is already finished."""

    def stop(self, stream_id: int, error_code: int) -> None:
        """Asks the peer to give up sending; does nothing on a stream that is already finished."""

    def consume(self, stream_id: int, count: int) -> bool:
        """The program took `count` bytes: the peer may send as many more. True if that should be
        told to the peer now."""

    def release(self, stream_id: int) -> bool:
        """The program is done with a stream of the peer, which may open another one once this one
        is finished. True if that should be told to the peer now."""

    def close(self, error_code: int, reason: str) -> None:
        """Ends the connection, telling the peer in the next datagram."""

    def move(self) -> None:
        """Client: this side sends from another address from now on. The peer is told by another
        connection id, so that who watches both paths cannot tell that they are one connection's
        (RFC 9000 section 9.5)."""

    def datagram_refused(self, size: int, now: float) -> None:
        """The system refused to send a datagram of this size."""

    @property
    def unconsumed_bytes(self) -> int:
        """Bytes of all streams received, in order or not, that the program has not consumed."""

    @property
    def address(self) -> Address:
        """The peer's address now."""

    @property
    def datagram_bytes(self) -> int:
        """Size of a full datagram now."""

    @property
    def round_trip(self) -> RoundTrip:
        """Measured round trips."""

    @property
    def congestion_window_bytes(self) -> int:
        """What may be under way unacknowledged."""

    @property
    def flow_windows(self) -> FlowWindows:
        """What the peer is let send ahead of the program."""

    @property
    def bytes_per_second(self) -> float:
        """The rate at which the path delivers, as far as is known; 0 while nothing is."""

    @property
    def datagram_search(self) -> str:
        """How that size was found, in words."""

    @property
    def packets_sent(self) -> int:
        """Packets sent that count against the window."""

    @property
    def packets_lost(self) -> int:
        """Packets declared lost."""

    @property
    def timeouts_in_a_row(self) -> int:
        """Probe timeouts since anything was acknowledged (RFC 9002 section 6.2)."""
