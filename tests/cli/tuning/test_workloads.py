"""A user's own workload: from the text on the command line to something that can be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwire.cli.tuning.conducting import workloads_named
from gpuwire.cli.tuning.measuring import Amount, Pace, amount_of
from gpuwire.cli.tuning.workloads import failed, load_workload
from gpuwire.errors import ArgumentError, LinkLost

SCRIPT = "import beside\n\ndef step(dev):\n    beside.seen.append(dev)\n\nnumber = 3\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("seen = []\n")
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    return file


def test_a_function_of_a_script_is_a_workload(script: Path) -> None:
    workload = load_workload(f"{script}:step")
    assert workload.name == "train.py:step"
    assert (workload.unit, workload.amount) == ("calls/s", 1)


def test_a_changed_script_is_another_workload(script: Path) -> None:
    before = load_workload(f"{script}:step").identity
    script.write_text(SCRIPT + "# changed\n")
    assert load_workload(f"{script}:step").identity != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.py", "script.py:function"),
        ("train.py:", "script.py:function"),
        ("absent.py:step", "absent.py: cannot be read"),
        ("{script}:absent", "has no function 'absent'"),
        ("{script}:number", "has no function 'number'"),
    ],
)
def test_what_is_no_workload_is_told(text: str, message: str, script: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        load_workload(text.format(script=script))


def test_a_script_that_raises_is_named_with_its_line(script: Path) -> None:
    script.write_text("one = 1\nraise ValueError('no such data')\n")
    with pytest.raises(ArgumentError, match=r"ValueError at train\.py, line 2: no such data"):
        load_workload(f"{script}:step")


def test_a_workload_that_raises_is_named_with_its_line(script: Path) -> None:
    script.write_text("def step(dev):\n    return 1 / 0\n")
    workload = load_workload(f"{script}:step")
    work = workload.prepare(None)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError) as raised:
        work.step()
    said = failed(workload, raised.value)
    assert isinstance(said, ArgumentError)
    assert "train.py:step raised ZeroDivisionError at train.py, line 2: division" in str(said)


def test_a_lost_link_is_no_fault_of_the_workload(script: Path) -> None:
    lost = LinkLost("gone")
    assert failed(load_workload(f"{script}:step"), lost) is lost


def test_workloads_are_named_once() -> None:
    assert [each.name for each in workloads_named(())] == ["chain", "training", "upload"]
    assert [each.name for each in workloads_named(("upload", "chain", "upload"))] == [
        "upload",
        "chain",
    ]


def test_a_run_does_what_fits_and_never_nothing() -> None:
    assert amount_of(Pace(step=0.01, answer=0.02), 1.0) == Amount(60, 20)
    assert amount_of(Pace(step=10.0, answer=10.0), 0.1) == Amount(1, 3)
    assert amount_of(Pace(step=1e-6, answer=1e-6), 1.0).answers == 200
