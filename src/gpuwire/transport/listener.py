"""The server's side: one socket, many connections."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from gpuwire.errors import GpuwireError, LinkLost, ServerStartError
from gpuwire.transport.connecting import is_loopback
from gpuwire.transport.connection import Connection
from gpuwire.transport.datagrams import DatagramSocket
from gpuwire.transport.engine import (
    CONNECTION_ID_BYTES,
    CONNECTION_REFUSED,
    INVALID_TOKEN,
    Address,
    Datagram,
    Terminated,
)
from gpuwire.transport.engines import check_engine, server_engine
from gpuwire.transport.first_flight import (
    AddressProof,
    FirstFlight,
    destination_of,
    read_first_flight,
    refusal_of,
    version_negotiation_for,
)
from gpuwire.transport.identity import Identity
from gpuwire.transport.offload import Offload
from gpuwire.transport.options import TransportOptions
from gpuwire.transport.stateless_reset import ResetTokens

Handler = Callable[[Connection], Awaitable[None]]
DEFAULT_OPTIONS = TransportOptions()

HANDLER_GRACE_SECONDS = 1.0
"""How long handlers may take to end by themselves once the listener closes."""

HANDLER_FAILED = 1
"""Error code with which a connection is closed whose handler raised."""


@dataclass(slots=True)
class ListenerCounts:
    """What a listener has seen since its start."""

    datagrams: int = 0
    garbage_datagrams: int = 0
    """Dropped: no packet of QUIC, of no connection here, or a first flight that does not open."""
    refused_connections: int = 0
    """Turned away because of `max_connections`."""
    retries: int = 0
    connections: int = 0
    """Handshakes completed."""


async def listen(
    host: str,
    port: int,
    identity: Identity,
    handler: Handler,
    options: TransportOptions = DEFAULT_OPTIONS,
) -> Listener:
    """Binds UDP `host`:`port` (0: any free port) and serves it.

    `handler(connection)` runs as a task for each connection that completed its handshake. When it
    returns, the connection is closed; when it raises a `GpuwireError`, the client is told its
    message; of any other exception the loop's exception handler is told, and not the client.
    `::` takes IPv4 clients too. Raises `ServerStartError` when the address cannot be bound,
    `ConfigError` where the wanted engine is not installed.
    """
    check_engine(options)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        sock = socket.socket(family, socket.SOCK_DGRAM)
    except OSError as error:
        raise _start_error(host, port, error) from error
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _start_error(host, port, error) from error
    return Listener(sock, identity, handler, options)


class Listener:
    """A bound socket and its connections; made by `listen`."""

    def __init__(
        self, sock: socket.socket, identity: Identity, handler: Handler, options: TransportOptions
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._identity = identity
        self._handler = handler
        self._options = options
        self._socket = DatagramSocket(
            sock, None, self._handle_datagrams, self._handle_error, self._handle_too_large
        )
        self._routes: dict[bytes, Connection] = {}
        self._ids: dict[Connection, set[bytes]] = {}
        self._handshakes: dict[Connection, asyncio.TimerHandle] = {}
        self._handlers: dict[Connection, asyncio.Task[None]] = {}
        self._proof = AddressProof()
        self._reset_tokens = ResetTokens(identity)
        self._is_closing = False
        self.port = self._socket.port
        """The port that is bound, also where 0 was asked for."""
        self.counts = ListenerCounts()

    @property
    def open_connections(self) -> int:
        """Connections now, with the handshakes under way."""
        return len(self._ids)

    async def close(self, error_code: int = 0, reason: str = "") -> None:
        """Tells every client, lets the handlers end (cancels those that do not within a second) and
        closes the socket."""
        self._is_closing = True
        for connection in list(self._ids):
            connection.close(error_code, reason)
        tasks = set(self._handlers.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=HANDLER_GRACE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        self._socket.close()

    # --- Datagrams ------------------------------------------------------------------------------

    def _handle_datagrams(self, datagrams: list[Datagram]) -> None:
        self.counts.datagrams += len(datagrams)
        batches: dict[Connection, list[Datagram]] = {}
        strangers: list[Datagram] = []
        for datagram in datagrams:
            destination = destination_of(datagram[0])
            connection = self._routes.get(destination) if destination else None
            if connection is None:
                strangers.append(datagram)
            else:
                batches.setdefault(connection, []).append(datagram)
        for connection, batch in batches.items():
            connection.handle_datagrams(batch)
        for stranger in strangers:  # after the batches: one of them may have made room
            self._handle_stranger(stranger)

    def _handle_stranger(self, datagram: Datagram) -> None:
        data, address = datagram
        flight = read_first_flight(data)
        if flight is not None and not self._is_closing:
            # A first flight of two datagrams: the first one has just made the connection.
            known = self._routes.get(flight.destination)
            if known is not None:
                known.handle_datagrams([datagram])
            else:
                self._admit(flight, datagram)
            return
        self.counts.garbage_datagrams += 1
        answer = version_negotiation_for(data)
        if answer is None and not self._is_closing:
            answer = self._reset_tokens.answer(data)
        if answer is not None:
            self._socket.send([(answer, address)])

    def _admit(self, flight: FirstFlight, datagram: Datagram) -> None:
        address = datagram[1]
        if len(self._ids) >= self._options.max_connections:
            self.counts.refused_connections += 1
            self._socket.send([(refusal_of(flight, CONNECTION_REFUSED), address)])
            return
        now = monotonic()
        original, retried = flight.destination, None
        if flight.token:
            proven = self._proof.check(flight, address, now)
            if proven is None:
                self.counts.garbage_datagrams += 1
                self._socket.send([(refusal_of(flight, INVALID_TOKEN), address)])
                return
            original, retried = proven, flight.destination
        elif len(self._handshakes) >= self._options.retry_above_handshakes:
            self.counts.retries += 1
            question = self._proof.ask(flight, address, os.urandom(CONNECTION_ID_BYTES), now)
            self._socket.send([(question, address)])
            return
        self._start_connection(flight, original, retried, datagram)

    def _start_connection(
        self,
        flight: FirstFlight,
        original: bytes,
        retried: bytes | None,
        datagram: Datagram,
    ) -> None:
        engine = server_engine(
            self._identity,
            self._options,
            is_loopback=is_loopback(datagram[1]),
            original_connection_id=original,
            retry_connection_id=retried,
        )
        connection = Connection(engine, self, self._options)
        self._ids[connection] = set()
        self.connection_id_issued(connection, flight.destination)
        self.connection_id_issued(connection, engine.connection_id)
        self._handshakes[connection] = self._loop.call_later(
            self._options.handshake_timeout_seconds, self._handshake_timed_out, connection
        )
        connection.handle_datagrams([datagram])
        if not engine.has_peer and connection in self._ids:
            # The head looked right, but nothing inside could be decrypted.
            self.counts.garbage_datagrams += 1
            connection.abandon(LinkLost("the first packet of a client could not be read"))

    def _handshake_timed_out(self, connection: Connection) -> None:
        connection.close(reason="the handshake took too long")

    def _handle_error(self, error: OSError) -> None:
        """An unconnected socket hears of its peers' ICMP messages on some systems; they say nothing
        that the connection's own timers do not."""

    def _handle_too_large(self, address: Address, size: int) -> None:
        for connection in list(self._ids):
            if connection.is_at(address):
                connection.handle_too_large(size)

    # --- Endpoint -------------------------------------------------------------------------------

    def send(self, datagrams: Sequence[Datagram], offload: Offload) -> None:
        self._socket.send(datagrams, offload)

    def connection_id_issued(self, connection: Connection, connection_id: bytes) -> None:
        ids = self._ids.get(connection)
        if ids is not None:
            ids.add(connection_id)
            self._routes[connection_id] = connection

    def connection_id_retired(self, connection_id: bytes) -> None:
        connection = self._routes.pop(connection_id, None)
        if connection is not None:
            self._ids[connection].discard(connection_id)

    def handshake_completed(self, connection: Connection) -> None:
        self._handshakes.pop(connection).cancel()
        self.counts.connections += 1
        self._handlers[connection] = self._loop.create_task(self._serve(connection))

    def connection_ended(self, connection: Connection, end: Terminated | None) -> None:
        for connection_id in self._ids.pop(connection, set()):
            self._routes.pop(connection_id, None)
        timer = self._handshakes.pop(connection, None)
        if timer is not None:
            timer.cancel()

    async def _serve(self, connection: Connection) -> None:
        code, reason = 0, ""
        try:
            await self._handler(connection)
        except GpuwireError as error:
            # Whoever reads a connection that ends meets its cause: that is no fault.
            if connection.close_cause is None:
                code, reason = HANDLER_FAILED, error.message
        except Exception as error:  # noqa: BLE001 - a handler's fault must not end the listener
            code, reason = HANDLER_FAILED, "the server failed while serving this connection"
            self._loop.call_exception_handler(
                {"message": "a connection's handler failed", "exception": error}
            )
        finally:
            connection.close(code, reason)
            del self._handlers[connection]


def _start_error(host: str, port: int, error: OSError) -> ServerStartError:
    return ServerStartError(
        f"UDP {host} port {port} cannot be bound: {error.strerror}", reason=error.strerror
    )
