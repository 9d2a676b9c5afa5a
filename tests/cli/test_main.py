"""The command line's frame: help that teaches, errors of one line, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpuwire.cli.main import app, main

COMMANDS = [
    "serve",
    "devices",
    "ping",
    "bench",
    "top",
    "tune",
    "version",
    "token list",
    "token add",
    "token revoke",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_and_shows_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "Example: gpuwire " + command in result.output


def test_help_has_no_colour_where_it_is_not_wanted() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "gpuwire.cli", "--help"], capture_output=True, text=True, check=True
    )
    assert "serve" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["srve"], "No such command 'srve'"),
        (["serve", "--prot", "1"], "No such option: --prot"),
        (["serve", "--port", "70000"], "--port"),
        (["ping", "--count", "0", "x"], "--count"),
        (["token", "add"], "Missing argument"),
    ],
)
def test_wrong_use_is_one_line_that_names_the_help(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("gpuwire: ")
    assert captured.err.rstrip().endswith("--help")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["devices", "--config", "absent.toml"], "absent.toml: cannot be read"),
        (["serve", "--config", "wrong.toml"], "did you mean remote.flush_threshold?"),
        (["devices", "nonsense"], "ticket"),
        (["ping", "nonsense"], "ticket"),
        (["ping"], "no ticket: give one, or put it into GPUWIRE_URL"),
    ],
)
def test_a_failure_is_one_line_that_says_what_to_do(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUWIRE_URL", raising=False)
    Path("wrong.toml").write_text("[remote]\nflush_treshold = 1\n")
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_no_command_shows_the_help_as_wrong_use() -> None:
    result = subprocess.run([sys.executable, "-m", "gpuwire.cli"], capture_output=True, text=True)
    assert result.returncode == 2
    assert "serve" in result.stdout + result.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == lines
    assert {"gpuwire", "python", "aioquic", "wgpu"} <= set(lines)
