"""A connection: streams over one QUIC engine."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from gpuwire.errors import GpuwireError, ProtocolError
from gpuwire.transport.closing import close_cause
from gpuwire.transport.driver import EngineDriver
from gpuwire.transport.engine import (
    Address,
    ConnectionIdIssued,
    ConnectionIdRetired,
    Datagram,
    Event,
    HandshakeCompleted,
    QuicEngine,
    StreamAcknowledged,
    StreamData,
    StreamWasReset,
    StreamWasStopped,
    Terminated,
)
from gpuwire.transport.offload import Offload
from gpuwire.transport.options import TransportOptions
from gpuwire.transport.path import PathInfo
from gpuwire.transport.streams import (
    ReceiveStream,
    SendStream,
    Stream,
    renewed,
    reset_by_peer,
    stopped_by_peer,
)

MAPPED_IPV4 = "::ffff:"


class Endpoint(Protocol):
    """Whoever owns the socket, as its connections see it."""

    def send(self, datagrams: Sequence[Datagram], offload: Offload) -> None:
        """Puts datagrams on the wire."""

    def connection_id_issued(self, connection: Connection, connection_id: bytes) -> None:
        """The peer may use this id from now on."""

    def connection_id_retired(self, connection_id: bytes) -> None:
        """The peer no longer uses this id."""

    def handshake_completed(self, connection: Connection) -> None:
        """Streams may be used."""

    def connection_ended(self, connection: Connection, end: Terminated | None) -> None:
        """Nothing more will be sent; `end` is None where the endpoint itself gave it up."""


class Connection:
    """A QUIC connection with one control stream and any number of bulk streams.

    Made by `connect` and `listen`; used from the event loop's thread only. Control bytes go out
    before bulk bytes, and bulk streams take turns packet by packet.
    """

    def __init__(self, engine: QuicEngine, endpoint: Endpoint, options: TransportOptions) -> None:
        self._engine = engine
        self._endpoint = endpoint
        self._options = options
        self._driver = EngineDriver(engine, endpoint.send, self._handle_event, options)
        self._sending: dict[int, SendStream] = {}
        self._receiving: dict[int, ReceiveStream] = {}
        self._arrived_control: deque[Stream] = deque()
        self._arrived_bulk: deque[ReceiveStream] = deque()
        self._arrival_waiters: list[asyncio.Future[None]] = []
        self._close_cause: GpuwireError | None = None
        self._closed = asyncio.Event()

    async def open_control(self) -> Stream:
        """Client: opens the one control stream. Call it once."""
        self._raise_if_closed()
        return self._open_bidirectional()

    async def accept_control(self) -> Stream:
        """Server: waits for the client's control stream, which comes with its first bytes. Raises
        `close_cause` if none comes."""
        await self._wait_for_arrival(lambda: bool(self._arrived_control))
        return self._arrived_control.popleft()

    def open_bulk(self) -> SendStream:
        """Opens a unidirectional stream to the peer, on both sides. Never waits: where the peer
        allows no further stream yet, the bytes wait in the stream until it does."""
        self._raise_if_closed()
        return self._add_sending(self._engine.open_stream(bidirectional=False))

    async def accept_bulk(self) -> ReceiveStream:
        """The next unidirectional stream that the peer opened, in the order in which their first
        bytes arrived. One caller at a time."""
        await self._wait_for_arrival(lambda: bool(self._arrived_bulk))
        return self._arrived_bulk.popleft()

    @property
    def path(self) -> PathInfo:
        """What is known of the way to the peer now."""
        address = self._engine.address
        host = str(address[0])
        return PathInfo(
            host=host.removeprefix(MAPPED_IPV4) if "." in host else host,
            port=int(address[1]),
            engine=self._engine.name,
            datagram_bytes=self._engine.datagram_bytes,
            rtt_seconds=self._engine.round_trip,
            bytes_sent=self._driver.bytes_sent,
            bytes_received=self._driver.bytes_received,
            congestion_window_bytes=self._engine.congestion_window_bytes,
            windows=self._engine.flow_windows,
            packets_lost=self._engine.packets_lost,
            packets_sent=self._engine.packets_sent,
            datagram_search=self._engine.datagram_search,
            offload=self._driver.offload.info,
        )

    @property
    def bytes_per_second(self) -> float:
        """The rate at which the path has delivered lately, as far as is known; 0 before. What was
        sent in small pieces makes it too low."""
        return self._engine.bytes_per_second

    def close(self, error_code: int = 0, reason: str = "") -> None:
        """Tells the peer and ends the connection at once; bytes not yet acknowledged may be lost
        (`SendStream.wait_acknowledged` comes before). Does nothing if it is closed already."""
        if self._close_cause is None:
            self._engine.close(error_code, reason)
            self._driver.transmit()

    async def wait_closed(self) -> None:
        """Returns when the connection has ended, whoever ended it."""
        await self._closed.wait()

    @property
    def close_cause(self) -> GpuwireError | None:
        """Why it ended; None while it is open. `ConnectionClosed` by either side with its code and
        reason, `LinkLost` after silence, `ProtocolError` when the peer broke QUIC's rules."""
        return self._close_cause

    @property
    def received_unread_bytes(self) -> int:
        """Bytes held for streams that the program has not read; at most the connection's window."""
        return self._engine.unconsumed_bytes

    # --- Called by the endpoint ---------------------------------------------------------------

    def handle_datagrams(self, datagrams: Sequence[Datagram]) -> None:
        """Takes in a batch that arrived for this connection."""
        try:
            self._driver.receive(datagrams)
        except Exception as error:  # noqa: BLE001 - a peer's bytes must not reach the event loop
            failure = ProtocolError(
                f"the connection broke while handling what the peer sent: {error!r}"
            )
            failure.__cause__ = error
            self.abandon(failure)

    def handle_too_large(self, size: int) -> None:
        """The system refused a datagram for its size."""
        self._driver.datagram_refused(size)

    def handle_move(self) -> None:
        """This side's address has changed; what follows goes out from the new one."""
        if self._close_cause is None:
            self._engine.move()
            self._driver.transmit()

    def is_at(self, address: Address) -> bool:
        """Whether the peer is there now."""
        return bool(self._engine.address == address)

    def start(self) -> None:
        """Sends the first flight."""
        self._driver.transmit()

    def abandon(self, cause: GpuwireError) -> None:
        """Ends the connection without a word to the peer."""
        if self._close_cause is None:
            self._end(cause)
            self._endpoint.connection_ended(self, None)

    # --- Events -------------------------------------------------------------------------------

    def _handle_event(self, event: Event) -> None:
        if isinstance(event, StreamData):
            self._receiving_stream(event.stream_id).handle_data(event.pieces, end=event.end)
            if event.end:
                self._forget_ended(event.stream_id)
        elif isinstance(event, StreamAcknowledged):
            sender = self._sending.get(event.stream_id)
            if sender is not None:
                sender.handle_acknowledged(event.position)
                if event.is_final:
                    del self._sending[event.stream_id]
        elif isinstance(event, StreamWasReset):
            receiver = self._receiving_stream(event.stream_id)
            receiver.handle_failure(reset_by_peer(event.error_code))
            self._forget_ended(event.stream_id)
        elif isinstance(event, StreamWasStopped):
            stopped = self._sending.pop(event.stream_id, None)
            if stopped is not None:
                stopped.handle_failure(stopped_by_peer(event.error_code))
        elif isinstance(event, ConnectionIdIssued):
            self._endpoint.connection_id_issued(self, event.connection_id)
        elif isinstance(event, ConnectionIdRetired):
            self._endpoint.connection_id_retired(event.connection_id)
        elif isinstance(event, HandshakeCompleted):
            self._endpoint.handshake_completed(self)
        elif isinstance(event, Terminated):
            self._end(close_cause(event, self._options))
            self._endpoint.connection_ended(self, event)

    def _receiving_stream(self, stream_id: int) -> ReceiveStream:
        stream = self._receiving.get(stream_id)
        if stream is not None:
            return stream
        stream = self._add_receiving(stream_id)
        if stream_id & 2:  # unidirectional (RFC 9000 section 2.1)
            self._arrived_bulk.append(stream)
        else:
            self._arrived_control.append(Stream(stream, self._add_sending(stream_id)))
        self._wake_arrival_waiters()
        return stream

    def _open_bidirectional(self) -> Stream:
        stream_id = self._engine.open_stream(bidirectional=True)
        return Stream(self._add_receiving(stream_id), self._add_sending(stream_id))

    def _add_sending(self, stream_id: int) -> SendStream:
        stream = SendStream(stream_id, self._engine, self._driver, self._options)
        self._sending[stream_id] = stream
        return stream

    def _add_receiving(self, stream_id: int) -> ReceiveStream:
        stream = ReceiveStream(stream_id, self._engine, self._driver, self._options)
        self._receiving[stream_id] = stream
        return stream

    def _forget_ended(self, stream_id: int) -> None:
        # The program's own reference keeps what is still to be read.
        self._receiving.pop(stream_id, None)

    async def _wait_for_arrival(self, has_arrived: Callable[[], bool]) -> None:
        while not has_arrived():
            self._raise_if_closed()
            waiter = asyncio.get_running_loop().create_future()
            self._arrival_waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._arrival_waiters:
                    self._arrival_waiters.remove(waiter)

    def _wake_arrival_waiters(self) -> None:
        waiters, self._arrival_waiters = self._arrival_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _end(self, cause: GpuwireError) -> None:
        self._close_cause = cause
        self._driver.stop()
        for sender in self._sending.values():
            sender.handle_failure(cause)
        for receiver in self._receiving.values():
            receiver.handle_failure(cause)
        self._sending.clear()
        self._receiving.clear()
        self._closed.set()
        self._wake_arrival_waiters()

    def _raise_if_closed(self) -> None:
        if self._close_cause is not None:
            raise renewed(self._close_cause)
