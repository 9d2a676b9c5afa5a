"""Successive halving by itself: who is measured, how often, beside whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.tuning.simulated import Machine
from gpuwire.cli.tuning.candidates import DEFAULT, Candidate
from gpuwire.cli.tuning.comparing import Objective
from gpuwire.cli.tuning.halving import Halving, Rung, run_count, rungs_for
from gpuwire.cli.tuning.search import RUNGS


def candidates(count: int) -> tuple[Candidate, ...]:
    """Settings that are none of them the default."""
    return tuple(replace(DEFAULT, flush_threshold=100 + number) for number in range(count))


def halving(count: int, *rungs: Rung, protected: frozenset[Candidate] = frozenset()) -> Halving:
    return Halving(
        DEFAULT,
        candidates(count),
        rungs or rungs_for(count, RUNGS),
        objective=Objective.BALANCED,
        seed=3,
        protected=protected,
    )


def finish(stage: Halving, machine: Machine) -> Halving:
    while (candidate := stage.next()) is not None:
        stage.take(machine.measure(candidate))
    return stage


def better_with_number(candidate: Candidate) -> float:
    return (candidate.flush_threshold - 100) * 0.01 if candidate != DEFAULT else 0.0


def test_the_best_is_found_and_measured_most() -> None:
    machine = Machine(better_with_number, noise=0.0)
    stage = finish(halving(20), machine)
    best = candidates(20)[-1]
    assert stage.best() == best
    assert machine.measured.count(best) == 2 + 3 + 5
    assert machine.measured.count(candidates(20)[0]) == 2
    assert stage.score(best) == pytest.approx(0.19)


def test_drift_larger_than_the_differences_is_no_matter() -> None:
    machine = Machine(better_with_number, noise=0.002, drift=0.5, seed=1)
    assert finish(halving(20), machine).best() in candidates(20)[-2:]


def test_as_many_runs_are_made_as_were_announced() -> None:
    for count in (1, 2, 3, 5, 9, 20):
        stage = halving(count)
        announced = stage.runs_left
        assert announced == run_count(count, rungs_for(count, RUNGS))
        machine = Machine(better_with_number, noise=0.01)
        finish(stage, machine)
        assert len(machine.measured) == announced
        assert stage.runs_left == 0


def test_few_candidates_need_no_thinning() -> None:
    assert rungs_for(20, RUNGS) == RUNGS
    assert rungs_for(9, RUNGS) == RUNGS[1:]
    assert rungs_for(3, RUNGS) == rungs_for(1, RUNGS) == RUNGS[2:]


def test_in_the_last_rung_each_run_has_a_control_of_its_own_in_turns() -> None:
    """control, A, A, control, control, B, …: a drift cancels, and no two runs share an error."""
    machine = Machine(better_with_number, noise=0.0)
    finish(halving(1, Rung(repeats=4, group=1)), machine)
    own = candidates(1)[0]
    assert machine.measured == [DEFAULT, own, own, DEFAULT, DEFAULT, own, own, DEFAULT]


def test_candidates_lie_between_controls_in_earlier_rungs() -> None:
    machine = Machine(better_with_number, noise=0.0)
    stage = halving(6, Rung(repeats=1, group=2))
    finish(stage, machine)
    assert [candidate == DEFAULT for candidate in machine.measured] == [
        True, False, False, True, False, False, True, False, False, True,
    ]  # fmt: skip
    assert len(stage.controls) == 4


def test_a_protected_candidate_is_measured_to_the_end_however_bad() -> None:
    worst = candidates(9)[0]
    machine = Machine(better_with_number, noise=0.0)
    stage = finish(
        halving(9, Rung(1, 4), Rung(2, 2), Rung(3, 1), protected=frozenset((worst,))), machine
    )
    assert machine.measured.count(worst) == 6
    assert worst in stage.finalists
    assert stage.best() == candidates(9)[-1]


def test_nothing_is_better_than_a_control_that_is_best() -> None:
    machine = Machine(lambda each: 0.0 if each == DEFAULT else -0.1, noise=0.01)
    assert finish(halving(5), machine).best() == DEFAULT


def test_the_order_depends_on_the_seed_alone() -> None:
    first, second = (Machine(better_with_number, noise=0.01) for _ in range(2))
    finish(halving(8), first)
    finish(halving(8), second)
    assert first.measured == second.measured


def test_no_candidates_is_no_search() -> None:
    stage = Halving(DEFAULT, (DEFAULT,), RUNGS, objective=Objective.BALANCED, seed=1)
    assert stage.next() is None
    assert stage.runs_left == 0
    assert stage.best() == DEFAULT
