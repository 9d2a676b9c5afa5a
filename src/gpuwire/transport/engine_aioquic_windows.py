"""aioquic's connection with windows that move by consumption (RFC 9000 section 4.1).

aioquic 1.7 doubles its windows as bytes arrive, which bounds nothing, and lets a peer open a new
stream for every one that ended, read or not. Here both follow what the program has taken, and the
windows grow as `GrowingWindow` says. Private attributes used: `_streams`, `_streams_queue`,
`_local_max_data`, `_local_max_streams_*`, and the methods overridden.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import (
    CONNECTION_LIMIT_FRAME_CAPACITY,
    MAX_STREAM_DATA_FRAME_CAPACITY,
    Limit,
    QuicConnection,
    stream_is_client_initiated,
    stream_is_unidirectional,
)
from aioquic.quic.packet import QuicFrameType
from aioquic.quic.packet_builder import QuicDeliveryState, QuicPacketBuilder
from aioquic.quic.stream import QuicStream

from gpuwire.transport.engine import Piece, StreamData
from gpuwire.transport.engine_aioquic_streams import CreditedReceiver, ReferencingSender
from gpuwire.transport.options import TransportOptions
from gpuwire.transport.windows import USED_UP_BYTES, FlowWindows, GrowingWindow, Mark


class Arrival:
    """What has arrived of one stream since events were last taken."""

    __slots__ = ("end", "pieces", "stream_id")

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self.pieces: list[Piece] = []
        self.end = False


class CreditedQuic(QuicConnection):
    """A connection whose streams are ours (it is their `StreamOwner`) and whose windows are the
    program's."""

    def __init__(
        self, configuration: QuicConfiguration, options: TransportOptions, **connection_ids: Any
    ) -> None:
        super().__init__(configuration=configuration, **connection_ids)
        self._local_max_streams_bidi.value = 0 if configuration.is_client else 1
        self._local_max_streams_bidi.sent = self._local_max_streams_bidi.value
        self._local_max_streams_uni.value = options.max_bulk_streams
        self._local_max_streams_uni.sent = options.max_bulk_streams
        self._stream_window = GrowingWindow(
            first=configuration.max_stream_data, most=options.stream_window_bytes
        )
        self._connection_window = GrowingWindow(
            first=configuration.max_data, most=options.connection_window_bytes
        )
        self._mark = Mark(0.0)
        self._received_at = 0.0
        self._max_bulk_streams = options.max_bulk_streams
        self.progress: dict[int, tuple[int, bool]] = {}
        """By stream: up to where the peer has it, and whether its sending half is finished."""
        self._consumed = 0
        self._arrivals: dict[int, Arrival] = {}
        self._ready: dict[int, QuicStream] = {}
        self._control_queue: deque[QuicStream] = deque()
        self._bulk_queue: deque[QuicStream] = deque()
        self._credit_due: dict[int, QuicStream] = {}

    def consume(self, stream_id: int, count: int) -> bool:
        """The program took `count` bytes of a stream. True if a window should be announced."""
        self._add_connection_credit(count)
        due = self._connection_credit_is_due()
        stream = self._streams.get(stream_id)
        if stream is None or stream.receiver.is_finished:
            return due
        receiver = stream.receiver
        assert isinstance(receiver, CreditedReceiver)
        receiver.consumed += count
        if (
            receiver.highest_offset + USED_UP_BYTES >= stream.max_stream_data_local_sent
            and receiver.consumed == receiver.starting_offset()
        ):
            receiver.used_up = True
        stream.max_stream_data_local = receiver.consumed + self._stream_window.size
        announced = stream.max_stream_data_local_sent
        if stream.max_stream_data_local - announced >= self._stream_window.size // 4:
            self._credit_due[stream_id] = stream
            return True
        return due

    def release(self, stream_id: int) -> bool:
        """The program is done with a stream of the peer. True if a limit should be announced."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            assert isinstance(stream.receiver, CreditedReceiver)
            stream.receiver.is_released = True
            return False
        self._stream_limit(stream_id).value += 1
        return self._stream_credit_is_due(self._stream_limit(stream_id))

    @property
    def unconsumed_bytes(self) -> int:
        """Bytes received that the program has not consumed."""
        return self._local_max_data.used - self._consumed

    @property
    def flow_windows(self) -> FlowWindows:
        """What the peer is let send ahead of the program."""
        return FlowWindows(self._stream_window.size, self._connection_window.size)

    # --- What the streams call (StreamOwner) --------------------------------------------------

    def stream_is_ready(self, stream: QuicStream) -> None:
        stream_id = stream.stream_id
        assert stream_id is not None
        if stream_id not in self._ready:
            self._ready[stream_id] = stream
            is_bulk = stream_is_unidirectional(stream_id)
            (self._bulk_queue if is_bulk else self._control_queue).append(stream)

    def stream_progressed(self, stream_id: int, position: int, is_final: bool) -> None:
        self.progress[stream_id] = (position, is_final)

    def stream_data_arrived(self, stream_id: int, data: Piece, end: bool) -> None:
        arrival = self._arrivals.get(stream_id)
        if arrival is None:
            arrival = self._arrivals[stream_id] = Arrival(stream_id)
            # Among aioquic's own events, so that data and a reset keep their order.
            self._events.append(arrival)  # type: ignore[arg-type]
        arrival.pieces.append(data)
        arrival.end = end

    def arrived(self, arrival: Arrival) -> StreamData:
        """The event for an arrival that is taken out of the queue; what comes later is another."""
        del self._arrivals[arrival.stream_id]
        return StreamData(arrival.stream_id, tuple(arrival.pieces), arrival.end)

    def bytes_discarded(self, count: int) -> None:
        self._add_connection_credit(count)

    # --- Streams come to be -------------------------------------------------------------------

    def _get_or_create_stream(self, frame_type: int, stream_id: int) -> QuicStream:
        known = self._streams.get(stream_id)
        if known is not None:
            return known
        first_new = self._stream_limit(stream_id).used * 4 + stream_id % 4
        stream = super()._get_or_create_stream(frame_type, stream_id)
        for new_id in range(first_new, stream_id + 4, 4):
            self._adopt(self._streams[new_id])
        return stream

    def _get_or_create_stream_for_send(self, stream_id: int) -> QuicStream:
        known = self._streams.get(stream_id)
        if known is not None:
            return known
        stream = super()._get_or_create_stream_for_send(stream_id)
        self._adopt(stream)
        return stream

    def _adopt(self, stream: QuicStream) -> None:
        stream.sender = ReferencingSender(stream, self)
        stream.receiver = CreditedReceiver(stream, self, Mark(self._received_at))
        self._streams_queue.clear()
        stream_id = stream.stream_id or 0
        is_ours = stream_is_client_initiated(stream_id) == self._is_client
        if not is_ours and self._stream_window.size > stream.max_stream_data_local:
            # What other streams have learned of the path.
            stream.max_stream_data_local = self._stream_window.size
            self._credit_due[stream_id] = stream

    # --- Windows ------------------------------------------------------------------------------

    def _add_connection_credit(self, count: int) -> None:
        self._consumed += count
        self._local_max_data.value = self._consumed + self._connection_window.size

    def _connection_credit_is_due(self) -> bool:
        limit = self._local_max_data
        return limit.value - limit.sent >= self._connection_window.size // 4

    def _stream_credit_is_due(self, limit: Limit) -> bool:
        return limit.value - limit.sent >= max(1, self._max_bulk_streams // 4)

    def _write_window_frames(
        self, builder: QuicPacketBuilder, now: float, round_trip: float | None
    ) -> None:
        if self._connection_credit_is_due():
            limit = self._local_max_data
            used_up = limit.used + USED_UP_BYTES >= limit.sent
            if self._connection_window.announced(
                self._mark, self._consumed, now, round_trip, used_up=used_up
            ):
                self._add_connection_credit(0)
            self._write_limit_frame(builder, self._local_max_data)
        if self._stream_credit_is_due(self._local_max_streams_uni):
            self._write_limit_frame(builder, self._local_max_streams_uni)
        while self._credit_due:
            stream_id, stream = next(iter(self._credit_due.items()))
            if not stream.receiver.is_finished:
                self._grow_stream_window(stream, now, round_trip)
                frame = builder.start_frame(
                    QuicFrameType.MAX_STREAM_DATA,
                    capacity=MAX_STREAM_DATA_FRAME_CAPACITY,
                    handler=self._on_max_stream_data_delivery,
                    handler_args=(stream,),
                )
                frame.push_uint_var(stream_id)
                frame.push_uint_var(stream.max_stream_data_local)
                stream.max_stream_data_local_sent = stream.max_stream_data_local
            del self._credit_due[stream_id]

    def _grow_stream_window(self, stream: QuicStream, now: float, round_trip: float | None) -> None:
        receiver = stream.receiver
        assert isinstance(receiver, CreditedReceiver)
        window, used_up = self._stream_window, receiver.used_up
        receiver.used_up = False
        total = receiver.consumed
        if window.announced(receiver.mark, total, now, round_trip, used_up=used_up):
            stream.max_stream_data_local = receiver.consumed + window.size
            # One stream at full rate is not to meet the connection's limit instead.
            self._connection_window.grow_to(window.size * 3 // 2)
            self._add_connection_credit(0)

    def _write_limit_frame(self, builder: QuicPacketBuilder, limit: Limit) -> None:
        frame = builder.start_frame(
            limit.frame_type,
            capacity=CONNECTION_LIMIT_FRAME_CAPACITY,
            handler=self._on_connection_limit_delivery,
            handler_args=(limit,),
        )
        frame.push_uint_var(limit.value)
        limit.sent = limit.value

    def _on_max_stream_data_delivery(self, delivery: QuicDeliveryState, stream: QuicStream) -> None:
        super()._on_max_stream_data_delivery(delivery, stream)
        if delivery is not QuicDeliveryState.ACKED and stream.stream_id in self._streams:
            self._credit_due[stream.stream_id] = stream

    def _discard(self, stream: QuicStream) -> None:
        stream_id = stream.stream_id
        assert stream_id is not None
        if self._streams.pop(stream_id, None) is None:
            return
        self._credit_due.pop(stream_id, None)
        if stream_is_client_initiated(stream_id) != self._is_client:
            assert isinstance(stream.receiver, CreditedReceiver)
            if stream.receiver.is_released:
                self._stream_limit(stream_id).value += 1
