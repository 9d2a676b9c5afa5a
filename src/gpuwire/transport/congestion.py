"""Congestion control by rate: how fast to send, and how much may be under way.

A model of the path in place of a reaction to each loss, after BBR (Cardwell et al., "BBR:
congestion-based congestion control", ACM Queue 14(5), 2016, and draft-cardwell-iccrg-bbr): the
bottleneck's rate is the largest delivery rate of the last rounds, its length the shortest round
trip of the last seconds. Reno and cubic take any loss for congestion and keep 5 to 10 % of a
200 Mb/s, 50 ms line that loses one packet in a hundred.

Two departures. Heavy loss over a round lowers the rate until the next probe (the draft's later
versions do that in their way). And a near path, below 5 ms, is ruled by a window alone: there the
round trip is the two programs' own scheduling, from which no model of a queue can be made.

Pure: no clock, no I/O. `RateControl` has the face that aioquic's recovery wants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Protocol

from gpuwire.transport.path import RoundTrip, RoundTrips

INITIAL_PACKETS = 32
"""RFC 9002 section 7.2 says 10, as RFC 6928 did in 2013; the sending is paced from the first
acknowledgement on, and this saves two of eight rounds on a long line."""

STARTUP_GAIN = 2.885
"""2 / ln 2: the rate doubles in each round."""

DRAIN_GAIN = 1 / STARTUP_GAIN
PROBE_GAINS = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
JUDGED_FROM_GAIN = 3
"""Heavy loss before this one is the high gain's own doing: it has found a short queue's end."""

WINDOW_GAIN = 2.0
RATE_ROUNDS = 10
"""The bottleneck's rate is the largest of so many rounds."""

FULL_PIPE_GROWTH = 1.25
FULL_PIPE_ROUNDS = 3
MINIMUM_SECONDS = 10.0
"""A shortest round trip older than this is measured anew …"""

MEASURING_SECONDS = 0.2
"""… with a small window for so long."""

LEAST_PACKETS = 4
HEAVY_LOSS = 0.05
"""Of a round's packets; random loss stays below."""

HEAVY_LOSS_PACKETS = 8
LOSS_GAIN = 0.85
CHANGED_PATH_LOSS = 0.2
"""Of a round's packets: the path is not what it was, and what is known of its rate is void."""


NEAR_SECONDS = 0.005
NEAR_WINDOW_LEAST = 128 * 1024
NEAR_WINDOW_MOST = 512 * 1024
"""On loopback an echo beside an upload took 4 ms with this at 1,452-byte datagrams, 0.9 at 64,000;
with half of it 3 and 0.8, but on a busy machine, where each side waits for its turn to run, the
upload was half as fast."""

NEAR_GROWTH_PACKETS = 1
"""A round without loss lets a near window grow by so many datagrams."""

LONGEST_BURST_SECONDS = 0.010
"""What a sender that was kept from running may catch up with at once."""

LARGEST_BURST_BYTES = 256 * 1024


class SentPacket(Protocol):
    """What is kept of a packet under way."""

    packet_number: int
    sent_time: float | None
    sent_bytes: int


class Phase(Enum):
    """Where the model stands."""

    STARTUP = "startup"
    DRAIN = "drain"
    PROBE = "probing the rate"
    MEASURE = "measuring the round trip"


