"""Finding the largest datagram that a path takes, by probing (in the spirit of RFC 8899).

Starts at 1,200 bytes, which every path of QUIC takes. Probes are padded packets of their own, so a
lost one costs no data; a size is used once a probe of it was acknowledged. The usual sizes come
first: Ethernet over IPv6, Ethernet over IPv4, jumbo frames, and loopback's. Between the last that
passed and the first that did not, the search halves the interval.

Pure: the engine sends the probes and says what became of them and of its full datagrams.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.transport.options import SMALLEST_DATAGRAM_BYTES

LADDER = (1_452, 1_472, 8_952, 16_000, 32_000, 64_000)
"""1,500 less IPv6's and UDP's headers; less IPv4's; 9,000 less IPv6's; loopback's 65,536 in steps
that halve the cost of a datagram's fixed work each."""

PROBES_OF_A_SIZE = 3
"""A size that was lost so often does not pass (RFC 8899 section 5.1.2, MAX_PROBES)."""

CLOSE_ENOUGH = 32
"""The search ends when so few bytes are in doubt, or a fiftieth of the size."""

SHARE_CLOSE_ENOUGH = 50
BLACK_HOLE_PACKETS = 8
BLACK_HOLE_ROUND_TRIPS = 1.5
"""So many large packets lost, over so long a time of sending, without one being acknowledged,
while smaller ones were. A queue that overflows loses dozens in a row, but lets some through in
each round trip."""

BLACK_HOLE_TIMEOUTS = 3
"""Probe timeouts in a row after which large datagrams are suspected as well."""

RAISE_SECONDS = 600.0
"""The search starts again after so long (RFC 8899 section 5.1.1, PMTU_RAISE_TIMER)."""

RAISE_SECONDS_AFTER_BLACK_HOLE = 60.0


class DatagramSizeSearch:
    """One direction of one path."""

    def __init__(self, *, most: int) -> None:
        """`most`: the largest size worth probing; 1,200 for none."""
        self.size = SMALLEST_DATAGRAM_BYTES
        """What full datagrams may have now."""
        self._most = most
        self._passed = SMALLEST_DATAGRAM_BYTES
        self._failed = most + 1  # the smallest size that is known not to pass
        self._probe: int | None = None
        self._losses = 0
        self._large_lost = 0
        self._large_lost_since = 0.0
        self._again_at: float | None = None
        self._story = "every path takes it"

    @property
    def story(self) -> str:
        """How the size was found, in words."""
        return self._story

    def next_probe(self, now: float) -> int | None:
        """The size to probe now, if any; then call `probe_sent`."""
        if self._probe is not None:
            return None
        if self._again_at is not None:
            if now < self._again_at:
                return None
            self._again_at = None
            self._failed = self._most + 1
            self._losses = 0
        return self._candidate()

    def probe_sent(self, size: int) -> None:
        """A probe is under way; no other is wanted until its fate is known."""
        self._probe = size

    def probe_acknowledged(self, size: int, now: float) -> None:
        """The size passes."""
        self._probe = None
        self._losses = 0
        if size >= self._failed:
            return  # refused or found to be a black hole in the meantime
        self._passed = self.size = max(self._passed, size)
        self._large_lost = 0
        self._story = f"a probe of {size:,} bytes came through"
        self._rest_if_done(now)

    def probe_lost(self, size: int, now: float) -> None:
        """A probe was lost; the third one shows that the size does not pass."""
        self._probe = None
        self._losses += 1
        if self._losses >= PROBES_OF_A_SIZE:
            self._losses = 0
            self._failed = min(self._failed, size)
            self._rest_if_done(now)

    def refused(self, size: int, now: float) -> None:
        """The system refused a datagram of `size` (EMSGSIZE): at once, without a second try."""
        if size >= self._failed or size <= SMALLEST_DATAGRAM_BYTES:
            return
        self._failed = size
        self._losses = 0
        if self.size >= size:
            self._fall_back(f"the system refused {size:,} bytes")
        self._rest_if_done(now)

    def large_acknowledged(self) -> None:
        """A packet larger than the smallest size was acknowledged."""
        self._large_lost = 0

    def large_lost(self, sent_at: Sequence[float], round_trip: float, now: float) -> bool:
        """Packets larger than the smallest size, sent at these times, were lost, while the peer
        acknowledges others. True if that makes a black hole of them: the size has come down."""
        if not self._large_lost:
            self._large_lost_since = sent_at[0]
        self._large_lost += len(sent_at)
        if (
            self._large_lost < BLACK_HOLE_PACKETS
            or sent_at[-1] - self._large_lost_since < BLACK_HOLE_ROUND_TRIPS * round_trip
            or self.size == SMALLEST_DATAGRAM_BYTES
        ):
            return False
        self._enter_black_hole(now)
        return True

    def timed_out(self, in_a_row: int, now: float) -> bool:
        """Probe timeouts in a row. True if the size has come down."""
        if in_a_row < BLACK_HOLE_TIMEOUTS or self.size == SMALLEST_DATAGRAM_BYTES:
            return False
        self._enter_black_hole(now)
        return True

    def _enter_black_hole(self, now: float) -> None:
        # The path may take less than before or nothing at all; the search below the old size
        # starts anew at once, and the old size is tried again later.
        self._failed = self.size
        self._fall_back(f"datagrams of {self.size:,} bytes had stopped coming through")
        self._probe = None
        self._losses = 0

    def _fall_back(self, why: str) -> None:
        self.size = self._passed = SMALLEST_DATAGRAM_BYTES
        self._large_lost = 0
        self._story = why

    def _candidate(self) -> int | None:
        for size in (*LADDER, self._most):
            if self._passed < size < self._failed and size <= self._most:
                return size
        if self._is_close():
            return None
        return (self._passed + self._failed) // 2

    def _is_close(self) -> bool:
        doubt = self._failed - 1 - self._passed
        return doubt < max(CLOSE_ENOUGH, self._passed // SHARE_CLOSE_ENOUGH)

    def _rest_if_done(self, now: float) -> None:
        if self._again_at is None and self._candidate() is None:
            came_down = "stopped" in self._story
            wait = RAISE_SECONDS_AFTER_BLACK_HOLE if came_down else RAISE_SECONDS
            if self._failed <= self._most:
                self._again_at = now + wait
