"""qh3's connection, as this side wants it: sizes, windows, certificates.

Checked against qh3 2.1, some of whose private attributes are used.
"""

from __future__ import annotations

import ssl
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from qh3._hazmat import Buffer
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.connection import QuicConnection
from qh3.quic.packet import pull_quic_transport_parameters, push_quic_transport_parameters

from gpuwire.transport.engine import ALPN, CONNECTION_ID_BYTES
from gpuwire.transport.identity import Identity
from gpuwire.transport.options import (
    LARGEST_DATAGRAM_BYTES,
    SMALLEST_DATAGRAM_BYTES,
    TransportOptions,
)
from gpuwire.transport.trust import PinnedKey, Trust

CONNECTION_IDS = 8
"""Of this side that the peer may hold: each move to another address uses one up."""


def client_quic(host: str, trust: Trust, options: TransportOptions, *, is_loopback: bool) -> Any:
    """A connection that has yet to begin. A pinned key is for the engine to look at."""
    configuration = _configuration(options, is_client=True, is_loopback=is_loopback)
    if isinstance(trust, PinnedKey):
        configuration.verify_mode = ssl.CERT_NONE
    else:
        configuration.verify_mode = ssl.CERT_REQUIRED
        configuration.cafile = str(trust.path)
        configuration.server_name = trust.server_name or host
    return WideQuic(configuration=configuration)


def server_quic(
    identity: Identity,
    options: TransportOptions,
    *,
    is_loopback: bool,
    original_connection_id: bytes,
    retry_connection_id: bytes | None,
) -> Any:
    """A connection for a client's first datagram."""
    configuration = _configuration(options, is_client=False, is_loopback=is_loopback)
    chain = (identity.certificate, *identity.chain)
    configuration.load_cert_chain(
        b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain),
        identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
    return QuicConnection(
        configuration=configuration,
        original_destination_connection_id=original_connection_id,
        retry_source_connection_id=retry_connection_id,
    )


class WideQuic(QuicConnection):
    """qh3's connection, of which a client tells the server that it takes large datagrams. qh3 says
    1,472 bytes whatever it takes; a server of its own with larger ones then cannot follow a client
    to another address."""

    def _create_tls(self, remote_source_cid: bytes | None) -> Any:
        bridge = super()._create_tls(remote_source_cid)
        if self._is_client:
            (kind, encoded), *others = bridge.tls.handshake_extensions
            parameters = pull_quic_transport_parameters(Buffer(data=encoded))
            parameters.max_udp_payload_size = LARGEST_DATAGRAM_BYTES
            buffer = Buffer(capacity=2 * len(encoded))
            push_quic_transport_parameters(buffer, parameters)
            bridge.tls.handshake_extensions = [(kind, buffer.data), *others]
        return bridge


def _configuration(
    options: TransportOptions, *, is_client: bool, is_loopback: bool
) -> QuicConfiguration:
    most = options.largest_datagram_bytes(is_loopback=is_loopback)
    return QuicConfiguration(
        alpn_protocols=[ALPN],
        connection_id_length=CONNECTION_ID_BYTES,
        idle_timeout=options.idle_timeout_seconds,
        is_client=is_client,
        max_data=options.connection_window_bytes // 2,
        max_stream_data=min(options.stream_window_bytes, options.connection_window_bytes // 2),
        max_datagram_size=most if is_loopback else SMALLEST_DATAGRAM_BYTES,
        probe_datagram_size=most > SMALLEST_DATAGRAM_BYTES,
        active_connection_id_limit=CONNECTION_IDS,
    )