class RateControl:
    """One path's model. The order of calls: `on_packet_sent` for each packet; for an
    acknowledgement `on_rtt_measurement` if it has one, `on_acknowledged`, `on_packets_lost`."""

    def __init__(self, *, max_datagram_size: int) -> None:
        self.datagram_bytes = max_datagram_size
        self.congestion_window = INITIAL_PACKETS * max_datagram_size
        self.bytes_in_flight = 0
        self.ssthresh: int | None = None
        self.packets_sent = 0
        self.packets_lost = 0
        self.phase = Phase.STARTUP
        self._trips = RoundTrips()
        self._minimum: float | None = None
        self._minimum_at = 0.0
        # Delivery: bytes acknowledged, when, and when the packet was sent that said so.
        self._delivered = 0
        self._delivered_at = 0.0
        self._first_sent_at = 0.0
        self._idle_until = 0
        # Rounds: one ends when a packet is acknowledged that was sent in it.
        self._round = 0
        self._round_ends = 0
        self._round_sent_lost = [0, 0]
        self._rates: deque[tuple[int, float]] = deque()
        self._round_rate = 0.0
        self._capped_rate: float | None = None
        self._full_rate = 0.0
        self._full_rounds = 0
        self._gain_index = 2
        self._gain_since = 0.0
        self._tolerant_until = 0
        self._measuring_until = 0.0
        self._window_before = 0
        self._near_window = NEAR_WINDOW_MOST

    # --- Facts --------------------------------------------------------------------------------

    @property
    def round_trip(self) -> RoundTrip:
        """Measured round trips."""
        return self._trips.summary

    @property
    def recent_round_trip(self) -> float | None:
        """The shortest of the last ones."""
        return self._trips.recent

    @property
    def is_near(self) -> bool:
        """Whether the path is ruled by a window alone."""
        return self._minimum is not None and self._minimum < NEAR_SECONDS

    @property
    def bottleneck_rate(self) -> float:
        """Bytes a second that the path has delivered; 0 while unknown."""
        rate = self._rates[0][1] if self._rates else 0.0
        return rate if self._capped_rate is None else min(rate, self._capped_rate)

    @property
    def pacing_rate(self) -> float | None:
        """Bytes a second to send at; None: as fast as the window lets."""
        if self.is_near:
            return None
        rate = self.bottleneck_rate
        if not rate:
            return None
        if self.phase is Phase.STARTUP:
            return STARTUP_GAIN * rate
        if self.phase is Phase.DRAIN:
            return DRAIN_GAIN * rate
        if self.phase is Phase.PROBE:
            return PROBE_GAINS[self._gain_index] * rate
        return rate

    def set_datagram_bytes(self, size: int) -> None:
        """Counts in datagrams of `size` from now on; two may always be under way (RFC 9002 7.2)."""
        self.datagram_bytes = size
        self.congestion_window = max(self.congestion_window, 2 * size)

    # --- Sending ------------------------------------------------------------------------------

    def on_packet_sent(self, *, packet: SentPacket) -> None:
        """A packet goes out; it takes a stamp of what was delivered by now."""
        now = packet.sent_time or 0.0
        if not self.bytes_in_flight:
            self._first_sent_at = self._delivered_at = now
        packet.stamp = (  # type: ignore[attr-defined]
            self._delivered,
            self._delivered_at,
            self._first_sent_at,
            self._delivered < self._idle_until,
        )
        self.bytes_in_flight += packet.sent_bytes
        self.packets_sent += 1

    def on_idle(self) -> None:
        """There is nothing to send though the window has room: what is under way says nothing of
        the path's rate."""
        self._idle_until = self._delivered + max(self.bytes_in_flight, 1)

    def on_packets_expired(self, *, packets: Iterable[SentPacket]) -> None:
        """Packets that are neither delivered nor lost any more."""
        for packet in packets:
            self.bytes_in_flight -= packet.sent_bytes

    # --- Acknowledgements ---------------------------------------------------------------------

    def on_rtt_measurement(self, *, now: float, rtt: float, delay: float = 0.0) -> None:
        """One round trip, and how long the peer says it waited before it acknowledged: not part of
        the path, as far as that is plausible (RFC 9002 section 5.3)."""
        if self._minimum is None or rtt <= self._minimum:
            self._minimum, self._minimum_at = rtt, now
        self._trips.add(rtt - delay if rtt - delay >= self._minimum else rtt)

    def on_acknowledged(self, *, now: float, packets: Sequence[SentPacket]) -> None:
        """Packets in flight that one acknowledgement covers anew, in the order of sending."""
        acknowledged = 0
        for packet in packets:
            acknowledged += packet.sent_bytes
        self.bytes_in_flight -= acknowledged
        self._delivered += acknowledged
        newest = packets[-1]
        delivered, delivered_at, first_sent_at, was_idle = newest.stamp  # type: ignore[attr-defined]
        sent_at = newest.sent_time or now
        self._delivered_at = now
        self._first_sent_at = sent_at
        self._round_sent_lost[0] += len(packets)
        starts_round = delivered >= self._round_ends
        if starts_round:
            self._round += 1
            self._round_ends = self._delivered
        seconds = max(sent_at - first_sent_at, now - delivered_at)
        if self._minimum is not None and seconds >= self._minimum and seconds > 0:
            self._take_rate((self._delivered - delivered) / seconds, was_idle)
        self._advance(now, starts_round, was_idle)
        self._set_window(acknowledged)
        if starts_round:
            self._round_sent_lost = [0, 0]
            self._round_rate = 0.0

    def on_packets_lost(self, *, now: float, packets: Iterable[SentPacket]) -> None:
        """Packets declared lost. A lost size probe says nothing about congestion (RFC 9000
        section 14.4)."""
        for packet in packets:
            self.bytes_in_flight -= packet.sent_bytes
            if packet.sent_bytes <= self.datagram_bytes:
                self.packets_lost += 1
                self._round_sent_lost[1] += 1
        if self.phase is Phase.STARTUP and self._loses_heavily():
            self._drain()

    def on_persistent_congestion(self) -> None:
        """Nothing got through for long (RFC 9002 section 7.6): begin small, with the model kept."""
        self.congestion_window = LEAST_PACKETS * self.datagram_bytes

    # --- The model ----------------------------------------------------------------------------

    def _take_rate(self, rate: float, was_idle: bool) -> None:
        self._round_rate = max(self._round_rate, rate)
        rates = self._rates
        if was_idle and rates and rate <= rates[0][1]:
            return
        while rates and rates[-1][1] <= rate:
            rates.pop()
        rates.append((self._round, rate))
        while rates[0][0] < self._round - RATE_ROUNDS:
            rates.popleft()

    def _advance(self, now: float, starts_round: bool, was_idle: bool) -> None:
        if starts_round:
            self._judge_loss()
        if self.phase is Phase.STARTUP and starts_round and not was_idle:
            self._judge_growth()
        if self.phase is Phase.DRAIN and self.bytes_in_flight <= self._path_bytes(1.0):
            self._probe(now, 2)
        if self.phase is Phase.PROBE:
            self._turn_gain(now)
        self._measure_again(now)

    def _judge_growth(self) -> None:
        """The pipe is full once the rate stops growing."""
        rate = self.bottleneck_rate
        if rate >= self._full_rate * FULL_PIPE_GROWTH:
            self._full_rate, self._full_rounds = rate, 0
            return
        self._full_rounds += 1
        if self._full_rounds >= FULL_PIPE_ROUNDS:
            self._drain()

    def _drain(self) -> None:
        """Let the queue that was made go; what was sent before may still be lost, and says nothing
        of the rate that follows."""
        self.phase = Phase.DRAIN
        self._tolerant_until = self._round + 3

    def _loses_heavily(self) -> bool:
        delivered, lost = self._round_sent_lost
        return lost >= HEAVY_LOSS_PACKETS and lost > HEAVY_LOSS * (delivered + lost)

    def _judge_loss(self) -> None:
        lost = self._round_sent_lost[1]
        heavy = self._loses_heavily()
        if self.is_near:
            if heavy:
                self._near_window = max(NEAR_WINDOW_LEAST, int(LOSS_GAIN * self._near_window))
            elif not lost:
                grown = self._near_window + NEAR_GROWTH_PACKETS * self.datagram_bytes
                self._near_window = min(NEAR_WINDOW_MOST, grown)
        if not heavy or self.phase is not Phase.PROBE or self._round <= self._tolerant_until:
            return
        delivered = self._round_sent_lost[0]
        if lost > CHANGED_PATH_LOSS * (delivered + lost) and self._round_rate:
            self._rates = deque([(self._round, min(self._round_rate, self.bottleneck_rate))])
            self._drain()
        elif self._gain_index >= JUDGED_FROM_GAIN:
            self._capped_rate = LOSS_GAIN * self.bottleneck_rate

    def _probe(self, now: float, index: int) -> None:
        self.phase = Phase.PROBE
        self._gain_index = index
        self._gain_since = now
        if index == 0:
            self._capped_rate = None

    def _turn_gain(self, now: float) -> None:
        """Each gain lasts a shortest round trip; the low one ends as soon as the queue that the
        high one made is gone."""
        gain = PROBE_GAINS[self._gain_index]
        elapsed = now - self._gain_since > (self._minimum or 0.0)
        if gain < 1 and self.bytes_in_flight <= self._path_bytes(1.0):
            elapsed = True
        if elapsed:
            self._probe(now, (self._gain_index + 1) % len(PROBE_GAINS))

    def _measure_again(self, now: float) -> None:
        if self.phase is Phase.MEASURE:
            if now >= self._measuring_until:
                self._minimum_at = now
                self.congestion_window = max(self.congestion_window, self._window_before)
                if self._full_rounds >= FULL_PIPE_ROUNDS or self._full_rate:
                    self._probe(now, 2)
                else:
                    self.phase = Phase.STARTUP
        elif (
            self.phase is Phase.PROBE
            and not self.is_near
            and now - self._minimum_at > MINIMUM_SECONDS
        ):
            self.phase = Phase.MEASURE
            self._window_before = self.congestion_window
            self._minimum = self._trips.latest
            self._measuring_until = now + MEASURING_SECONDS

    def _path_bytes(self, gain: float) -> int:
        """What the path itself holds."""
        return int(gain * self.bottleneck_rate * (self._minimum or 0.0))

    def _set_window(self, acknowledged: int) -> None:
        if self.is_near:
            self.congestion_window = max(self._near_window, LEAST_PACKETS * self.datagram_bytes)
            return
        least = LEAST_PACKETS * self.datagram_bytes
        if self.phase is Phase.MEASURE:
            self.congestion_window = max(least, self._path_bytes(0.5))
            return
        gain = STARTUP_GAIN if self.phase is Phase.STARTUP else WINDOW_GAIN
        # Acknowledgements come in batches and bursts go out in batches: room for one of each.
        target = self._path_bytes(gain) + 3 * self.datagram_bytes + LARGEST_BURST_BYTES // 4
        if self.phase is Phase.STARTUP:
            target = max(target, INITIAL_PACKETS * self.datagram_bytes)
        self.congestion_window = max(least, min(self.congestion_window + acknowledged, target))


class Pacer:
    """Spreads sending over time: an allowance that grows with the rate, up to a burst.

    An event loop's timers are as coarse as a millisecond and late on a busy machine, so the burst
    is what the rate would have sent while the loop was late.
    """

    def __init__(self) -> None:
        self._allowance = 0.0
        self._seen = 0.0

    def allowance(self, now: float, rate: float | None, datagram: int) -> int:
        """Bytes that may go out now."""
        if rate is None:
            return LARGEST_BURST_BYTES
        most = min(
            max(rate * LONGEST_BURST_SECONDS, INITIAL_PACKETS * datagram), LARGEST_BURST_BYTES
        )
        self._allowance = min(self._allowance + (now - self._seen) * rate, most)
        self._seen = now
        return max(0, int(self._allowance))

    def spend(self, count: int) -> None:
        """Bytes went out."""
        self._allowance -= count

    def due(self, now: float, rate: float | None, datagram: int) -> float | None:
        """When the allowance is worth a burst again: a millisecond's or two datagrams."""
        if rate is None:
            return None
        wanted = max(2 * datagram, rate * 0.001)
        return now + max(0.0, wanted - self._allowance) / rate
