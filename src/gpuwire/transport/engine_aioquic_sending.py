"""aioquic's connection with an order of sending of its own, and a short way for bulk.

Four things differ from aioquic 1.7's `_write_application`:

- control streams go first and bulk streams take turns; aioquic serves all streams alike and walks
  over every open stream for every packet;
- an acknowledgement rides on any packet that goes out anyway; aioquic sends it by itself 1 ms
  later, one more packet each way per round trip;
- one call sends one burst, so that a fast upload cannot keep the event loop from reading;
- packets of bulk bytes are made a burst at a time (`BulkQuic`).

All other frames are written by aioquic's private `_write_*_frame` methods.
"""

from __future__ import annotations

from typing import Any

from aioquic import tls
from aioquic.buffer import size_uint_var
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import END_STATES, QuicNetworkPath, stream_is_unidirectional
from aioquic.quic.packet import QuicFrameType, QuicPacketType
from aioquic.quic.packet_builder import QuicPacketBuilder, QuicPacketBuilderStop
from aioquic.quic.recovery import QuicPacketSpace
from aioquic.quic.stream import QuicStream

from gpuwire.transport.engine import Datagram
from gpuwire.transport.engine_aioquic_bulk import BURST_BYTES, BulkQuic
from gpuwire.transport.options import TransportOptions

SMALLEST_STREAM_FRAME = 16
LARGEST_BUILT_DATAGRAM = 16_000
"""aioquic's builder writes lengths in two bytes and so ends at 16,383 (RFC 9000 section 16)."""


class SchedulingQuic(BulkQuic):
    """A connection that sends control before bulk, in bursts."""

    def __init__(
        self, configuration: QuicConfiguration, options: TransportOptions, **connection_ids: Any
    ) -> None:
        super().__init__(configuration, options, **connection_ids)
        self._builds_bulk = True

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        """What is to be sent now, at most one burst and a few packets of control."""
        self.has_more_to_send = False
        if self._state in END_STATES:
            return []
        is_plain = (
            self._handshake_confirmed
            and not self._close_pending
            and len(self._network_paths) == 1
            and self._network_paths[0].is_validated
        )
        if not is_plain:
            return self._built(now, with_bulk=True)
        datagrams: list[Datagram] = []
        space = self._spaces[tls.Epoch.ONE_RTT]
        self._pacing_at = None
        if (space.ack_at is not None and space.ack_at <= now) or self._has_frames():
            datagrams = self._built(now, with_bulk=False)
        if self._bulk_queue:
            burst, has_rests = self._bulk_burst(space, now)
            datagrams += burst
            if has_rests and not self.has_more_to_send and self._pacing_at is None:
                datagrams += self._built(now, with_bulk=True)
        if self._pacing_at is None and not self.has_more_to_send:
            control = self.congestion
            if control.bytes_in_flight + self._max_datagram_size <= control.congestion_window:
                control.on_idle()
        return datagrams

    # --- Everything else, with aioquic's builder ----------------------------------------------

    def _built(self, now: float, *, with_bulk: bool) -> list[Datagram]:
        self._builds_bulk = with_bulk
        full, self._max_datagram_size = (
            self._max_datagram_size,
            min(self._max_datagram_size, LARGEST_BUILT_DATAGRAM),
        )
        pacing_at = self._pacing_at
        try:
            datagrams = super().datagrams_to_send(now)
        finally:
            self._max_datagram_size = full
        if self._pacing_at is None:
            self._pacing_at = pacing_at
        self._pacer.spend(sum(len(data) for data, _ in datagrams))
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
            has_frames = self._has_frames()
            if not ack_is_due and not has_frames and not (self._builds_bulk and self._bulk_queue):
                return
            if packets_left == 0:
                self.has_more_to_send = True
                return
            if not ack_is_due and not has_frames and not self._may_send_bulk(now):
                return
            builder.start_packet(QuicPacketType.ONE_RTT, crypto)
            if space.ack_at is not None:
                self._write_ack_frame(builder=builder, space=space, now=now)
                self._bytes_to_acknowledge = 0
            if self._handshake_complete:
                self._write_rare_frames(builder, network_path, now)
            self._write_window_frames(builder, now, self.congestion.recent_round_trip)
            self._write_pings_and_crypto(builder, space)
            self._write_streams(builder)
            if builder.packet_is_empty:
                # Streams that were only discarded may have made room for new ones.
                if self._stream_credit_is_due(self._local_max_streams_uni):
                    continue
                return
            packets_left -= 1

    def _may_send_bulk(self, now: float) -> bool:
        rate, size = self.congestion.pacing_rate, self._max_datagram_size
        if self._pacer.allowance(now, rate, size) > 0:
            return True
        self._pacing_at = self._pacer.due(now, rate, size)
        return False

    def _has_frames(self) -> bool:
        """Whether there is anything to send but acknowledgements and bulk bytes."""
        network_path = self._network_paths[0]
        return bool(
            self._control_queue
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

    # --- Streams ------------------------------------------------------------------------------

    def _write_streams(self, builder: QuicPacketBuilder) -> None:
        """Fills the packet: control streams to the end, then one frame of each bulk stream in
        turn; the stream that was served goes to the end of its queue."""
        queues = (self._control_queue, self._bulk_queue)
        for queue in queues if self._builds_bulk else queues[:1]:
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
