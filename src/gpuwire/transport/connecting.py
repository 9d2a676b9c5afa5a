"""The client's side of making a connection."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Sequence
from time import monotonic

from gpuwire.errors import (
    ConnectError,
    LinkLost,
    ServerNotFound,
    ServerRefused,
    ServerUnreachable,
    WrongFingerprint,
)
from gpuwire.transport.closing import connect_error
from gpuwire.transport.connection import MAPPED_IPV4, Connection
from gpuwire.transport.datagrams import DatagramSocket
from gpuwire.transport.engine import Address, Datagram, Terminated
from gpuwire.transport.engines import check_engine, client_engine
from gpuwire.transport.offload import Offload
from gpuwire.transport.options import TransportOptions
from gpuwire.transport.trust import Trust

DEFAULT_OPTIONS = TransportOptions()

ATTEMPT_DELAY_SECONDS = 0.25
"""How long an address is waited for before the next is tried beside it (RFC 8305 section 5)."""

ROUTE_SECONDS = 1.0
"""How often it is looked up from which address the system would reach the server: 20 µs."""

REFUSALS_THAT_END_A_LINK = 3
"""ICMP refusals in a row, with nothing received in between, after which the server counts as gone;
one alone can come from a relay that restarts."""

UNREACHABLE = frozenset(
    (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL)
)


async def connect(
    host: str, port: int, trust: Trust, options: TransportOptions = DEFAULT_OPTIONS
) -> Connection:
    """Looks `host` up, tries its addresses and returns a connection whose server is proven.

    The caller puts a deadline around it and turns that into `ConnectTimeout`; cancelling leaves
    nothing behind. Nothing but the handshake is sent before the server has proven its key.

    Raises `ServerNotFound`, `ServerRefused`, `ServerUnreachable`, `WrongFingerprint`,
    `VersionMismatch` (a server, but not gpuwire's), `QuotaExceeded` (the listener is full),
    `ConnectTimeout` (silence for the idle timeout), `ConnectError`, or `ConfigError` where the
    wanted engine is not installed.
    """
    check_engine(options)
    addresses = await _look_up(host, port)
    failures: list[ConnectError] = []
    waiting = list(addresses)
    attempts: set[asyncio.Task[Connection]] = set()
    try:
        while waiting or attempts:
            if waiting:
                family, address = waiting.pop(0)
                attempt = _attempt(host, port, family, address, trust, options)
                attempts.add(asyncio.ensure_future(attempt))
            done, attempts = await asyncio.wait(
                attempts,
                timeout=ATTEMPT_DELAY_SECONDS if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            connected = [task.result() for task in done if task.exception() is None]
            for spare in connected[1:]:
                spare.close()
            if connected:
                return connected[0]
            failures += [_failure_of(task) for task in done]
    finally:
        for task in attempts:
            task.cancel()
        if attempts:
            await asyncio.wait(attempts)
        for task in attempts:
            if not task.cancelled() and task.exception() is None:
                task.result().close()
    # A wrong key is the one failure that the user must hear of, whatever else failed.
    raise next((e for e in failures if isinstance(e, WrongFingerprint)), failures[0])


async def _look_up(host: str, port: int) -> list[tuple[socket.AddressFamily, Address]]:
    try:
        try:
            # A literal address needs no resolver, and so no thread.
            found = socket.getaddrinfo(
                host, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
            )
        except socket.gaierror:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ServerNotFound(
            f"the name {host!r} has no address ({why}): is it spelt right, and is there a network?",
            host=host,
            port=port,
        ) from error
    return [(family, address) for family, _, _, _, address in found]


async def _attempt(
    host: str,
    port: int,
    family: socket.AddressFamily,
    address: Address,
    trust: Trust,
    options: TransportOptions,
) -> Connection:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.connect(address)
    except OSError as error:
        sock.close()
        raise _system_error(error, host, port, address) from error
    endpoint = ClientEndpoint(sock, host, port, address, trust, options)
    try:
        return await endpoint.handshake()
    except BaseException:
        endpoint.give_up()
        raise


class ClientEndpoint:
    """The socket of one connection. Where the machine changes networks, a new one takes its place
    and the connection goes on (RFC 9000 section 9)."""

    def __init__(
        self,
        sock: socket.socket,
        host: str,
        port: int,
        address: Address,
        trust: Trust,
        options: TransportOptions,
    ) -> None:
        self._host = host
        self._port = port
        self._address = address
        self._trust = trust
        self._options = options
        self._refusals = 0
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[None] = self._loop.create_future()
        self._family = sock.family
        self._local = sock.getsockname()[0]
        self._route_look: asyncio.TimerHandle | None = None
        self._socket = self._over(sock)
        self._engine = client_engine(host, trust, options, is_loopback=is_loopback(address))
        self._connection = Connection(self._engine, self, options)

    async def handshake(self) -> Connection:
        """Returns when the server is proven; raises the `ConnectError` that fits."""
        self._engine.connect(self._address, monotonic())
        self._connection.start()
        await self._outcome
        return self._connection

    def give_up(self) -> None:
        """Ends an attempt, telling the server if it is there."""
        if not self._outcome.cancel() and not self._outcome.cancelled():
            self._outcome.exception()  # looked at, so that nobody complains that it was not
        self._connection.close()
        self._close_socket()

    def _over(self, sock: socket.socket) -> DatagramSocket:
        return DatagramSocket(
            sock, self._address, self._handle_datagrams, self._handle_error, self._handle_too_large
        )

    def _close_socket(self) -> None:
        if self._route_look is not None:
            self._route_look.cancel()
        self._socket.close()

    # --- Moving to another network ----------------------------------------------------------------

    def _watch_route(self) -> None:
        """A connected socket keeps the address it began with, even when that is gone."""
        self._route_look = self._loop.call_later(ROUTE_SECONDS, self._watch_route)
        sock = socket.socket(self._family, socket.SOCK_DGRAM)
        try:
            sock.connect(self._address)  # sends nothing
            local = sock.getsockname()[0]
        except OSError:
            local = self._local  # no way at all now; there may be one at the next look
        if local == self._local:
            sock.close()
            return
        self._socket.close()
        self._socket, self._local = self._over(sock), local
        self._options.tell(f"this machine now reaches {self._host} from {local}: the link moves")
        self._connection.handle_move()

    # --- Endpoint ------------------------------------------------------------------------------

    def send(self, datagrams: Sequence[Datagram], offload: Offload) -> None:
        self._socket.send(datagrams, offload)

    def connection_id_issued(self, connection: Connection, connection_id: bytes) -> None:
        """All that arrives at this socket is for the one connection."""

    def connection_id_retired(self, connection_id: bytes) -> None:
        """All that arrives at this socket is for the one connection."""

    def handshake_completed(self, connection: Connection) -> None:
        if not self._outcome.done():
            self._outcome.set_result(None)
        if not is_loopback(self._address):
            self._route_look = self._loop.call_later(ROUTE_SECONDS, self._watch_route)

    def connection_ended(self, connection: Connection, end: Terminated | None) -> None:
        if end is not None:
            found = self._engine.peer_fingerprint
            self._fail(
                connect_error(end, self._host, self._port, self._trust, found, self._options)
            )
        self._close_socket()

    # --- The socket's calls ---------------------------------------------------------------------

    def _handle_datagrams(self, datagrams: list[Datagram]) -> None:
        self._refusals = 0
        self._connection.handle_datagrams(datagrams)
        if self._engine.is_reset(datagrams[-1][0]):
            # Does nothing where the server's last word came before.
            self._connection.abandon(
                LinkLost(
                    f"{self._host} port {self._port} does not know the connection any more: the "
                    "server was started anew, or has given the link up"
                )
            )

    def _handle_error(self, error: OSError) -> None:
        if not self._outcome.done():
            self._fail(_system_error(error, self._host, self._port, self._address))
            return
        if isinstance(error, ConnectionRefusedError):
            self._refusals += 1
            if self._refusals >= REFUSALS_THAT_END_A_LINK:
                place = f"{self._host} port {self._port}"
                self._connection.abandon(
                    LinkLost(f"nothing listens at {place} any more: the server is gone")
                )

    def _handle_too_large(self, address: Address, size: int) -> None:
        self._connection.handle_too_large(size)

    def _fail(self, error: ConnectError) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(error)


def is_loopback(address: Address) -> bool:
    """Whether a socket address is of this machine's loopback network."""
    text = str(address[0]).removeprefix(MAPPED_IPV4).partition("%")[0]
    return ipaddress.ip_address(text).is_loopback


def _system_error(error: OSError, host: str, port: int, address: Address) -> ConnectError:
    place = f"{host} ({address[0]}) port {port}"
    if isinstance(error, ConnectionRefusedError):
        return ServerRefused(
            f"{place}: the machine is there, but nothing listens on that UDP port. Is the server "
            "running, and is the port right?",
            host=host,
            port=port,
        )
    if error.errno in UNREACHABLE:
        return ServerUnreachable(
            f"{place}: the network has no way to that machine ({error.strerror})",
            host=host,
            port=port,
        )
    return ConnectError(f"{place}: {error.strerror}", host=host, port=port)


def _failure_of(task: asyncio.Task[Connection]) -> ConnectError:
    error = task.exception()
    if isinstance(error, ConnectError):
        return error
    assert error is not None
    raise error
