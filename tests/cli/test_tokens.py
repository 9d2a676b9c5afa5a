"""`gpuwire token`: what an operator sees and does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuwire.cli.main import main


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return ["--state-dir", str(tmp_path / "state")]


def listed(state: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["token", "list", "--json", *state]) == 0
    records: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return records


def test_a_token_is_printed_once_and_listed_with_its_limits(
    state: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ["--days", "30", "--max-sessions", "2", "--max-memory", "1048576", "--device", "0"]
    assert main(["token", "add", "alice", *limits, *state]) == 0
    secret = capsys.readouterr().out.strip()
    assert len(secret) == 43
    assert main(["token", "list", *state]) == 0
    table = capsys.readouterr().out
    assert secret not in table
    assert "alice" in table
    assert "1 MiB" in table
    (record,) = listed(state, capsys)
    assert record["state"] == "valid"
    assert record["max_sessions"] == 2
    assert record["devices"] == [0]
    assert secret not in json.dumps(record)


def test_a_revoked_and_an_expired_token_are_told_apart(
    state: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["token", "add", "alice", *state])
    main(["token", "add", "bob", "--days", "0", *state])
    assert main(["token", "revoke", "alice", *state]) == 0
    capsys.readouterr()
    states = {record["name"]: record["state"] for record in listed(state, capsys)}
    assert states == {"alice": "revoked", "bob": "expired"}


def test_revoking_an_unknown_name_lists_the_known_ones(
    state: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["token", "add", "alice", *state])
    capsys.readouterr()
    assert main(["token", "revoke", "alise", *state]) == 1
    assert "no token is named 'alise'; there are: alice" in capsys.readouterr().err
