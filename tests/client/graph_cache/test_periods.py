"""Repetition is found where it is, as soon as two periods are there, and nowhere else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.client.graph_cache.periods import JOINED_TOKENS, PERIOD_MAX, PeriodFinder, joined


def found(tokens: list[int], longer_than: int = 0) -> list[tuple[int, int]]:
    """How many tokens had come, and the period found with the last of them."""
    finder = PeriodFinder()
    periods = [(count, finder.append(t, longer_than)) for count, t in enumerate(tokens, 1)]
    return [(count, period) for count, period in periods if period]


@pytest.mark.parametrize("period", [32, 100, 700, 2000, PERIOD_MAX])
def test_a_period_is_found_with_the_end_of_its_second_run(period: int) -> None:
    noise = [1_000_000 + n for n in range(57)]
    assert found(noise + list(range(period)) * 2)[0] == (57 + 2 * period, period)


@pytest.mark.parametrize("period", [1, 2, 3, 17, 31])
def test_a_short_period_is_found_when_several_make_one_unit(period: int) -> None:
    length = joined(period)
    assert length >= JOINED_TOKENS
    assert length % period == 0
    assert found(list(range(period)) * 100)[0] == (length + period, period)


def test_the_outer_period_is_found_while_the_inner_is_known() -> None:
    step = [1, 2, 3, 4, 5] * 20 + [6, 7]
    periods = {period for _, period in found(step * 4, longer_than=joined(5))}
    assert periods == {len(step)}


def test_a_period_beyond_the_longest_is_none() -> None:
    assert found(list(range(PERIOD_MAX + 1)) * 3) == []


def test_what_is_forgotten_does_not_matter_to_what_comes_after() -> None:
    source = random.Random(1)
    noise = [source.randrange(1 << 40) for _ in range(50_000)]
    assert found(noise) == []
    assert found(noise + list(range(3000)) * 2)[0] == (56_000, 3000)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.integers(1, 3), max_size=300))
def test_what_is_found_is_there(tokens: list[int]) -> None:
    for count, period in found(tokens):
        end = tokens[:count]
        length = joined(period)
        assert end[-length:] == end[-length - period : -period]
