"""`gpuwire tune` against a real server: a small search from end to end, and what can go wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwire.cli.main import main
from gpuwire.config import load_config
from servers import ServerProcess, clean_environment

SMALL = ["--flush-threshold", "4", "--flush-threshold", "32", "--flush-bytes-threshold", "1048576"]
QUICK = [*SMALL, "--seconds", "0", "--no-link", "--workload", "chain"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUWIRE_URL", raising=False)


def test_a_search_ends_with_a_recommendation_a_picture_and_a_page(
    server_ticket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("gpuwire.toml").write_text("# ours\n[remote]\nflush_threshold = 32\n")
    options = ["--report", "out.html", "--write", "--json", "--state", "state.json"]
    assert main(["tune", server_ticket, *QUICK, *options]) == 0
    captured = capsys.readouterr()
    facts: dict[str, Any] = json.loads(captured.out)
    assert facts["finding"] in ("better", "inside the noise", "default")
    assert facts["today"]["flush_threshold"] == 32
    assert {row["flush_threshold"] for row in facts["thresholds"]} == {4, 32}
    assert facts["thresholds"][0]["throughput"]["chain"]["median"] > 0
    assert Path("gpuwire-tune.png").read_bytes().startswith(b"\x89PNG")
    assert "Recommended" in Path("out.html").read_text()
    text = Path("gpuwire.toml").read_text()
    assert text.startswith("# ours\n[remote]\n")
    written = load_config().remote.flush_threshold
    assert written == facts["recommended"]["flush_threshold"]
    secret = server_ticket.partition("token=")[2]
    for file in Path().iterdir():
        assert secret.encode() not in file.read_bytes(), file


def test_the_text_says_what_to_do(server_ticket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", server_ticket, *QUICK, "--no-plot", "--all"]) == 0
    out = capsys.readouterr().out
    assert "Recommended: " in out
    assert out.split()[:2] == ["tasks", "bytes"]
    assert list(Path().iterdir()) == [], "nothing is written without being asked for"


def test_ways_of_sending_are_tried_or_it_is_said_why_not(
    server_ticket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    link = [each for each in QUICK if each != "--no-link"]
    assert main(["tune", server_ticket, *link, "--no-plot", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    tried = {
        (row["quic_engine"], row["segmentation_offload"], row["datagram_bytes"])
        for row in facts["link"]
    }
    assert ("auto", False, 1452) in tried
    assert ("aioquic", True, None) in tried or any("offload" in why for why in facts["not_tried"])


def test_a_workload_of_the_users(server_ticket: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(
        "import gpuwire as gw\n\ndef step(dev):\n    return gw.ones((4,), device=dev) + 1\n"
    )
    options = [*SMALL, "--seconds", "0", "--no-link", "--no-plot", "--json"]
    assert main(["tune", server_ticket, *options, "--workload", "mine.py:step"]) == 0
    assert json.loads(capsys.readouterr().out)["workloads"] == {"mine.py:step": "calls/s"}


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("gpuwire: ")
    return captured.err


def test_a_workload_that_raises(server_ticket: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("def step(dev):\n    raise RuntimeError('no data')\n")
    command = ["tune", server_ticket, *SMALL, "--no-link", "--workload", "mine.py:step"]
    assert main([*command, "--write"]) == 1
    assert "RuntimeError at mine.py, line 2: no data" in one_line(capsys)
    assert sorted(path.name for path in Path().iterdir()) == ["mine.py"]
    assert main(["ping", server_ticket, "--count", "1"]) == 0, "the server goes on"


def test_a_read_only_configuration_file_is_told_before_anything_is_measured(
    server_ticket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("gpuwire.toml").write_text("[remote]\n")
    Path("gpuwire.toml").chmod(0o444)
    # Without the check it would run for two minutes.
    assert main(["tune", server_ticket, "--write"]) == 1
    assert "gpuwire.toml: cannot be written" in one_line(capsys)


@pytest.mark.parametrize(
    ("module", "option", "message"),
    [
        ("matplotlib", [], "pip install 'gpuwire[tune]'"),
        ("matplotlib", ["--no-plot", "--report", "x.html"], "pip install 'gpuwire[tune]'"),
        ("tomlkit", ["--no-plot", "--write"], "pip install 'gpuwire[tune]'"),
    ],
)
def test_a_missing_extra_is_told_before_anything_is_measured(
    module: str,
    option: list[str],
    message: str,
    server_ticket: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["tune", server_ticket, *option]) == 1
    assert message in one_line(capsys)


def test_pictures_that_could_not_be_written_are_told_before(
    server_ticket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", server_ticket, "--plot", "absent/x.png"]) == 1
    assert "absent/x.png: cannot be written" in one_line(capsys)


def start(ticket: str, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gpuwire.cli", "tune", ticket, *options],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


LONG = ["--seconds", "600", "--no-link", "--no-plot", "--workload", "chain", "--state", "state"]


def wait_for_runs(state: Path, process: subprocess.Popen[str]) -> int:
    """Until there is a state; the number of its runs."""
    while process.poll() is None:
        if state.exists():
            return len(json.loads(state.read_text())["runs"])
    raise AssertionError(process.stderr.read() if process.stderr else "")


def test_ctrl_c_stops_and_the_same_command_goes_on(
    server_ticket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--seconds", "20", *LONG[2:], *SMALL]
    process = start(server_ticket, *command)
    runs = wait_for_runs(Path("state"), process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "with --state state goes on from there" in error
    kept = json.loads(Path("state").read_text())["runs"]
    assert len(kept) >= runs > 0
    assert main(["tune", server_ticket, *command, "--seconds", "0", "--json"]) == 0
    capsys.readouterr()
    assert json.loads(Path("state").read_text())["runs"][: len(kept)] == kept


def test_a_server_that_goes_away(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "server") as server:
        process = start(server.ticket, *LONG)
        wait_for_runs(Path("state"), process)
        server.stop()
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.count("\n") == 1
    assert error.startswith("gpuwire: the server went away after ")
    assert "with --state state goes on from there" in error
