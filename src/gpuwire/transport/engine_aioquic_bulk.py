"""aioquic's connection with a short way out for bulk: packets made a burst at a time.

Each carries one STREAM frame without a length, so that neither frame nor packet has a size limit
but the datagram's own. Checked against aioquic 1.7.2, whose private attributes are used.

Copies of an upload's bytes between the caller's memory and the kernel: one to join a frame's head
to its bytes, since encryption wants them in one piece; encryption itself; one to join the protected
head to the sealed body, since `send` takes one piece. Encrypting into the packet's own buffer was
measured: 8 % faster at 64,000 bytes, slower below 16,000.
"""

from __future__ import annotations

from typing import Any

from aioquic import tls
from aioquic.buffer import encode_uint_var
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicFrameType
from aioquic.quic.recovery import QuicPacketSpace
from aioquic.quic.stream import QuicStream

from gpuwire.transport.congestion import Pacer, RateControl
from gpuwire.transport.engine import Datagram
from gpuwire.transport.engine_aioquic_packets import NUMBER_BYTES, TAG_BYTES, BulkPacket, seal
from gpuwire.transport.engine_aioquic_receiving import ReceivingQuic
from gpuwire.transport.engine_aioquic_recovery import Recovery
from gpuwire.transport.options import TransportOptions

BURST_BYTES = 128 * 1024
"""A burst ends after this: 1 to 2 ms of work."""

LONG_OFFSET = 1 << 30
"""Offsets up to here take four bytes, larger ones eight."""

PACKETS_OF_A_KEY = 1 << 22
"""Half of what AES-GCM may seal with one key (RFC 9001 section 6.6: 2^23 packets)."""


