"""The whole search over simulated machines: what it recommends, and how sure it may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.tuning.simulated import Machine, searched
from gpuwire.cli.tuning.candidates import DEFAULT, Candidate, Space
from gpuwire.cli.tuning.comparing import Objective, percent
from gpuwire.cli.tuning.search import Finding, Search, Stage

OFFLOAD = replace(DEFAULT, segmentation_offload=True)
QH3 = replace(DEFAULT, quic_engine="qh3")
LINKS = (OFFLOAD, QH3)


def larger_batches_help(candidate: Candidate) -> float:
    """By up to 20 %, at 64 tasks."""
    tasks = {1: -0.2, 4: 0.0, 16: 0.1, 64: 0.182, 256: 0.12}
    return tasks.get(candidate.flush_threshold, 0.05)


def search(space: Space | None = None, today: Candidate = DEFAULT, seed: int = 1) -> Search:
    return Search(space or Space(), today, Objective.BALANCED, seed=seed)


def test_a_better_setting_is_recommended_with_its_gain() -> None:
    done = searched(search(), Machine(larger_batches_help, noise=0.05, drift=0.3))
    outcome = done.outcome()
    assert outcome.finding == Finding.BETTER
    assert outcome.recommended == outcome.best
    assert outcome.recommended.flush_threshold == 64
    assert outcome.best_verdict is not None
    assert percent(outcome.best_verdict.advantage.median) == pytest.approx(20, abs=6)
    assert outcome.best_verdict.chance < 0.01
    assert outcome.best_verdict.advantage.count == 10


def test_noise_alone_recommends_the_default() -> None:
    """The best of twenty equals looks better than the default until both are measured anew."""
    findings = []
    for seed in range(20):
        machine = Machine(lambda _: 0.0, noise=0.1, drift=0.3, seed=seed)
        outcome = searched(search(seed=seed), machine).outcome()
        findings.append(outcome.finding)
        if outcome.finding != Finding.BETTER:
            assert outcome.recommended == DEFAULT
    assert findings.count(Finding.NOISE) > 10
    assert findings.count(Finding.BETTER) <= 2, "one in twenty is what 5 % means"


def test_a_gain_too_small_to_matter_is_not_recommended() -> None:
    machine = Machine(lambda each: 0.01 * (each.flush_threshold == 64), noise=0.0001)
    outcome = searched(search(), machine).outcome()
    assert outcome.finding == Finding.NOISE
    assert outcome.best.flush_threshold == 64
    assert outcome.recommended == DEFAULT


def test_where_the_default_is_best_nothing_is_confirmed() -> None:
    machine = Machine(lambda each: -0.1 * (each != DEFAULT), noise=0.01)
    done = searched(search(), machine)
    outcome = done.outcome()
    assert outcome.finding == Finding.DEFAULT
    assert outcome.best_verdict is None
    assert done.confirming is not None and not done.confirming.comparisons


def test_a_better_link_is_adopted_and_the_grid_is_searched_over_it() -> None:
    def effect(candidate: Candidate) -> float:
        return larger_batches_help(candidate) + 0.15 * candidate.segmentation_offload

    machine = Machine(effect, noise=0.03, drift=0.2)
    done = searched(search(Space(links=LINKS)), machine)
    assert done.base == OFFLOAD
    recommended = done.outcome().recommended
    assert (recommended.segmentation_offload, recommended.flush_threshold) == (True, 64)
    assert recommended.quic_engine == DEFAULT.quic_engine


def test_a_link_that_is_no_better_is_not_adopted() -> None:
    machine = Machine(larger_batches_help, noise=0.05)
    assert searched(search(Space(links=LINKS)), machine).base == DEFAULT


def test_todays_setting_is_judged_even_off_the_grid_and_bad() -> None:
    today = replace(DEFAULT, flush_threshold=3, flush_bytes_threshold=1000)
    machine = Machine(lambda each: -0.3 if each == today else 0.0, noise=0.01)
    outcome = searched(search(today=today), machine).outcome()
    assert outcome.today_verdict is not None
    assert percent(outcome.today_verdict.advantage.median) == pytest.approx(-26, abs=2)


def test_stages_come_in_order_and_the_announced_number_of_runs_is_near() -> None:
    running, machine = search(Space(links=LINKS)), Machine(larger_batches_help, noise=0.05)
    announced, stages = running.runs_left, []
    while (candidate := running.next()) is not None:
        if running.stage not in stages:
            stages.append(running.stage)
        left = running.runs_left
        running.take(machine.measure(candidate))
        assert running.runs_left <= left + 1
    assert stages == [Stage.LINK, Stage.THRESHOLDS, Stage.CONFIRM]
    assert len(machine.measured) == pytest.approx(announced, abs=5)
    assert running.runs_left == 0


def test_one_pair_of_thresholds_is_a_search_too() -> None:
    machine = Machine(larger_batches_help, noise=0.05)
    outcome = searched(search(Space((64,), (1024 * 1024,))), machine).outcome()
    assert outcome.recommended.flush_threshold == 64


def test_the_objective_decides() -> None:
    def trade(objective: Objective) -> Candidate:
        class Trading(Machine):
            def measure(self, candidate: Candidate) -> dict:  # type: ignore[type-arg]
                sign = 1 if candidate.flush_threshold == 256 else 0
                return {
                    name: replace(
                        sample,
                        throughput=sample.throughput * 1.3**sign,
                        latency=sample.latency * 1.3**sign,
                    )
                    for name, sample in super().measure(candidate).items()
                }

        running = Search(Space(), DEFAULT, objective)
        return searched(running, Trading(lambda _: 0.0, noise=0.01)).outcome().recommended

    assert trade(Objective.THROUGHPUT).flush_threshold == 256
    assert trade(Objective.LATENCY).flush_threshold != 256
    assert trade(Objective.BALANCED) == DEFAULT
