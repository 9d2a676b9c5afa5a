"""Measurements, and what it means that one is better than another.

Everything is compared in logarithms of ratios: an advantage of 0.1 is 10 % faster, as much as -0.1
is slower, and advantages may be averaged over workloads whose units have nothing in common.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from gpuwire.cli.tuning.candidates import Candidate


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one workload."""

    throughput: float
    """Units of the workload per second."""
    latency: float
    """Seconds from asking to having the answer; the median of several."""


Samples = Mapping[str, Sample]
"""By workload."""


class Objective(StrEnum):
    """What is to become better."""

    BALANCED = "balanced"
    THROUGHPUT = "throughput"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Advantage:
    """Logarithm of a candidate's ratio to the control; above 0 the candidate is better."""

    throughput: float
    latency: float

    def towards(self, objective: Objective) -> float:
        """One number for what is wanted; `balanced` is the mean of both."""
        match objective:
            case Objective.THROUGHPUT:
                return self.throughput
            case Objective.LATENCY:
                return self.latency
            case Objective.BALANCED:
                return (self.throughput + self.latency) / 2


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run of a candidate against the control's runs just before and just after it, so that a
    machine that becomes slower or faster meanwhile does so for both."""

    candidate: Candidate
    rung: int
    advantages: Mapping[str, Advantage]

    def score(self, objective: Objective) -> float:
        """The mean over the workloads."""
        return statistics.fmean(each.towards(objective) for each in self.advantages.values())


def compare(
    candidate: Candidate, rung: int, samples: Samples, before: Samples, after: Samples
) -> Comparison:
    """`before` and `after` are the control's neighbouring runs."""
    return Comparison(
        candidate,
        rung,
        {
            name: Advantage(
                throughput=math.log(sample.throughput)
                - _mean_log(before[name].throughput, after[name].throughput),
                latency=_mean_log(before[name].latency, after[name].latency)
                - math.log(sample.latency),
            )
            for name, sample in samples.items()
        },
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and how far the middle half of the values lies from it."""

    median: float
    half_width: float
    """Half of the interquartile range; 0 for a single value."""
    count: int


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    if len(values) == 1:
        return Spread(values[0], 0.0, 1)
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(statistics.median(values), (upper - lower) / 2, len(values))


def chance(advantages: Sequence[float]) -> float:
    """How likely a mean advantage as large as this one is if there is none: Fisher's exact
    sign-flip test, one-sided. Assumes no distribution, only that without an advantage each value
    could as well have had the other sign. 2 ** n sums: for up to 16 values."""
    observed = math.fsum(advantages)
    tolerance = 1e-12 * math.fsum(map(abs, advantages))
    sums = (
        math.fsum(sign * value for sign, value in zip(signs, advantages, strict=True))
        for signs in product((1, -1), repeat=len(advantages))
    )
    as_large = sum(each >= observed - tolerance for each in sums)
    return as_large / float(2 ** len(advantages))


def percent(advantage: float) -> float:
    """0.1 → 10.5: what an advantage means in per cent."""
    return math.expm1(advantage) * 100


def _mean_log(first: float, second: float) -> float:
    return (math.log(first) + math.log(second)) / 2
