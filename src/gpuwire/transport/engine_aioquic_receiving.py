"""aioquic's connection with a short way for the packets of the data path.

`receive_batch` opens what arrived together with one call of the header protection's cipher, and
reads STREAM frames itself. Whatever is out of the ordinary (long headers, another address, another
connection id or key phase, any other frame) goes aioquic's own way, byte for byte as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aioquic import tls
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import (
    END_STATES,
    QuicConnectionError,
    QuicConnectionState,
    QuicReceiveContext,
)
from aioquic.quic.packet import QuicErrorCode
from aioquic.quic.rangeset import RangeSet
from aioquic.quic.recovery import MAX_ACK_RANGES, QuicPacketSpace
from aioquic.quic.stream import FinalSizeError, StreamFinishedError

from gpuwire.transport.engine import Datagram
from gpuwire.transport.engine_aioquic_packets import SAMPLE_BYTES, masks_of, open_packet
from gpuwire.transport.engine_aioquic_windows import CreditedQuic
from gpuwire.transport.options import TransportOptions

LONG_HEADER = 0x80
STREAM_FRAME = 0x08
STREAM_KIND = 0xF8
"""Types 0x08 to 0x0f are STREAM frames: 4 with an offset, 2 with a length, 1 at the end."""

SHORTEST_PACKET = 1 + 4 + SAMPLE_BYTES
VIEWED_BYTES = 8 * 1024
"""A frame's bytes so long stay where decryption put them; of shorter ones a copy costs less."""

CONTROL_ACK_SECONDS = 0.008
"""So long the acknowledgement of control bytes waits for something to travel with (we promise 25 ms
at most). Answers mostly come sooner, and a datagram of its own costs each side 100 to 200 µs, just
when the work that is waited for wants the processor. Bulk bytes keep aioquic's 1 ms: a sender that
is finding its rate goes by acknowledgements."""
ACKNOWLEDGED_AT_ONCE = 64 * 1024
"""After so many bytes an acknowledgement does not wait: on a near path that is a quarter of the
window."""


class OrderedRanges(RangeSet):
    """Packet numbers received: mostly one more than the last, which takes no search."""

    def add(self, start: int, stop: int | None = None) -> None:
        ranges: list[range] = self._RangeSet__ranges  # type: ignore[attr-defined]
        if stop is None and ranges:
            last = ranges[-1]
            if start == last.stop:
                ranges[-1] = range(last.start, start + 1)
                return
            if start > last.stop:
                ranges.append(range(start, start + 1))
                return
        super().add(start, stop)


