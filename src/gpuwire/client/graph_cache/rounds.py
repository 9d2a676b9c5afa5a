"""Rounds: a unit that comes several times over different tensors, and then over the same again.

Layers in a loop are one unit, since their ops are alike; what tells one from the other are the
weights. A program that does nothing but go through its layers again and again repeats the round of
them, not the single layer.
"""

from __future__ import annotations

from gpuwire.client.graph_cache.ops import StreamOps
from gpuwire.client.graph_cache.units import Match, Unit

_RUNS_MAX = 512


class RoundFinder:
    """Takes the runs of units and says how many of them make a round."""

    __slots__ = ("_before", "_end", "_keys", "_last_seen", "_unit")

    def __init__(self) -> None:
        self._unit: Unit | None = None
        self._end = -1
        self._before = 0
        self._keys: list[tuple[int, ...]] = []
        self._last_seen: dict[tuple[int, ...], int] = {}

    def completed(self, match: Match, ops: StreamOps, taken: int) -> int:
        """A unit is complete, as of `taken` ops of the stream so far. The number of its runs in a
        round, if the last two rounds were bound alike; else 0."""
        start = taken - (len(ops) - match.start)
        if match.unit is not self._unit or start != self._end or len(self._keys) >= _RUNS_MAX:
            self._unit = match.unit
            self._before = ops.outputs[match.start]
            self._keys = []
            self._last_seen = {}
        self._end = start + len(match.unit)
        key = self._key(match, ops)
        runs = len(self._keys)
        round_ = runs - self._last_seen.get(key, runs)
        self._keys.append(key)
        self._last_seen[key] = runs
        self._before = ops.outputs[match.start]
        keys = self._keys
        if round_ < 2 or keys[-round_:] != keys[-2 * round_ : -round_]:
            return 0
        return round_

    def _key(self, match: Match, ops: StreamOps) -> tuple[int, ...]:
        """What the run was bound to: what was made since the last run began by how far back it is,
        anything older as it is."""
        base, before = ops.outputs[match.start], self._before
        return tuple([base - t if t >= before else -t for t in match.inputs])
