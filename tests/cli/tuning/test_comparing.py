"""What a difference is worth."""

from __future__ import annotations

import math
import random

import pytest

from gpuwire.cli.tuning.candidates import DEFAULT
from gpuwire.cli.tuning.comparing import (
    Objective,
    Sample,
    Spread,
    chance,
    compare,
    percent,
    spread,
)


def test_a_run_is_compared_with_the_controls_on_both_sides_of_it() -> None:
    """A machine that becomes steadily slower shows in none of the ratios."""
    before = {"chain": Sample(throughput=1000, latency=0.010)}
    own = {"chain": Sample(throughput=500, latency=0.020)}
    after = {"chain": Sample(throughput=250, latency=0.040)}
    comparison = compare(DEFAULT, 0, own, before, after)
    assert comparison.advantages["chain"].throughput == pytest.approx(0)
    assert comparison.advantages["chain"].latency == pytest.approx(0)


def test_less_latency_and_more_throughput_are_both_better() -> None:
    control = {"chain": Sample(1000, 0.010)}
    faster = compare(DEFAULT, 0, {"chain": Sample(1100, 0.010)}, control, control)
    prompter = compare(DEFAULT, 0, {"chain": Sample(1000, 0.009)}, control, control)
    assert percent(faster.score(Objective.THROUGHPUT)) == pytest.approx(10)
    assert faster.score(Objective.LATENCY) == pytest.approx(0)
    assert prompter.score(Objective.LATENCY) > 0.1
    assert prompter.score(Objective.BALANCED) == pytest.approx(-math.log(0.9) / 2)


def test_a_score_is_the_mean_over_workloads_whatever_their_units() -> None:
    control = {"chain": Sample(1e6, 1.0), "upload": Sample(3.0, 1.0)}
    mixed = {"chain": Sample(1.2e6, 1.0), "upload": Sample(3.0 / 1.2, 1.0)}
    comparison = compare(DEFAULT, 0, mixed, control, control)
    assert comparison.score(Objective.THROUGHPUT) == pytest.approx(0)


def test_the_spread_is_half_of_the_interquartile_range() -> None:
    assert spread([5.0]) == Spread(5.0, 0.0, 1)
    assert spread([1.0, 2.0, 3.0, 4.0, 100.0]).median == 3
    assert spread([1.0, 2.0, 3.0, 4.0, 100.0]).half_width == 1


def test_chance_of_agreement_is_that_of_as_many_coins() -> None:
    assert chance([0.1] * 5) == 1 / 32
    assert chance([-0.1] * 5) == 1
    assert chance([0.2, -0.1]) == 1 / 2
    assert chance([0.0, 0.0]) == 1


def test_chance_is_right_as_often_as_it_says() -> None:
    """Of many comparisons of equals, one in twenty passes at 5 %."""
    source = random.Random(7)
    passed = sum(chance([source.gauss(0, 0.1) for _ in range(8)]) <= 0.05 for _ in range(600))
    assert 0.03 <= passed / 600 <= 0.07
