"""`gpuwire bench` against a real server."""

from __future__ import annotations

import json

import pytest

from gpuwire.cli.benching.limits import Limit
from gpuwire.cli.main import main


def test_rates_and_limits(server_ticket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", server_ticket, "--seconds", "1", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    facts = json.loads(captured.out)
    assert facts["server_tells_nothing"] is None
    assert 0 < facts["round_trip_seconds"]["minimum"] <= facts["round_trip_seconds"]["median"]
    phases = {phase["name"]: phase for phase in facts["phases"]}
    assert list(phases) == ["upload", "download", "operations"]
    for phase in phases.values():
        assert phase["rate"] > 0
        assert phase["busy"]["client"] > 0
        assert phase["busy"]["front"] > 0, "the server tells its processor time"
        assert phase["finding"]["limit"] in set(Limit)
    assert 0 < phases["operations"]["wire_rate"] < phases["operations"]["rate"]


def test_the_text_names_the_limit(server_ticket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", server_ticket, "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    for name in ("round trip", "upload, limit ", "download, limit ", "operations, limit "):
        assert name in out
