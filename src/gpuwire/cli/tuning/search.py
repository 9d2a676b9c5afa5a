"""The whole search, pure: which setting to measure next, and what to recommend in the end.

Three stages. `link` tries ways of sending at the default thresholds and adopts one only if it is
better beyond chance. `thresholds` searches the grid of both thresholds over that link. `confirm`
measures the winner and the default in turns, with fresh runs: those that made it the winner would
flatter it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuwire.cli.tuning.candidates import DEFAULT, Candidate, Space
from gpuwire.cli.tuning.comparing import (
    Comparison,
    Objective,
    Samples,
    Spread,
    chance,
    spread,
)
from gpuwire.cli.tuning.halving import Halving, Rung, run_count, rungs_for

RUNGS = (Rung(repeats=2, group=4), Rung(repeats=3, group=2), Rung(repeats=5, group=1))

CONFIRMING_RUNS = 10
"""With ten pairs, eight or nine must agree before the sign-flip test is convinced."""

CHANCE_ACCEPTED = 0.05
SMALLEST_ADVANTAGE = 0.02
"""Two per cent: nobody changes a setting for less."""


class Stage(StrEnum):
    """What the search is at."""

    LINK = "link"
    THRESHOLDS = "thresholds"
    CONFIRM = "confirm"


class Finding(StrEnum):
    """What came out."""

    BETTER = "better"
    """The recommended setting beats the default beyond chance."""
    NOISE = "inside the noise"
    """The best setting may well be no better than the default."""
    DEFAULT = "default"
    """Nothing measured better than the default."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one candidate does against the default, in runs made for this question."""

    advantage: Spread
    """As `Comparison.score`."""
    chance: float
    throughput: Mapping[str, Spread]
    """Advantage by workload."""
    latency: Mapping[str, Spread]

    @property
    def is_convincing(self) -> bool:
        """Whether it is better beyond chance and by enough to matter."""
        return self.chance <= CHANCE_ACCEPTED and self.advantage.median >= SMALLEST_ADVANTAGE


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the search found."""

    finding: Finding
    recommended: Candidate
    best: Candidate
    """The winner of the grid, whether or not it is recommended."""
    best_verdict: Verdict | None
    """None if that is the default."""
    today_verdict: Verdict | None
    """None if today's setting is the default."""


class Search:
    """Measure `next()`, hand the samples to `take`, until `next()` is None; then `outcome()`.

    The same arguments and samples lead through the same steps, so that a search that was stopped
    is taken up by handing its samples over again.
    """

    def __init__(
        self,
        space: Space,
        today: Candidate,
        objective: Objective,
        *,
        rungs: Sequence[Rung] = RUNGS,
        confirming_runs: int = CONFIRMING_RUNS,
        seed: int = 1,
    ) -> None:
        """`today` is the setting in use; `confirming_runs` is 4 to 16."""
        self.today = today
        self.objective = objective
        self.base = DEFAULT
        """The default thresholds over the link that was adopted."""
        self.thresholds: Halving | None = None
        self.confirming: Halving | None = None
        self._space = space
        self._rungs = rungs
        self._confirming_runs = confirming_runs
        self._seed = seed
        self.stage = Stage.LINK
        self.link = self._among(DEFAULT, space.links)
        self._current = self.link
        self._advance()

    def next(self) -> Candidate | None:
        """Whom to measure; None at the end."""
        return self._current.next()

    def take(self, samples: Samples) -> None:
        """What `next()` was measured to do."""
        self._current.take(samples)
        self._advance()

    @property
    def runs_left(self) -> int:
        """How many measurements are still to come, about: the last stage may fall away."""
        grid = len(self._space.flush_thresholds) * len(self._space.flush_bytes_thresholds)
        later = {
            Stage.LINK: run_count(grid, rungs_for(grid, self._rungs)) + self._to_confirm,
            Stage.THRESHOLDS: self._to_confirm,
            Stage.CONFIRM: 0,
        }
        return self._current.runs_left + later[self.stage]

    def outcome(self) -> Outcome:
        """What was found; after the end."""
        assert self.thresholds is not None and self.confirming is not None
        best = self.thresholds.best()
        verdict = None if best == DEFAULT else self._verdict(best)
        today = None if self.today == DEFAULT else self._verdict(self.today)
        if verdict is None:
            finding, recommended = Finding.DEFAULT, DEFAULT
        elif verdict.is_convincing:
            finding, recommended = Finding.BETTER, best
        else:
            finding, recommended = Finding.NOISE, DEFAULT
        return Outcome(finding, recommended, best, verdict, today)

    @property
    def comparisons(self) -> list[Comparison]:
        """Of the grid's stage: what the heat maps show."""
        return self.thresholds.comparisons if self.thresholds is not None else []

    @property
    def _to_confirm(self) -> int:
        candidates = 1 if self.today == DEFAULT else 2
        return run_count(candidates, (Rung(self._confirming_runs, 1),))

    def _advance(self) -> None:
        """On to the next stage, over those that have nothing to measure."""
        while self._current.next() is None and self.stage != Stage.CONFIRM:
            if self.stage == Stage.LINK:
                self.base = self._adopted()
                self.stage = Stage.THRESHOLDS
                today = self.today.with_link_of(self.base)
                self.thresholds = self._among(
                    self.base, (*self._space.thresholds(self.base), today), frozenset((today,))
                )
                self._current = self.thresholds
            else:
                self.stage = Stage.CONFIRM
                assert self.thresholds is not None
                self.confirming = Halving(
                    DEFAULT,
                    (self.thresholds.best(), self.today),
                    (Rung(self._confirming_runs, 1),),
                    objective=self.objective,
                    seed=self._seed,
                )
                self._current = self.confirming

    def _among(
        self,
        control: Candidate,
        candidates: Sequence[Candidate],
        protected: frozenset[Candidate] = frozenset(),
    ) -> Halving:
        count = len({*candidates} - {control})
        return Halving(
            control,
            candidates,
            rungs_for(count, self._rungs),
            objective=self.objective,
            seed=self._seed,
            protected=protected,
        )

    def _adopted(self) -> Candidate:
        """The best link if it is better beyond chance, else the default one."""
        best = self.link.best()
        if best == DEFAULT:
            return DEFAULT
        scores = self.link.scores(best, rung=-1)
        convincing = chance(scores) <= CHANCE_ACCEPTED
        return best if convincing and spread(scores).median >= SMALLEST_ADVANTAGE else DEFAULT

    def _verdict(self, candidate: Candidate) -> Verdict:
        assert self.confirming is not None
        scores = self.confirming.scores(candidate)
        runs = [each for each in self.confirming.comparisons if each.candidate == candidate]
        names = runs[0].advantages
        return Verdict(
            spread(scores),
            chance(scores),
            {name: spread([run.advantages[name].throughput for run in runs]) for name in names},
            {name: spread([run.advantages[name].latency for run in runs]) for name in names},
        )
