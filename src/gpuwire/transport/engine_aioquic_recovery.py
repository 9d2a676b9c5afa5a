"""aioquic's loss recovery (RFC 9002), with acknowledgements handled in runs.

aioquic calls the congestion control and each stream once per packet. Here one acknowledgement is
one call of `RateControl`, and neighbouring pieces of a stream are acknowledged to it as one: an
acknowledgement in the middle of an upload covers dozens. Checked against aioquic 1.7.2, whose
private attributes of `QuicPacketRecovery` are used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aioquic.quic.packet_builder import QuicDeliveryState
from aioquic.quic.rangeset import RangeSet
from aioquic.quic.recovery import QuicPacketRecovery, QuicPacketSpace

from gpuwire.transport.congestion import RateControl
from gpuwire.transport.engine_aioquic_packets import BulkPacket
from gpuwire.transport.options import SMALLEST_DATAGRAM_BYTES

LEAST_ROUND_TRIP = 0.001
"""RFC 9002's timers are not made for shorter ones (kGranularity)."""


class Recovery(QuicPacketRecovery):
    """Takes the place of a connection's `_loss`."""

    def __init__(
        self, *, control: RateControl, is_client: bool, send_probe: Callable[[], None], rtt: float
    ) -> None:
        super().__init__(
            congestion_control_algorithm="reno",
            initial_rtt=rtt,
            max_datagram_size=SMALLEST_DATAGRAM_BYTES,
            peer_completed_address_validation=not is_client,
            send_probe=send_probe,
        )
        self._cc: Any = control
        self.large_acknowledged = False
        """Whether a packet larger than the smallest full one was acknowledged; whoever looks
        resets it."""
        self.large_lost: list[float] = []
        """When those that were lost since then, probes aside, had been sent."""

    def on_bulk_sent(self, packets: Sequence[BulkPacket], space: QuicPacketSpace) -> None:
        """Packets went out together."""
        under_way: Any = space.sent_packets
        on_packet_sent = self._cc.on_packet_sent
        for packet in packets:
            under_way[packet.packet_number] = packet
            on_packet_sent(packet=packet)
        space.ack_eliciting_in_flight += len(packets)
        self._time_of_last_sent_ack_eliciting_packet = packets[-1].sent_time

    def on_ack_received(
        self, *, ack_rangeset: RangeSet, ack_delay: float, now: float, space: QuicPacketSpace
    ) -> None:
        largest = ack_rangeset.bounds().stop - 1
        if largest > space.largest_acked_packet:
            space.largest_acked_packet = largest
        packets = _taken_out(space, ack_rangeset)
        if not packets:
            return
        eliciting = 0
        in_flight = []
        for packet in packets:
            eliciting += packet.is_ack_eliciting
            if packet.in_flight:
                in_flight.append(packet)
        space.ack_eliciting_in_flight -= eliciting
        if packets[-1].packet_number == largest and eliciting:
            self._measure(now - packets[-1].sent_time, ack_delay, now)
        if in_flight:
            if max(packet.sent_bytes for packet in in_flight) > SMALLEST_DATAGRAM_BYTES:
                self.large_acknowledged = True
                self.large_lost.clear()
            self._cc.on_acknowledged(now=now, packets=in_flight)
        _tell_streams(packets)
        self._detect_loss(now=now, space=space)
        if self.peer_completed_address_validation:
            self._pto_count = 0

    def _on_packets_lost(
        self, *, packets: Iterable[Any], congestion_event: bool = True, **rest: Any
    ) -> None:
        packets = list(packets)
        if congestion_event:
            full = self._cc.datagram_bytes
            self.large_lost += [
                packet.sent_time
                for packet in packets
                if SMALLEST_DATAGRAM_BYTES < packet.sent_bytes <= full
            ]
        super()._on_packets_lost(packets=packets, congestion_event=congestion_event, **rest)

    def _measure(self, latest: float, ack_delay: float, now: float) -> None:
        """RFC 9002 section 5.3."""
        delay = min(ack_delay, self.max_ack_delay)
        self._cc.on_rtt_measurement(now=now, rtt=latest, delay=delay)
        sample = max(latest, LEAST_ROUND_TRIP)
        self._rtt_min = min(self._rtt_min, sample)
        if sample >= self._rtt_min + delay:
            sample -= delay
        self._rtt_latest = sample
        if not self._rtt_initialized:
            self._rtt_initialized = True
            self._rtt_first_sample_time = now
            self._rtt_smoothed, self._rtt_variance = sample, sample / 2
            return
        deviation = abs(self._rtt_smoothed - sample)
        self._rtt_variance += (deviation - self._rtt_variance) / 4
        self._rtt_smoothed += (sample - self._rtt_smoothed) / 8


def _taken_out(space: QuicPacketSpace, acknowledged: RangeSet) -> list[Any]:
    """The packets under way that are acknowledged, in the order of sending; they are no longer
    under way. The peer chooses the ranges, so only packets within them are looked at."""
    numbers = list(space.sent_packets)
    taken: list[Any] = []
    take = space.sent_packets.pop
    for span in acknowledged:
        first = bisect_left(numbers, span.start)
        if first < len(numbers):
            last = bisect_left(numbers, span.stop, first)
            taken += [take(number) for number in numbers[first:last]]
    return taken


def _tell_streams(packets: Sequence[Any]) -> None:
    acked = QuicDeliveryState.ACKED
    sender: Any = None
    start = stop = 0
    for packet in packets:
        if type(packet) is BulkPacket:
            if packet.sender is sender and packet.start == stop and not packet.fin:
                stop = packet.stop
                continue
            if sender is not None:
                sender.on_data_delivery(acked, start, stop, False)
                sender = None
            if packet.fin:
                packet.sender.on_data_delivery(acked, packet.start, packet.stop, True)
            else:
                sender, start, stop = packet.sender, packet.start, packet.stop
            continue
        for handler, arguments in packet.delivery_handlers:
            handler(acked, *arguments)
    if sender is not None:
        sender.on_data_delivery(acked, start, stop, False)
