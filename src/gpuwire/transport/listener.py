"""The server's side: one socket, many connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gpuwire.transport.connection import Connection
from gpuwire.transport.identity import Identity
from gpuwire.transport.options import TransportOptions

Handler = Callable[[Connection], Awaitable[None]]
DEFAULT_OPTIONS = TransportOptions()


@dataclass(slots=True)
class ListenerCounts:
    """What a listener has seen since its start."""

    datagrams: int = 0
    garbage_datagrams: int = 0
    """Dropped: no packet of QUIC, of no connection here, or of a broken first flight."""
    refused_connections: int = 0
    """Dropped because of `max_connections`."""
    retries: int = 0
    connections: int = 0
    """Handshakes completed."""


class Listener:
    """A bound socket and its connections."""

    @property
    def port(self) -> int:
        """The port that is bound, also where 0 was asked for."""
        raise NotImplementedError

    @property
    def counts(self) -> ListenerCounts:
        """What was seen since the start."""
        raise NotImplementedError

    async def close(self, error_code: int = 0, reason: str = "") -> None:
        """Tells every client, lets the handlers end (cancels those that do not within a second) and
        closes the socket."""
        raise NotImplementedError


async def listen(
    host: str,
    port: int,
    identity: Identity,
    handler: Handler,
    options: TransportOptions = DEFAULT_OPTIONS,
) -> Listener:
    """Binds UDP `host`:`port` (0: any free port) and serves it.

    `handler(connection)` runs as a task for each connection that completed its handshake; when it
    returns, the connection is closed. `::` takes IPv4 clients as well. Raises `ServerStartError`
    when the address cannot be bound.
    """
    raise NotImplementedError