class ReceivingQuic(CreditedQuic):
    """A connection that takes in batches."""

    def __init__(
        self, configuration: QuicConfiguration, options: TransportOptions, **connection_ids: Any
    ) -> None:
        super().__init__(configuration, options, **connection_ids)
        self._bytes_to_acknowledge = 0
        self._is_pressing = False
        """Whether the packet that is being read is to be acknowledged within `_ack_delay`."""

    def receive_batch(self, datagrams: Sequence[Datagram], now: float) -> None:
        """Takes in datagrams in order; what cannot be read is dropped."""
        self._received_at = now
        quick = self._quick(datagrams) if self._handshake_confirmed else []
        if not quick:
            for data, address in datagrams:
                self.receive_datagram(data, address, now)
            return
        space = self._spaces[tls.Epoch.ONE_RTT]
        context: Any = self._cryptos[tls.Epoch.ONE_RTT].recv
        offset = 1 + len(self.host_cid) + 4
        masks = masks_of(
            context.hp, [datagrams[at][0][offset : offset + SAMPLE_BYTES] for at in quick]
        )
        position = took = 0
        for at, (data, address) in enumerate(datagrams):
            if position < len(quick) and quick[position] == at:
                mask_at = position * SAMPLE_BYTES
                position += 1
                if self._take_packet(context, space, data, masks, mask_at, now):
                    took += 1
                    continue
            self.receive_datagram(data, address, now)
            if self._state in END_STATES or self._close_pending:
                return
        if took:
            self._close_at = now + self._idle_timeout()
            self._ack_eliciting_sent_since_receipt = False

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        self._spaces[tls.Epoch.ONE_RTT].ack_queue = OrderedRanges()

    def _quick(self, datagrams: Sequence[Datagram]) -> list[int]:
        """Which datagrams are for the short way, as far as one can tell from outside."""
        path = self._network_paths[0]
        if not path.is_validated or self._state is not QuicConnectionState.CONNECTED:
            return []
        own, address = self.host_cid, path.addr
        least = SHORTEST_PACKET + len(own)
        end = 1 + len(own)
        return [
            at
            for at, (data, sender) in enumerate(datagrams)
            if sender == address
            and len(data) >= least
            and data[0] < LONG_HEADER
            and data[1:end] == own
        ]

    def _take_packet(
        self,
        context: Any,
        space: QuicPacketSpace,
        data: bytes,
        masks: bytes,
        mask_at: int,
        now: float,
    ) -> bool:
        """Whether the packet is dealt with."""
        expected = space.expected_packet_number
        opened = open_packet(context, data, masks, mask_at, len(self.host_cid), expected)
        if opened is None:
            return False
        first, number, payload = opened
        if number in space.received_packets:
            return True
        if number > expected:
            space.expected_packet_number = number + 1
        # After a gap: the sooner the sender knows of a loss, the better.
        self._is_pressing = number > space.largest_received_packet + 1
        if number > self._spin_highest_pn:
            self._spin_bit = bool(first & 0x20) != self._is_client
            self._spin_highest_pn = number
        try:
            is_eliciting = self._take_payload(payload, now)
        except QuicConnectionError as error:
            self.close(error.error_code, error.frame_type, error.reason_phrase)
            return True
        if number > space.largest_received_packet:
            space.largest_received_packet = number
            space.largest_received_time = now
        space.ack_queue.add(number)
        if len(space.ack_queue) > MAX_ACK_RANGES:
            space.ack_queue.shift()
        space.received_packets.add(number)
        if is_eliciting:
            self._bytes_to_acknowledge += len(data)
            if self._bytes_to_acknowledge >= ACKNOWLEDGED_AT_ONCE:
                space.ack_at = now
            else:
                due = now + (self._ack_delay if self._is_pressing else CONTROL_ACK_SECONDS)
                space.ack_at = due if space.ack_at is None else min(space.ack_at, due)
        return True

    def _take_payload(self, payload: bytes, now: float) -> bool:
        """Reads STREAM frames, and hands the rest of the packet on at the first other one. Whether
        the packet is to be acknowledged."""
        at, size = 0, len(payload)
        is_eliciting = False
        while at < size and payload[at] & STREAM_KIND == STREAM_FRAME:
            at = self._take_stream_frame(payload, at)
            is_eliciting = True
        if at == size and size:
            return is_eliciting
        path = self._network_paths[0]
        context = QuicReceiveContext(
            epoch=tls.Epoch.ONE_RTT,
            host_cid=self.host_cid,
            network_path=path,
            quic_logger_frames=None,
            time=now,
            version=None,
        )
        rest_is_eliciting, _ = self._payload_received(context, payload[at:])
        return is_eliciting or rest_is_eliciting

    def _take_stream_frame(self, payload: bytes, at: int) -> int:
        """Reads one frame (RFC 9000 section 19.8) and returns where the next begins."""
        kind = payload[at]
        stream_id = payload[at + 1]
        if stream_id < 0x40:
            at += 2
        else:
            stream_id, at = _integer(payload, at + 1)
        offset = 0
        if kind & 4:
            offset, at = _integer(payload, at)
        end = len(payload)
        if kind & 2:
            length, at = _integer(payload, at)
            if at + length > end:
                raise _broken(kind)
            end = at + length
        last = offset + end - at
        self._is_pressing |= bool(stream_id & 2)
        stream: Any = self._streams.get(stream_id)
        if stream is None or not stream_id & 2:
            self._assert_stream_can_receive(kind, stream_id)
            try:
                stream = self._get_or_create_stream(kind, stream_id)
            except StreamFinishedError:
                return end
        receiver = stream.receiver
        fresh = last - receiver.highest_offset
        if fresh > 0:
            limit = self._local_max_data
            if last > stream.max_stream_data_local or limit.used + fresh > limit.value:
                raise QuicConnectionError(
                    QuicErrorCode.FLOW_CONTROL_ERROR, kind, "more than the window takes"
                )
            limit.used += fresh
        try:
            piece = payload[at:end] if end - at < VIEWED_BYTES else memoryview(payload)[at:end]
            receiver.take(offset, piece, bool(kind & 1))
        except FinalSizeError as error:
            raise QuicConnectionError(QuicErrorCode.FINAL_SIZE_ERROR, kind, str(error)) from None
        return end


def _integer(payload: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer (RFC 9000 section 16), and where it ends."""
    try:
        first = payload[at]
        if first < 0x40:
            return first, at + 1
        size = 1 << (first >> 6)
        if at + size > len(payload):
            raise _broken(STREAM_FRAME)
        return int.from_bytes(payload[at : at + size], "big") & (1 << (8 * size - 2)) - 1, at + size
    except IndexError:
        raise _broken(STREAM_FRAME) from None


def _broken(kind: int) -> QuicConnectionError:
    return QuicConnectionError(QuicErrorCode.FRAME_ENCODING_ERROR, kind, "a frame is cut short")
