"""A UDP socket in an event loop: receives in batches, sends without waiting.

asyncio's own datagram transport hands over one datagram per turn of the loop. Here a turn takes all
that has arrived, up to a bound, so that one acknowledgement and one burst answer many datagrams.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections import deque
from collections.abc import Callable, Sequence

from gpuwire.errors import NotSupported
from gpuwire.transport.engine import Address, Datagram

SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
"""Asked for in both directions; the kernel gives what it allows. Its default of 208 KiB loses parts
of a burst of 16,000-byte datagrams whenever the receiving process is busy for a few ms."""

BATCH = 64
"""Datagrams taken in before they are handled, so that timers and other sockets get their turn."""

LARGEST_DATAGRAM = 65_535

BACKLOG = 4_096
"""Datagrams kept while the kernel takes none; more are dropped, as a network would."""


class DatagramSocket:
    """A bound socket. With `peer` it is connected: it talks to that address alone and hears of
    refusals (ICMP).

    `on_datagrams(batch)` gets what arrived; `on_error(error)` the error of a connected socket;
    `on_too_large()` is called when the system refuses a datagram for its size.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: Address | None,
        on_datagrams: Callable[[list[Datagram]], None],
        on_error: Callable[[OSError], None],
        on_too_large: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._peer = peer
        self._on_datagrams = on_datagrams
        self._on_error = on_error
        self._on_too_large = on_too_large
        self._backlog: deque[Datagram] = deque()
        self._is_closed = False
        self.dropped = 0
        """Datagrams that the kernel did not take."""
        sock.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
        try:
            self._loop.add_reader(sock.fileno(), self._receive)
        except NotImplementedError:
            sock.close()
            raise NotSupported(
                "this event loop cannot watch a socket (add_reader): on Windows, run gpuwire in an "
                "asyncio.SelectorEventLoop"
            ) from None

    @property
    def port(self) -> int:
        """The local port."""
        port: int = self._socket.getsockname()[1]
        return port

    def send(self, datagrams: Sequence[Datagram]) -> None:
        """Hands datagrams to the kernel in order; keeps what it does not take at once."""
        if self._is_closed:
            return
        if self._backlog:
            self._backlog.extend(datagrams)
            self._trim_backlog()
            return
        for index, datagram in enumerate(datagrams):
            if not self._send_one(datagram):
                self._backlog.extend(datagrams[index:])
                self._trim_backlog()
                self._loop.add_writer(self._socket.fileno(), self._send_backlog)
                return

    def close(self) -> None:
        """Closes the socket; what waits to be sent is dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._backlog.clear()
        self._socket.close()

    def _receive(self) -> None:
        batch: list[Datagram] = []
        error: OSError | None = None
        receive_from = self._socket.recvfrom
        while len(batch) < BATCH:
            try:
                data, address = receive_from(LARGEST_DATAGRAM)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as caught:
                error = caught
                break
            batch.append((data, address if self._peer is None else self._peer))
        if batch:
            self._on_datagrams(batch)
        if error is not None and not self._is_closed:
            self._on_error(error)

    def _send_one(self, datagram: Datagram) -> bool:
        """Whether the datagram is dealt with; False if the kernel is busy."""
        for _ in range(2):
            try:
                if self._peer is None:
                    self._socket.sendto(*datagram)
                else:
                    self._socket.send(datagram[0])
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    self._on_too_large()
                elif self._peer is not None:
                    # What an earlier datagram met; this one was not sent, so it gets its turn.
                    self._loop.call_soon(self._report, error)
                    continue
                self.dropped += 1
            return True
        self.dropped += 1
        return True

    def _report(self, error: OSError) -> None:
        if not self._is_closed:
            self._on_error(error)

    def _send_backlog(self) -> None:
        while self._backlog:
            if not self._send_one(self._backlog[0]):
                return
            self._backlog.popleft()
        self._loop.remove_writer(self._socket.fileno())

    def _trim_backlog(self) -> None:
        while len(self._backlog) > BACKLOG:
            self._backlog.popleft()
            self.dropped += 1
