"""`gpuwire devices` and `gpuwire ping`, against this machine and against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuwire.cli.main import main
from gpuwire.transport import Ticket


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUWIRE_URL", raising=False)


def test_a_server_lends_what_the_machine_has(
    server_ticket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", "--json"]) == 0
    own = json.loads(capsys.readouterr().out)
    assert main(["devices", server_ticket, "--json"]) == 0
    lent = json.loads(capsys.readouterr().out)
    assert [device["name"] for device in lent] == [device["name"] for device in own]
    assert own[0]["index"] == 0
    assert "float32" in own[0]["dtypes"]
    assert own[0]["max_buffer_bytes"] >= own[0]["max_binding_bytes"] > 0


def test_devices_are_shown_as_a_table(
    server_ticket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", server_ticket, "--json"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)
    assert main(["devices", server_ticket]) == 0
    headings, row, *_ = capsys.readouterr().out.splitlines()
    assert headings.split()[:6] == ["#", "name", "backend", "kind", "f16", "f64"]
    assert row.split()[0] == "0"
    assert first["name"] in row, "names are not cut where there is no terminal"
    assert "iB" in row


def test_ping_measures_and_names_the_path(
    server_ticket: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ping", server_ticket, "--count", "5", "--json"]) == 0
    captured = capsys.readouterr()
    facts = json.loads(captured.out)
    assert captured.err == ""
    assert 0 < facts["minimum_ms"] <= facts["median_ms"] <= facts["maximum_ms"]
    assert facts["address"] == f"127.0.0.1:{Ticket.parse(server_ticket).port}"
    assert facts["datagram_bytes"] >= 1200
    assert facts["engine"] == "aioquic"
    assert facts["windows"] == {"stream_bytes": 2**20, "connection_bytes": 2**21}
    assert facts["quic_round_trip_ms"]["minimum"] <= facts["quic_round_trip_ms"]["median"]
    assert facts["quic_round_trip_ms"]["jitter"] >= 0
    assert facts["packets_lost"] <= facts["packets_sent"]
    assert min(facts["congestion_window_bytes"], facts["bytes_sent"], facts["bytes_received"]) > 0
    assert (facts["offload"]["state"], facts["resumptions"]) == ("off", 0)
    assert "segmentation_offload" in facts["offload"]["reason"]
    monkeypatch.setenv("GPUWIRE_URL", server_ticket)
    assert main(["ping", "--count", "1"]) == 0
    text = capsys.readouterr().out
    assert facts["address"] in text
    for name in ("jitter", "congestion window", "receive windows", "loss", "datagrams", "offload"):
        assert name in text
    assert facts["devices"][0]["name"] in text


def test_a_wrong_token_is_refused_in_one_line(
    server_ticket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ticket = Ticket.parse(server_ticket)
    wrong = Ticket(ticket.host, ticket.port, ticket.fingerprint, "A" * 43).format()
    assert main(["ping", wrong]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "token" in error


def test_where_nothing_listens_it_says_so(
    server_ticket: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUWIRE_REMOTE__CONNECT_TIMEOUT_SECONDS", "5")
    ticket = Ticket.parse(server_ticket)
    nobody = Ticket(ticket.host, 1, ticket.fingerprint, ticket.token).format()
    assert main(["ping", nobody]) == 1
    error = capsys.readouterr().err
    assert "port 1: the machine is there, but nothing listens" in error
    assert error.count("\n") == 1
