"""aioquic's connection, changed in what it sends when.

Four things differ from aioquic 1.7, each by overriding a method of `QuicConnection`:

- windows move by consumption (RFC 9000 section 4.1); aioquic doubles them as bytes arrive, which
  bounds nothing;
- control streams go first and bulk streams take turns; aioquic serves all streams alike and walks
  over every open stream for every packet;
- an acknowledgement rides on any packet that goes out anyway; aioquic sends it by itself 1 ms
  later, one more packet each way per round trip;
- one call sends one burst, so that a fast upload cannot keep the event loop from reading.

What of aioquic is private and used: the attributes and `_write_*` methods named below, checked
against 1.7.2.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from aioquic import tls
from aioquic._buffer import Buffer
from aioquic.buffer import size_uint_var
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import (
    CONNECTION_LIMIT_FRAME_CAPACITY,
    END_STATES,
    MAX_STREAM_DATA_FRAME_CAPACITY,
    Limit,
    QuicConnection,
    QuicNetworkPath,
    QuicReceiveContext,
    stream_is_client_initiated,
    stream_is_unidirectional,
)
from aioquic.quic.packet import QuicFrameType, QuicPacketType
from aioquic.quic.packet_builder import (
    QuicDeliveryState,
    QuicPacketBuilder,
    QuicPacketBuilderStop,
)
from aioquic.quic.recovery import QuicPacketSpace
from aioquic.quic.stream import QuicStream
from cryptography.exceptions import UnsupportedAlgorithm

from gpuwire.transport.congestion import CoarsePacer, MeasuringReno
from gpuwire.transport.engine import Datagram, TerminationCause
from gpuwire.transport.engine_aioquic_streams import CreditedReceiver, ReferencingSender
from gpuwire.transport.fingerprints import fingerprint_of
from gpuwire.transport.options import SMALLEST_DATAGRAM_BYTES, TransportOptions

BURST_BYTES = 128 * 1024
"""A burst ends after this; at the 80 MB/s that aioquic reaches here that is 1.6 ms."""

SIZE_PROBES = 3
"""A size that was lost so often does not pass (RFC 8899 section 5.1.2, MAX_PROBES)."""

BLACK_HOLE_TIMEOUTS = 3
"""Probe timeouts in a row after which large datagrams are blamed."""

SMALLEST_STREAM_FRAME = 16

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


class Quic(QuicConnection):
    """One connection; `AioquicEngine` is its face."""

    def __init__(
        self,
        configuration: QuicConfiguration,
        options: TransportOptions,
        *,
        pinned: str | None = None,
        largest_datagram_bytes: int = 0,
        **connection_ids: Any,
    ) -> None:
        super().__init__(configuration=configuration, **connection_ids)
        # A warning about every broken peer on the server's stderr helps nobody: the cause is in
        # `Terminated`. A logger outside the registry that is switched off costs least.
        self._logger = logging.Logger("aioquic", logging.CRITICAL + 1)  # type: ignore[assignment]
        self._loss._logger = None
        self.congestion = MeasuringReno(max_datagram_size=self._max_datagram_size)
        self._loss._cc = self.congestion
        self._loss._pacer = CoarsePacer(max_datagram_size=self._max_datagram_size)
        self._local_max_streams_bidi.value = 0 if configuration.is_client else 1
        self._local_max_streams_bidi.sent = self._local_max_streams_bidi.value
        self._local_max_streams_uni.value = options.max_bulk_streams
        self._local_max_streams_uni.sent = options.max_bulk_streams

        self._stream_window = options.stream_window_bytes
        self._connection_window = options.connection_window_bytes
        # Of the peer's window, bulk streams leave this to control: streams that nobody reads must
        # not shut out a heartbeat.
        self._control_reserve = options.connection_window_bytes // 16
        self._max_bulk_streams = options.max_bulk_streams
        self._pinned = pinned
        self.peer_fingerprint: str | None = None
        self.cause: TerminationCause | None = None
        self.has_more_to_send = False
        self.progress: dict[int, tuple[int, bool]] = {}
        self._consumed = 0
        self._ready: dict[int, QuicStream] = {}
        self._control_queue: deque[QuicStream] = deque()
        self._bulk_queue: deque[QuicStream] = deque()
        self._credit_due: dict[int, QuicStream] = {}
        self._size_target = largest_datagram_bytes
        self._size_probes_left = SIZE_PROBES
        self._size_probe_under_way = False

    # --- What the engine's face calls ---------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Ended, and whatever had to be said to the peer is said."""
        return self._close_event is not None and not self._close_pending

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
        stream.max_stream_data_local = receiver.consumed + self._stream_window
        announced = stream.max_stream_data_local_sent
        if stream.max_stream_data_local - announced >= self._stream_window // 4:
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

    def set_datagram_bytes(self, size: int) -> None:
        """Sends full datagrams of `size` bytes from now on."""
        self._max_datagram_size = size
        self.congestion.set_datagram_bytes(size)
        pacer = self._loss._pacer
        assert isinstance(pacer, CoarsePacer)
        pacer.set_datagram_bytes(size)

    def limit_datagrams(self) -> None:
        """Goes back to the smallest full datagram, for good."""
        self._size_target = 0
        self.set_datagram_bytes(SMALLEST_DATAGRAM_BYTES)

    @property
    def unconsumed_bytes(self) -> int:
        """Bytes received that the program has not consumed."""
        return self._local_max_data.used - self._consumed

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
        stream.receiver = CreditedReceiver(stream, self)
        self._streams_queue.clear()

    # --- The handshake, and the end -----------------------------------------------------------

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        if not self._is_client:
            return
        take_certificate = self.tls._set_peer_certificate

        def check_key(message: Any) -> None:
            take_certificate(message)
            certificate: Certificate | None = self.tls._peer_certificate
            assert certificate is not None
            try:
                self.peer_fingerprint = fingerprint_of(certificate.public_key())
            except (ValueError, UnsupportedAlgorithm):
                self.peer_fingerprint = "a key of an unknown kind"
            if self._pinned is not None and self.peer_fingerprint != self._pinned:
                # Before the client's Finished: the server learns nothing but that it is not wanted.
                self.cause = TerminationCause.WRONG_KEY
                raise tls.AlertBadCertificate("the key is not the pinned one")

        self.tls._set_peer_certificate = check_key  # type: ignore[assignment, method-assign]

    def _handle_connection_close_frame(
        self, context: QuicReceiveContext, frame_type: int, buf: Buffer
    ) -> None:
        if self._close_event is None:
            self.cause = TerminationCause.CLOSED_BY_PEER
        super()._handle_connection_close_frame(context, frame_type, buf)

    def _receive_version_negotiation_packet(self, header: Any, now: float) -> None:
        super()._receive_version_negotiation_packet(header, now)
        if self._close_event is not None and self.cause is None:
            self.cause = TerminationCause.NO_COMMON_VERSION

    def _abandon_path_validation(self) -> None:
        super()._abandon_path_validation()
        if self._close_event is not None and self.cause is None:
            self.cause = TerminationCause.SILENCE

    def handle_timer(self, now: float) -> None:
        if self._close_event is None and self._close_at is not None and now >= self._close_at:
            self.cause = TerminationCause.SILENCE
        super().handle_timer(now)
        if (
            self._loss._pto_count >= BLACK_HOLE_TIMEOUTS
            and self._max_datagram_size > SMALLEST_DATAGRAM_BYTES
        ):
            self.limit_datagrams()

    # --- Sending ------------------------------------------------------------------------------

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        self.has_more_to_send = False
        datagrams = super().datagrams_to_send(now)
        if (
            self._size_target > self._max_datagram_size
            and self._handshake_confirmed
            and self._size_probes_left
            and not self._size_probe_under_way
            and self._state not in END_STATES
        ):
            datagrams += self._size_probe(now)
        return datagrams

    def _write_application(
        self, builder: QuicPacketBuilder, network_path: QuicNetworkPath, now: float
    ) -> None:
        crypto = self._cryptos[tls.Epoch.ONE_RTT]
        if not crypto.send.is_valid():
            return
        space = self._spaces[tls.Epoch.ONE_RTT]
        packets_left = max(8, BURST_BYTES // self._max_datagram_size)
        while True:
            ack_is_due = space.ack_at is not None and space.ack_at <= now
            if not ack_is_due and not self._has_frames(network_path):
                return
            if packets_left == 0:
                self.has_more_to_send = True
                return
            if not ack_is_due:
                self._pacing_at = self._loss._pacer.next_send_time(now=now)
                if self._pacing_at is not None:
                    return
            builder.start_packet(QuicPacketType.ONE_RTT, crypto)
            if space.ack_at is not None:
                self._write_ack_frame(builder=builder, space=space, now=now)
            if self._handshake_complete:
                self._write_rare_frames(builder, network_path, now)
            self._write_window_frames(builder, space)
            self._write_pings_and_crypto(builder, space)
            self._write_streams(builder, space)
            if builder.packet_is_empty:
                # Streams that were only discarded may have made room for new ones.
                if self._stream_credit_is_due(self._local_max_streams_uni):
                    continue
                return
            self._loss._pacer.update_after_send(now=now)
            packets_left -= 1

    def _has_frames(self, network_path: QuicNetworkPath) -> bool:
        return bool(
            self._ready
            or self._credit_due
            or self._ping_pending
            or self._probe_pending
            or self._handshake_done_pending
            or self._retire_connection_ids
            or self._streams_blocked_pending
            or network_path.remote_challenges
            or self._connection_credit_is_due()
            or self._stream_credit_is_due(self._local_max_streams_uni)
            or (self._handshake_complete and not network_path.is_validated)
            or not self._crypto_streams[tls.Epoch.ONE_RTT].sender.buffer_is_empty
            or any(not connection_id.was_sent for connection_id in self._host_cids)
        )

    def _write_rare_frames(
        self, builder: QuicPacketBuilder, network_path: QuicNetworkPath, now: float
    ) -> None:
        if not network_path.is_validated and not network_path.local_challenge_sent:
            self._write_path_challenge_frame(builder=builder, network_path=network_path)
            if network_path.validation_deadline is None:
                # RFC 9000 section 8.2.4: three times the larger of the path's and a new path's
                # probe timeout.
                patience = max(self._loss.get_probe_timeout(), 2 * self._configuration.initial_rtt)
                network_path.validation_deadline = now + 3 * patience
        if self._handshake_done_pending:
            self._write_handshake_done_frame(builder=builder)
            self._handshake_done_pending = False
        while network_path.remote_challenges:
            challenge = network_path.remote_challenges[0]
            self._write_path_response_frame(builder=builder, challenge=challenge)
            network_path.remote_challenges.popleft()
        for connection_id in self._host_cids:
            if not connection_id.was_sent:
                self._write_new_connection_id_frame(builder=builder, connection_id=connection_id)
        while self._retire_connection_ids:
            number = self._retire_connection_ids[0]
            self._write_retire_connection_id_frame(builder=builder, sequence_number=number)
            self._retire_connection_ids.pop(0)
        if self._streams_blocked_pending:
            if self._streams_blocked_uni:
                self._write_streams_blocked_frame(
                    builder=builder,
                    frame_type=QuicFrameType.STREAMS_BLOCKED_UNI,
                    limit=self._remote_max_streams_uni,
                )
            self._streams_blocked_pending = False

    def _write_pings_and_crypto(self, builder: QuicPacketBuilder, space: QuicPacketSpace) -> None:
        if self._ping_pending:
            self._write_ping_frame(builder, self._ping_pending)
            self._ping_pending.clear()
        if self._probe_pending:
            self._write_ping_frame(builder, comment="probe")
            self._probe_pending = False
        crypto_stream = self._crypto_streams[tls.Epoch.ONE_RTT]
        if not crypto_stream.sender.buffer_is_empty:
            self._write_crypto_frame(builder=builder, space=space, stream=crypto_stream)

    # --- Windows ------------------------------------------------------------------------------

    def _add_connection_credit(self, count: int) -> None:
        self._consumed += count
        self._local_max_data.value = self._consumed + self._connection_window

    def _connection_credit_is_due(self) -> bool:
        limit = self._local_max_data
        return limit.value - limit.sent >= self._connection_window // 4

    def _stream_credit_is_due(self, limit: Limit) -> bool:
        return limit.value - limit.sent >= max(1, self._max_bulk_streams // 4)

    def _write_window_frames(self, builder: QuicPacketBuilder, space: QuicPacketSpace) -> None:
        if self._connection_credit_is_due():
            self._write_limit_frame(builder, self._local_max_data)
        if self._stream_credit_is_due(self._local_max_streams_uni):
            self._write_limit_frame(builder, self._local_max_streams_uni)
        while self._credit_due:
            stream_id, stream = next(iter(self._credit_due.items()))
            if not stream.receiver.is_finished:
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

    # --- Streams ------------------------------------------------------------------------------

    def _write_streams(self, builder: QuicPacketBuilder, space: QuicPacketSpace) -> None:
        """Fills the packet: control streams to the end, then one frame of each bulk stream in
        turn; the stream that was served goes to the end of its queue."""
        for queue in (self._control_queue, self._bulk_queue):
            for _ in range(len(queue)):
                if builder.remaining_flight_space < SMALLEST_STREAM_FRAME:
                    return
                stream = queue.popleft()
                try:
                    still_ready = self._write_one_stream(builder, stream)
                except QuicPacketBuilderStop:
                    queue.appendleft(stream)
                    raise
                if still_ready:
                    queue.append(stream)
                else:
                    del self._ready[stream.stream_id or 0]

    def _write_one_stream(self, builder: QuicPacketBuilder, stream: QuicStream) -> bool:
        """Writes what fits; returns whether the stream has more to send."""
        if stream.is_finished:
            self._discard(stream)
            return False
        if stream.receiver.stop_pending:
            self._write_stop_sending_frame(builder=builder, stream=stream)
        sender = stream.sender
        if sender.reset_pending:
            self._write_reset_stream_frame(builder=builder, stream=stream)
        elif not stream.is_blocked and not sender.buffer_is_empty:
            self._write_data(builder, stream)
        return not sender.buffer_is_empty

    def _write_data(self, builder: QuicPacketBuilder, stream: QuicStream) -> None:
        sender = stream.sender
        stream_id = stream.stream_id or 0
        overhead = 3 + size_uint_var(stream_id) + size_uint_var(sender.next_offset)
        highest = sender.highest_offset
        connection_room = self._remote_max_data - self._remote_max_data_used
        if stream_is_unidirectional(stream_id):
            connection_room = max(0, connection_room - self._control_reserve)
        frame = sender.get_frame(
            builder.remaining_flight_space - overhead,
            min(highest + connection_room, stream.max_stream_data_remote),
        )
        if frame is None:
            return
        end = frame.offset + len(frame.data)
        buffer = builder.start_frame(
            QuicFrameType.STREAM_BASE | 2 | 4 | frame.fin,  # with length, offset and maybe the end
            capacity=overhead,
            handler=sender.on_data_delivery,
            handler_args=(frame.offset, end, frame.fin),
        )
        buffer.push_uint_var(stream_id)
        buffer.push_uint_var(frame.offset)
        buffer.push_uint16(len(frame.data) | 0x4000)
        buffer.push_bytes(frame.data)
        self._remote_max_data_used += sender.highest_offset - highest

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

    # --- Datagram size ------------------------------------------------------------------------

    def _size_probe(self, now: float) -> list[Datagram]:
        """One padded PING of the size that is hoped for (RFC 9000 section 14.4)."""
        builder = QuicPacketBuilder(
            host_cid=self.host_cid,
            is_client=self._is_client,
            max_datagram_size=self._size_target,
            packet_number=self._packet_number,
            peer_cid=self._peer_cid.cid,
            spin_bit=self._spin_bit,
            version=self._version or 0,
        )
        builder.start_packet(QuicPacketType.ONE_RTT, self._cryptos[tls.Epoch.ONE_RTT])
        frame = builder.start_frame(
            QuicFrameType.PING,
            handler=self._on_size_probe_delivery,
            handler_args=(self._size_target,),
        )
        frame.push_bytes(bytes(builder.remaining_buffer_space))
        self._size_probe_under_way = True
        return self._flush_builder(
            builder=builder,
            network_path=self._network_paths[0],
            peer_cid=self._peer_cid.cid,
            now=now,
        )

    def _on_size_probe_delivery(self, delivery: QuicDeliveryState, size: int) -> None:
        self._size_probe_under_way = False
        if delivery is not QuicDeliveryState.ACKED:
            self._size_probes_left -= 1
        elif size == self._size_target:
            self.set_datagram_bytes(size)
