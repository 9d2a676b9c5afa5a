"""What the runs say of each candidate, in units that people read."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from gpuwire.cli.tuning.candidates import DEFAULT, Candidate
from gpuwire.cli.tuning.comparing import Comparison, Spread, percent, spread
from gpuwire.cli.tuning.halving import Halving
from gpuwire.cli.tuning.search import Search


@dataclass(frozen=True, slots=True)
class Figure:
    """A median with its spread."""

    value: float
    spread_percent: float
    """Half of the interquartile range, of the value; 0 for a single run."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One candidate's runs in one stage."""

    candidate: Candidate
    advantage: Spread
    """Over the stage's control; the control's own is 0."""
    throughput: Mapping[str, Figure]
    """By workload, in its unit."""
    latency: Mapping[str, Figure]
    """Seconds."""
    is_finalist: bool
    """Whether it was measured to the end of the stage."""


def standings(stage: Halving) -> list[Standing]:
    """Every candidate of a stage and its control, best first.

    A candidate's figure is the control's median times the median of their ratio: what it would
    have done at the time of the median control run. So a machine that changed its speed during the
    search does not show in the figures.
    """
    if not stage.controls:
        return []
    control = _of_control(stage)
    runs: dict[Candidate, list[Comparison]] = {}
    for comparison in stage.comparisons:
        runs.setdefault(comparison.candidate, []).append(comparison)
    finalists = stage.finalists
    found = [
        Standing(
            candidate,
            spread(stage.scores(candidate)),
            {
                name: _scaled(figure, [run.advantages[name].throughput for run in own], 1)
                for name, figure in control.throughput.items()
            },
            {
                name: _scaled(figure, [run.advantages[name].latency for run in own], -1)
                for name, figure in control.latency.items()
            },
            candidate in finalists,
        )
        for candidate, own in runs.items()
    ]
    return sorted([control, *found], key=lambda each: each.advantage.median, reverse=True)


def worth_a_row(standing: Standing, search: Search) -> bool:
    """Whether a short table shows it: those measured most, and what is in use."""
    kept = (DEFAULT.with_link_of(search.base), search.today.with_link_of(search.base))
    return standing.is_finalist or standing.candidate in kept


def _of_control(stage: Halving) -> Standing:
    names = stage.controls[0].keys()
    return Standing(
        stage.control,
        Spread(0.0, 0.0, len(stage.controls)),
        {name: _figure([run[name].throughput for run in stage.controls]) for name in names},
        {name: _figure([run[name].latency for run in stage.controls]) for name in names},
        True,
    )


def _figure(values: list[float]) -> Figure:
    middle = statistics.median(values)
    return Figure(middle, 100 * spread(values).half_width / middle)


def _scaled(control: Figure, advantages: list[float], sign: int) -> Figure:
    own = spread(advantages)
    return Figure(control.value * math.exp(sign * own.median), percent(own.half_width))
