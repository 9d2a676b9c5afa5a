"""One stream: its ops, and what is known of how they repeat."""

from __future__ import annotations

from gpuwire.client.graph_cache.boundaries import loop_head
from gpuwire.client.graph_cache.ops import StreamOps
from gpuwire.client.graph_cache.periods import PERIOD_MAX, PeriodFinder, joined
from gpuwire.client.graph_cache.relative import Content, relative_ops
from gpuwire.client.graph_cache.rounds import RoundFinder
from gpuwire.client.graph_cache.units import Match, Unit
from gpuwire.client.op_by_op import IDLE_SECONDS
from gpuwire.client.signatures import Signature
from gpuwire.ids import LocationId, StreamId, TensorId
from gpuwire.ir.operations import Operand

SEGMENT_OPS = 256
"""Open ops that follow no unit are closed at this number, so that the device begins early."""

UNIT_IDLE_SECONDS = 0.005
"""The rest of a unit that has begun is waited for, at least so long: the thread that records it may
be kept from the interpreter lock for that time by one that does not let go of it before …"""
UNIT_IDLE_MOST_SECONDS = 0.05
"""… and at most so long."""
_PATIENCE = 3
"""Times as long as the unit took the last time."""

_MATCHES_MAX = 6
_UNITS_MAX = 64
_UNITS_PER_TOKEN = 4


