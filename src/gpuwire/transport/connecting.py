"""The client's side of making a connection."""

from __future__ import annotations

from gpuwire.transport.connection import Connection
from gpuwire.transport.options import TransportOptions
from gpuwire.transport.trust import Trust

DEFAULT_OPTIONS = TransportOptions()


async def connect(
    host: str, port: int, trust: Trust, options: TransportOptions = DEFAULT_OPTIONS
) -> Connection:
    """Looks `host` up, tries its addresses and returns a connection whose server is proven.

    The caller puts a deadline around it and turns that into `ConnectTimeout`; cancelling leaves
    nothing behind. Nothing but the handshake is sent before the server has proven its key. Raises
    `ServerNotFound`, `ServerRefused`, `ServerUnreachable`, `WrongFingerprint`, `VersionMismatch` (no
    gpuwire server), `ConnectTimeout` (silence for the idle timeout) or `ConnectError`.
    """
    raise NotImplementedError
