"""What a listener can tell of a datagram without a connection, and what it answers by itself.

Reads the version-independent header (RFC 8999) with a few slices, since garbage must cost little.
"""

from __future__ import annotations

from dataclasses import dataclass

from aioquic._buffer import Buffer
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import (
    QuicFrameType,
    QuicPacketType,
    QuicProtocolVersion,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_header,
)
from aioquic.quic.packet_builder import QuicPacketBuilder
from aioquic.quic.retry import QuicRetryTokenHandler

from gpuwire.transport.engine import CONNECTION_ID_BYTES, Address
from gpuwire.transport.options import SMALLEST_DATAGRAM_BYTES

LONG_HEADER = 0x80
LONGEST_CONNECTION_ID = 20
NEGOTIATION = b"\0\0\0\0"
VERSIONS = (int(QuicProtocolVersion.VERSION_1), int(QuicProtocolVersion.VERSION_2))
"""The versions of QUIC spoken here (RFC 9000, RFC 9369)."""

VERSION_BYTES = frozenset(version.to_bytes(4, "big") for version in VERSIONS)


def destination_of(data: bytes) -> bytes | None:
    """The connection id that a datagram is meant for; None for what is no packet of QUIC."""
    if not data:
        return None
    if not data[0] & LONG_HEADER:
        return data[1 : 1 + CONNECTION_ID_BYTES]
    if len(data) < 7 or data[5] > LONGEST_CONNECTION_ID or len(data) < 7 + data[5]:
        return None
    return data[6 : 6 + data[5]]


@dataclass(frozen=True, slots=True)
class FirstFlight:
    """The head of a client's first packet."""

    version: int
    destination: bytes
    """The id that the client made up for the server, or that a Retry told it to use."""
    source: bytes
    token: bytes


def read_first_flight(data: bytes) -> FirstFlight | None:
    """The head of a client's first packet; None if the datagram cannot be one."""
    if len(data) < SMALLEST_DATAGRAM_BYTES or not data[0] & LONG_HEADER:
        return None
    if data[1:5] not in VERSION_BYTES:
        return None
    try:
        header = pull_quic_header(Buffer(data=data), host_cid_length=CONNECTION_ID_BYTES)
    except ValueError:
        return None
    # RFC 9000 section 7.2: the client's first choice has at least 8 bytes.
    if header.packet_type != QuicPacketType.INITIAL or len(header.destination_cid) < 8:
        return None
    assert header.version is not None
    return FirstFlight(header.version, header.destination_cid, header.source_cid, header.token)


def version_negotiation_for(data: bytes) -> bytes | None:
    """The answer to a client of another version; None if there should be none: to a short datagram
    (the answer would be larger than the question) or to a version negotiation itself."""
    if len(data) < SMALLEST_DATAGRAM_BYTES or not data[0] & LONG_HEADER:
        return None
    version = data[1:5]
    if version == NEGOTIATION or version in VERSION_BYTES:
        return None
    destination = destination_of(data)
    if destination is None:
        return None
    rest = data[6 + len(destination) :]
    if not rest or rest[0] > LONGEST_CONNECTION_ID or len(rest) < 1 + rest[0]:
        return None
    return encode_quic_version_negotiation(
        source_cid=destination,
        destination_cid=rest[1 : 1 + rest[0]],
        supported_versions=list(VERSIONS),
    )


def refusal_of(flight: FirstFlight, error_code: int) -> bytes:
    """A server's first packet that closes the connection before it exists; as long as the packet
    that it answers, so that nothing is amplified."""
    crypto = CryptoPair()
    crypto.setup_initial(cid=flight.destination, is_client=False, version=flight.version)
    builder = QuicPacketBuilder(
        host_cid=flight.destination,
        is_client=False,
        max_datagram_size=SMALLEST_DATAGRAM_BYTES,
        peer_cid=flight.source,
        version=flight.version,
    )
    builder.start_packet(QuicPacketType.INITIAL, crypto)
    frame = builder.start_frame(QuicFrameType.TRANSPORT_CLOSE, capacity=16)
    for field in (error_code, 0, 0):  # no frame is to blame, and there is no reason in words
        frame.push_uint_var(field)
    datagrams, _ = builder.flush()
    return datagrams[0]


class AddressProof:
    """Retry (RFC 9000 section 8.1.2): a client shows that it receives at its address before any
    state is kept for it."""

    def __init__(self) -> None:
        self._tokens = QuicRetryTokenHandler()

    def ask(self, flight: FirstFlight, address: Address, connection_id: bytes, now: float) -> bytes:
        """The Retry packet that asks for proof; the client comes back to `connection_id`."""
        token = self._tokens.create_token(
            address=address,
            original_destination_connection_id=flight.destination,
            retry_source_connection_id=connection_id,
            now=now,
        )
        return encode_quic_retry(
            version=flight.version,
            source_cid=connection_id,
            destination_cid=flight.source,
            original_destination_cid=flight.destination,
            retry_token=token,
        )

    def check(self, flight: FirstFlight, address: Address, now: float) -> bytes | None:
        """The id that the client first chose; None if its token proves nothing."""
        try:
            return self._tokens.validate_token(
                address=address, destination_cid=flight.destination, token=flight.token, now=now
            )
        except ValueError:
            return None