class BulkQuic(ReceivingQuic):
    """A connection that makes packets of bulk bytes itself, paced and within the congestion
    window."""

    def __init__(
        self, configuration: QuicConfiguration, options: TransportOptions, **connection_ids: Any
    ) -> None:
        super().__init__(configuration, options, **connection_ids)
        self.congestion = RateControl(max_datagram_size=self._max_datagram_size)
        self._loss: Recovery = Recovery(
            control=self.congestion,
            is_client=self._is_client,
            send_probe=self._send_probe,
            rtt=configuration.initial_rtt,
        )
        self._pacer = Pacer()
        self.has_more_to_send = False
        self._key_good_until = PACKETS_OF_A_KEY
        self._first_window = 0

    def _bulk_burst(self, space: QuicPacketSpace, now: float) -> tuple[list[Datagram], bool]:
        """Packets of bulk bytes, the streams taking turns; and whether streams have something else
        to say."""
        control, size = self.congestion, self._max_datagram_size
        rate = control.pacing_rate
        allowance = self._pacer.allowance(now, rate, size)
        window = control.congestion_window - control.bytes_in_flight
        most = min(window, allowance, BURST_BYTES if size < BURST_BYTES // 2 else 2 * size) // size
        queue = self._bulk_queue
        capacity = size - 1 - len(self._peer_cid.cid) - NUMBER_BYTES - TAG_BYTES
        number = self._packet_number
        packets: list[BulkPacket] = []
        plaintexts: list[bytes] = []
        idle_streams = rests = 0
        while len(packets) < most and idle_streams < len(queue):
            stream = queue[0]
            if stream.is_finished:
                queue.popleft()
                del self._ready[stream.stream_id or 0]
                self._discard(stream)
                continue
            run = most - len(packets) if len(queue) == 1 else 1
            took = self._take_pieces(stream, capacity, run, number, now, packets, plaintexts)
            number += took
            if took:
                idle_streams = 0
            else:
                idle_streams += 1
                rests += self._wants_built_packet(stream)
            if took and not stream.sender.buffer_is_empty:
                queue.rotate(-1)
            elif took:
                queue.popleft()
                del self._ready[stream.stream_id or 0]
            else:
                queue.rotate(-1)
        datagrams = self._sealed(space, packets, plaintexts, now) if packets else []
        self._note_what_stopped(len(packets), most, window, allowance, rate, now, idle_streams)
        return datagrams, rests > 0

    def _note_what_stopped(
        self,
        count: int,
        most: int,
        window: int,
        allowance: int,
        rate: float | None,
        now: float,
        idle_streams: int,
    ) -> None:
        size = self._max_datagram_size
        if idle_streams >= len(self._bulk_queue) or window < (count + 1) * size:
            return
        if count == most and allowance >= (count + 1) * size:
            self.has_more_to_send = True
        else:
            self._pacing_at = self._pacer.due(now, rate, size)

    def _take_pieces(
        self,
        stream: QuicStream,
        capacity: int,
        most: int,
        number: int,
        now: float,
        packets: list[BulkPacket],
        plaintexts: list[bytes],
    ) -> int:
        """Up to `most` packets of one stream, full but for the end of a range; returns how many."""
        sender: Any = stream.sender
        if not self._is_plain_data(stream):
            return 0
        stream_id = encode_uint_var(stream.stream_id or 0)
        reserve = self._control_reserve
        took = 0
        while took < most:
            pending = sender.next_range()
            if pending is None:
                break
            start, pending_stop = pending
            is_long = start >= LONG_OFFSET
            stop = start + capacity - 1 - len(stream_id) - (8 if is_long else 4)
            highest = sender.highest_offset
            room = self._remote_max_data - self._remote_max_data_used - reserve
            stop = min(stop, pending_stop, highest + room, stream.max_stream_data_remote)
            if stop <= start or (stop - start < capacity // 2 and self._shares_packets(stream)):
                break
            piece, fin = sender.take(start, stop)
            if stop > highest:
                self._remote_max_data_used += stop - highest
            kind = QuicFrameType.STREAM_BASE | 4 | fin
            offset = (
                (start | 3 << 62).to_bytes(8, "big")
                if is_long
                else (start | 2 << 30).to_bytes(4, "big")
            )
            # The one copy that cannot be spared: encryption wants the frame in one piece.
            plaintexts.append(b"".join((kind.to_bytes(1, "big"), stream_id, offset, piece)))
            packets.append(BulkPacket(number + took, sender, start, stop, fin, now))
            took += 1
        return took

    def _is_plain_data(self, stream: QuicStream) -> bool:
        """Whether all that the stream wants is to send bytes."""
        sender: Any = stream.sender
        return not (
            stream.is_finished
            or stream.is_blocked
            or stream.receiver.stop_pending
            or sender.reset_pending
            or sender._reset_error_code is not None
        )

    def _shares_packets(self, stream: QuicStream) -> bool:
        """Whether a short rest of the stream should go in one packet with those of others."""
        sender: Any = stream.sender
        return len(self._bulk_queue) > 1 and len(sender._pending) == 1

    def _wants_built_packet(self, stream: QuicStream) -> bool:
        """Whether the stream has something to send that `_take_pieces` does not: a short rest, its
        bare end, or that it is given up. One that only waits for the peer's window has not."""
        if not self._is_plain_data(stream):
            return not stream.is_blocked
        sender: Any = stream.sender
        pending = sender.next_range()
        if pending is None:
            return not sender.buffer_is_empty
        room = self._remote_max_data - self._remote_max_data_used - self._control_reserve
        return bool(pending[0] < min(sender.highest_offset + room, stream.max_stream_data_remote))

    def _sealed(
        self,
        space: QuicPacketSpace,
        packets: list[BulkPacket],
        plaintexts: list[bytes],
        now: float,
    ) -> list[Datagram]:
        path = self._network_paths[0]
        pair = self._cryptos[tls.Epoch.ONE_RTT]
        first = packets[0].packet_number
        if first >= self._key_good_until:
            pair.update_key()
            self._key_good_until = first + PACKETS_OF_A_KEY
        sealed = seal(pair, self._peer_cid.cid, self._spin_bit, first, plaintexts)
        total = 0
        for packet, data in zip(packets, sealed, strict=True):
            packet.sent_bytes = len(data)
            total += len(data)
        self._packet_number = first + len(packets)
        self._loss.on_bulk_sent(packets, space)
        self._pacer.spend(total)
        path.bytes_sent += total
        if not self._ack_eliciting_sent_since_receipt:
            # RFC 9000 section 10.1.
            self._close_at = now + self._idle_timeout()
            self._ack_eliciting_sent_since_receipt = True
        address = path.addr
        return [(data, address) for data in sealed]

    @property
    def _control_reserve(self) -> int:
        """What bulk streams leave of the peer's window to control: streams that nobody reads must
        not shut out a heartbeat."""
        if not self._first_window:
            self._first_window = self._remote_max_data
        return self._first_window // 16
