"""Telling a client at once that its connection is not known here (RFC 9000 section 10.3).

Whoever lost a connection's state, as a server that was started anew has, cannot say a word that
the client could decrypt. But it can show a token that it alone can make of the connection's id, and
that the client was given while the connection was there.
"""

from __future__ import annotations

import hashlib
import hmac
import os

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gpuwire.transport.first_flight import LONG_HEADER, destination_of
from gpuwire.transport.identity import Identity

TOKEN_BYTES = 16
SMALLEST_RESET_BYTES = 21
"""Shorter ones are no packets of QUIC (RFC 9000 section 10.3)."""
LARGEST_RESET_BYTES = 43
"""Looks like any small packet."""
_PURPOSE = b"gpuwire stateless reset"


class ResetTokens:
    """The tokens of one server, the same after each start."""

    def __init__(self, identity: Identity) -> None:
        secret = identity.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        self._key = hashlib.sha256(_PURPOSE + secret).digest()

    def token(self, connection_id: bytes) -> bytes:
        """What proves that this server gave that id to a connection."""
        return hmac.digest(self._key, connection_id, "sha256")[:TOKEN_BYTES]

    def answer(self, data: bytes) -> bytes | None:
        """The reset for a datagram of an unknown connection: shorter than it, so that two servers
        do not go on answering each other. None where there can be none."""
        size = min(len(data) - 1, LARGEST_RESET_BYTES)
        destination = destination_of(data)
        if size < SMALLEST_RESET_BYTES or data[0] & LONG_HEADER or destination is None:
            return None
        noise = os.urandom(size - TOKEN_BYTES)
        return bytes((noise[0] & 0x3F | 0x40,)) + noise[1:] + self.token(destination)


def is_reset(data: bytes, token: bytes | None) -> bool:
    """Whether a datagram that could not be read ends the connection whose peer gave that token."""
    fits = SMALLEST_RESET_BYTES <= len(data) <= LARGEST_RESET_BYTES
    return fits and bool(token) and hmac.compare_digest(data[-TOKEN_BYTES:], token or b"")
