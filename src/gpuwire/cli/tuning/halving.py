"""Successive halving over noisy measurements (Jamieson and Talwalkar, 2016), pure.

Every rung measures the candidates that are left, more often than the rung before, and keeps the
better third. The control is measured in between, ever more closely: at the end each run has a
control's run of its own beside it.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpuwire.cli.tuning.candidates import Candidate
from gpuwire.cli.tuning.comparing import Comparison, Objective, Samples, compare

T = TypeVar("T")

KEPT_SHARE = 3
"""One in so many goes on to the next rung."""


@dataclass(frozen=True, slots=True)
class Rung:
    """How often each candidate is measured, and after how many runs the control is."""

    repeats: int
    group: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A candidate's run and the control's that it is compared with, by their place in the order."""

    run: int
    before: int
    after: int


def rungs_for(count: int, rungs: Sequence[Rung]) -> tuple[Rung, ...]:
    """The rungs that so many candidates need: the first ones thin out many, and are left out for
    few."""
    needed = 1
    while count > KEPT_SHARE**needed and needed < len(rungs):
        needed += 1
    return tuple(rungs[-needed:])


def run_count(count: int, rungs: Sequence[Rung]) -> int:
    """How many measurements it takes to search among so many candidates."""
    total = 0
    for rung in rungs:
        total += len(_interleaved(range(count * rung.repeats), -1, rung.group)[0])
        count = _kept(count)
    return total


class Halving:
    """One search among candidates. Measure `next()`, hand the samples to `take`, until `next()` is
    None; then ask for `best`."""

    def __init__(
        self,
        control: Candidate,
        candidates: Sequence[Candidate],
        rungs: Sequence[Rung],
        *,
        objective: Objective,
        seed: int,
        protected: frozenset[Candidate] = frozenset(),
    ) -> None:
        """`protected` ones are never dropped: there is something to be said about them. The control
        is no candidate of its own. The same arguments give the same order of runs."""
        self.control = control
        self.comparisons: list[Comparison] = []
        self.controls: list[Samples] = []
        """The control's runs, in order."""
        self._rungs = tuple(rungs)
        self._objective = objective
        self._random = random.Random(seed)
        self._protected = protected
        self._left = tuple(dict.fromkeys(each for each in candidates if each != control))
        self._rung = 0
        self._runs: list[Samples] = []
        self._order: list[Candidate] = []
        self._places: list[_Place] = []
        if self._left:
            self._begin_rung()

    def next(self) -> Candidate | None:
        """Whom to measure; None at the end."""
        return self._order[len(self._runs)] if self._order else None

    def take(self, samples: Samples) -> None:
        """What `next()` was measured to do."""
        if self.next() == self.control:
            self.controls.append(samples)
        self._runs.append(samples)
        if len(self._runs) == len(self._order):
            self._end_rung()

    @property
    def runs_left(self) -> int:
        """How many measurements are still to come, about."""
        if not self._order:
            return 0
        later = run_count(_kept(len(self._left)), self._rungs[self._rung + 1 :])
        return len(self._order) - len(self._runs) + later

    @property
    def finalists(self) -> tuple[Candidate, ...]:
        """Those still in, best first."""
        return tuple(sorted(self._left, key=self.score, reverse=True))

    def best(self) -> Candidate:
        """The candidate with the highest score, or the control if none is above it."""
        leader = self.finalists[0] if self._left else self.control
        return leader if self._left and self.score(leader) > 0 else self.control

    def score(self, candidate: Candidate) -> float:
        """The median over all runs so far; the control's is 0."""
        if candidate == self.control:
            return 0.0
        return statistics.median(self.scores(candidate))

    def scores(self, candidate: Candidate, *, rung: int | None = None) -> list[float]:
        """Of each run, of one rung if it is named; -1 is the last rung."""
        wanted = len(self._rungs) - 1 if rung == -1 else rung
        return [
            comparison.score(self._objective)
            for comparison in self.comparisons
            if comparison.candidate == candidate and wanted in (None, comparison.rung)
        ]

    def _begin_rung(self) -> None:
        rung = self._rungs[self._rung]
        runs: list[Candidate] = []
        for _ in range(rung.repeats):
            runs += self._random.sample(self._left, len(self._left))
        self._order, self._places = _interleaved(runs, self.control, rung.group)

    def _end_rung(self) -> None:
        runs = self._runs
        self.comparisons += [
            compare(
                self._order[place.run],
                self._rung,
                runs[place.run],
                runs[place.before],
                runs[place.after],
            )
            for place in self._places
        ]
        self._runs = []
        self._rung += 1
        if self._rung == len(self._rungs):
            self._order = []
            return
        ranked = self.finalists
        kept = {*ranked[: _kept(len(ranked))], *self._protected}
        self._left = tuple(each for each in ranked if each in kept)
        self._begin_rung()


def _kept(count: int) -> int:
    return math.ceil(count / KEPT_SHARE)


def _interleaved(runs: Sequence[T], control: T, group: int) -> tuple[list[T], list[_Place]]:
    """The order of runs, the control's among them, and which of them belong together."""
    if group == 1:
        return _paired(runs, control)
    order, places = [control], []
    for start in range(0, len(runs), group):
        members = runs[start : start + group]
        before, after = len(order) - 1, len(order) + len(members)
        places += [_Place(place, before, after) for place in range(before + 1, after)]
        order += [*members, control]
    return order, places


def _paired(runs: Sequence[T], control: T) -> tuple[list[T], list[_Place]]:
    """Each run with a control's run of its own, in turns before and after it: neighbours that
    shared one would err together, and seem to agree. A steady drift cancels over two pairs."""
    order: list[T] = []
    places = []
    for number, run in enumerate(runs):
        is_first = number % 2 == 1
        order += [run, control] if is_first else [control, run]
        own, other = len(order) - 1 - is_first, len(order) - 2 + is_first
        places.append(_Place(own, other, other))
    return order, places
