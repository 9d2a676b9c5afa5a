"""A search that is stopped and taken up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.tuning.simulated import WORKLOADS, Machine, searched
from gpuwire.cli.tuning.candidates import DEFAULT, Space
from gpuwire.cli.tuning.comparing import Objective
from gpuwire.cli.tuning.search import Search
from gpuwire.cli.tuning.state import Run, Settings, State, read_state, replay, write_state
from gpuwire.errors import ArgumentError

SETTINGS = Settings(
    server="127.0.0.1:4433 fingerprint",
    device=0,
    workloads=WORKLOADS,
    objective=Objective.BALANCED,
    today=DEFAULT,
    space=Space(links=(replace(DEFAULT, quic_engine="qh3"),)),
)


def new_search() -> Search:
    return Search(SETTINGS.space, DEFAULT, SETTINGS.objective)


def measured(machine: Machine, search: Search, runs: int) -> State:
    """The state after so many runs."""
    kept = []
    for _ in range(runs):
        candidate = search.next()
        assert candidate is not None
        samples = machine.measure(candidate)
        search.take(samples)
        kept.append(Run.of(candidate, samples))
    return State(settings=SETTINGS, runs=tuple(kept))


@pytest.mark.parametrize("runs", [0, 1, 17, 60])
def test_a_search_taken_up_ends_as_one_that_was_never_stopped(runs: int, tmp_path: Path) -> None:
    def machine() -> Machine:
        return Machine(lambda each: 0.1 * (each.flush_threshold == 16), noise=0.05, drift=0.2)

    straight = searched(new_search(), machine()).outcome()
    stopping = machine()
    file = tmp_path / "state.json"
    write_state(file, measured(stopping, new_search(), runs))
    again = new_search()
    replay(read_state(file, SETTINGS), again)
    assert searched(again, stopping).outcome() == straight


def test_there_is_no_state_before_the_first_run(tmp_path: Path) -> None:
    assert read_state(tmp_path / "absent.json", SETTINGS) == State(settings=SETTINGS)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"server": "elsewhere:1"}, "another server"),
        ({"device": 1}, "another device"),
        ({"workloads": ("chain",)}, "another workloads"),
        ({"objective": Objective.LATENCY}, "another objective"),
        ({"today": replace(DEFAULT, flush_threshold=9)}, "another today"),
        ({"space": Space()}, "another space"),
    ],
)
def test_a_state_of_something_else_is_not_taken_up(
    change: dict[str, object], named: str, tmp_path: Path
) -> None:
    file = tmp_path / "state.json"
    write_state(file, State(settings=SETTINGS.model_copy(update=change)))
    with pytest.raises(ArgumentError, match=named):
        read_state(file, SETTINGS)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 2}', "\x00\xff", json.dumps({"version": 1, "runs": 3})],
)
def test_what_is_no_state_is_refused_by_name(text: str, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ArgumentError, match=r"state\.json"):
        read_state(file, SETTINGS)


def test_a_measurement_that_cannot_be_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    state = measured(Machine(lambda _: 0.0, noise=0.1), new_search(), 2)
    write_state(file, state)
    file.write_text(file.read_text().replace('"throughput":', '"throughput":-', 1))
    with pytest.raises(ArgumentError, match="throughput"):
        read_state(file, SETTINGS)


def test_runs_in_another_order_are_refused() -> None:
    state = measured(Machine(lambda _: 0.0, noise=0.1), new_search(), 9)
    shuffled = state.model_copy(update={"runs": tuple(reversed(state.runs))})
    with pytest.raises(ArgumentError, match="another version"):
        replay(shuffled, new_search())


def test_a_state_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="cannot be written"):
        write_state(tmp_path / "absent" / "state.json", State(settings=SETTINGS))
    assert list(tmp_path.iterdir()) == []