class Stream:
    """Takes the ops of one stream, finds units in them and says where segments end."""

    def __init__(self, number: StreamId) -> None:
        self.number = number
        self.ops = StreamOps()
        self.complete: Match | None = None
        """A unit that has come to its end with the newest op. It is closed only when the next op
        comes, or nothing does: until then the last of its temporaries die."""
        self._matches: list[Match] = []
        self._longest = 0
        self._periods = PeriodFinder()
        self._rounds = RoundFinder()
        self._units: dict[Content, Unit] = {}
        self._by_first_token: dict[int, list[Unit]] = {}
        self._settled_length = 0
        self._settled_until = 0
        self._taken = 0
        """Ops ever."""
        self._taken_before = -1
        self._quiet_since = 0.0
        self._completed_at = 0.0
        self._completed_unit: Unit | None = None

    # --- Ops ---

    def take(
        self,
        signature: Signature,
        operands: tuple[Operand, ...],
        output: TensorId,
        location: LocationId,
    ) -> None:
        """Takes the next op. A unit that is complete must have been closed before."""
        ops = self.ops
        place = len(ops.tokens)
        token = ops.append(signature, operands, output, location)
        self._taken += 1
        if self._matches:
            self._follow(token, operands)
        if self.complete is None and token in self._by_first_token:
            self._begin_matches(place, token, operands)
        period = self._periods.append(token, self._longest)
        if period and self.complete is None:
            self._settle(period)
        if place > 3 * 4096:
            self._trim()

    def end_of_segment(self) -> int:
        """Up to where the open ops must be closed for their number; 0 if they need not."""
        ops = self.ops
        if len(ops.tokens) - ops.open < SEGMENT_OPS or self.complete is not None:
            return 0
        match = self._longest_match()
        if match is None:
            return len(ops)
        return match.start if match.start > ops.open else 0

    def closed(self, end: int) -> None:
        """The open ops before `end` were closed."""
        self.ops.close(end)
        self.complete = None
        if self._matches:
            self._keep([match for match in self._matches if match.start >= end])

    def completed(self, match: Match, now: float) -> None:
        """A unit was closed whole, and everything before it; `closed` comes next."""
        unit = match.unit
        if self._completed_unit is unit:
            unit.seconds = now - self._completed_at
        self._completed_unit = unit
        self._completed_at = now
        rounds = self._rounds.completed(match, self.ops, self._taken)
        if rounds > 1 and rounds * len(unit) <= PERIOD_MAX:
            self._settle(rounds * len(unit))

    def interrupted(self) -> None:
        """Something here was left in the middle: what was to be found out is found out anew."""
        self.ops.mend()
        self.complete = None
        self._keep([])
        self._periods = PeriodFinder()
        self._rounds = RoundFinder()
        self._units = {}
        self._by_first_token = {}
        self._settled_length = 0

    # --- Idleness ---

    def idle_seconds(self, now: float) -> float:
        """For how long no op has come, as far as it was asked."""
        if self._taken != self._taken_before:
            self._taken_before = self._taken
            self._quiet_since = now
        return now - self._quiet_since

    def end_when_idle(self, seconds: float) -> int:
        """Up to where the open ops are closed after so long without another; 0 if not yet."""
        if seconds < IDLE_SECONDS:
            return 0
        match = self._longest_match()
        if self.complete is not None or match is None or seconds >= self._patience(match):
            return len(self.ops)
        return match.start if match.start > self.ops.open else 0

    def idle_limit(self) -> float:
        """After how long without another op all open ones are closed."""
        match = self._longest_match()
        if self.complete is not None or match is None or match.start > self.ops.open:
            return IDLE_SECONDS
        return self._patience(match)

    def _patience(self, match: Match) -> float:
        seconds = match.unit.seconds
        if seconds is None:
            return IDLE_SECONDS
        return min(max(UNIT_IDLE_SECONDS, _PATIENCE * seconds), UNIT_IDLE_MOST_SECONDS)

    # --- Following units ---

    def _follow(self, token: int, operands: tuple[Operand, ...]) -> None:
        """Every match takes the op or ends. Of matches that are complete the longest counts, and
        only if no longer one is still coming."""
        ops = self.ops
        matches = self._matches
        if len(matches) == 1:
            match = matches[0]
            if not match.take(ops, token, operands):
                self._keep([])
                self._miss(match)
            elif match.is_complete:
                self._complete(match)
            return
        left = []
        for match in matches:
            if match.take(ops, token, operands):
                left.append(match)
            else:
                self._miss(match)
        longest = max(left, key=lambda match: len(match.unit), default=None)
        if longest is not None and longest.is_complete:
            self._complete(longest)
        else:
            self._keep([match for match in left if not match.is_complete])

    def _begin_matches(self, place: int, token: int, operands: tuple[Operand, ...]) -> None:
        """Units that begin as this op does. While a unit that came whole before is coming, only
        longer ones are looked for, and each unit but once: layers in a loop begin all alike."""
        is_first = place == self.ops.open
        trusted = 0
        for match in self._matches:
            if match.start == self.ops.open and match.unit.completions:
                trusted = max(trusted, len(match.unit))
        matches = self._matches
        for unit in self._by_first_token[token]:  # The longest first.
            if len(unit) <= trusted or len(matches) >= _MATCHES_MAX:
                break
            if any(match.unit is unit for match in matches):
                continue
            match = Match(unit, place)
            if match.take(self.ops, token, operands):
                matches = [*matches, match]
                if is_first and unit.completions:
                    trusted = len(unit)
        if matches is not self._matches:
            self._keep(matches)

    def _complete(self, match: Match) -> None:
        self._keep([])
        self.complete = match
        match.unit.completions += 1
        match.unit.misses = 0

    def _miss(self, match: Match) -> None:
        if match.unit.missed(match.length):
            self._forget(match.unit)

    def _longest_match(self) -> Match | None:
        return max(self._matches, key=lambda match: len(match.unit), default=None)

    def _keep(self, matches: list[Match]) -> None:
        self._matches = matches
        self._longest = max([len(match.unit) for match in matches], default=0)

    # --- Finding units ---

    def _settle(self, period: int) -> None:
        """The tokens repeat: makes the newest period a unit, cut at the head of the loop, and
        begins to follow it."""
        length = joined(period)
        if length <= self._settled_length and self._taken < self._settled_until:
            return
        ops = self.ops
        if length + period > len(ops):
            return
        self._settled_length = length
        self._settled_until = self._taken + length
        head = loop_head(ops, period)
        relative = relative_ops(ops, head - length, head)
        unit = self._units.get(relative.content)
        if unit is None:
            unit = Unit(relative, ops, head - length)
        self._remember(unit)
        if head < ops.open:
            head += -(-(ops.open - head) // period) * period
        if head < len(ops):
            self._match_from(unit, head)

    def _match_from(self, unit: Unit, start: int) -> None:
        """Follows a unit from an open op on, which is some ops ago."""
        ops = self.ops
        match = Match(unit, start)
        for place in range(start, len(ops)):
            if not match.take(ops, ops.tokens[place], ops.operands[place]):
                return
        others = [other for other in self._matches if other.unit is not unit]
        self._keep([*others[: _MATCHES_MAX - 1], match])

    def _remember(self, unit: Unit) -> None:
        """Looks for a unit from now on."""
        self._forget(unit)
        unit.misses = 0
        self._units[unit.content] = unit
        alike = self._by_first_token.setdefault(unit.steps[0][0], [])
        alike.append(unit)
        alike.sort(key=len, reverse=True)
        if len(alike) > _UNITS_PER_TOKEN:
            self._forget(alike[-1])
        if len(self._units) > _UNITS_MAX:
            self._forget(next(iter(self._units.values())))

    def _forget(self, unit: Unit) -> None:
        if self._units.pop(unit.content, None) is None:
            return
        first = unit.steps[0][0]
        alike = [other for other in self._by_first_token[first] if other is not unit]
        if alike:
            self._by_first_token[first] = alike
        else:
            del self._by_first_token[first]

    def _trim(self) -> None:
        moved = self.ops.trim()
        if not moved:
            return
        for match in self._matches:
            match.start -= moved
        if self.complete is not None:
            self.complete.start -= moved
