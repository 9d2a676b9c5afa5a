"""QUIC transport: connections, streams with back-pressure, identities and tickets.

The only package that names aioquic and qh3. Everything here runs in one event loop's thread.
"""

from gpuwire.transport.connecting import connect
from gpuwire.transport.connection import Connection
from gpuwire.transport.identity import IDENTITY_FILE, Identity
from gpuwire.transport.listener import Listener, listen
from gpuwire.transport.offload import OffloadInfo
from gpuwire.transport.options import TransportOptions
from gpuwire.transport.path import PathInfo, RoundTrip
from gpuwire.transport.streams import ReceiveStream, SendStream, Stream
from gpuwire.transport.ticket import Ticket, make_token
from gpuwire.transport.trust import AuthorityFile, PinnedKey, Trust

__all__ = [
    "IDENTITY_FILE",
    "AuthorityFile",
    "Connection",
    "Identity",
    "Listener",
    "OffloadInfo",
    "PathInfo",
    "PinnedKey",
    "ReceiveStream",
    "RoundTrip",
    "SendStream",
    "Stream",
    "Ticket",
    "TransportOptions",
    "Trust",
    "connect",
    "listen",
    "make_token",
]
