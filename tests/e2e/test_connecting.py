"""What a user meets when a connection cannot be: each cause has its error, in time, with help."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.config import load_config
from gpuwire.errors import (
    ConnectError,
    ConnectTimeout,
    NoSuchDevice,
    ServerNotFound,
    ServerRefused,
    TicketError,
    TokenRejected,
    WrongFingerprint,
)
from gpuwire.server import TokenStore
from gpuwire.transport.ticket import Ticket
from servers import ServerProcess


@pytest.fixture
def ticket(server_ticket: str) -> Ticket:
    return Ticket.parse(server_ticket)


def test_a_ticket_is_all_it_takes(server_ticket: str) -> None:
    with gw.connect(server_ticket) as dev:
        assert float(gw.sum(gw.asarray([1.0, 2.0, 3.0], device=dev))) == 6.0


def test_the_environment_names_the_server(
    server_ticket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUWIRE_URL", server_ticket)
    with gw.connect() as dev:
        assert dev.path.address.rsplit(":", 1)[-1] == str(Ticket.parse(server_ticket).port)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A UDP port that is open and never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        yield silent.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_no_server_on_that_port(ticket: Ticket, closed_port: int) -> None:
    with pytest.raises(ServerRefused, match=rf"(?s){closed_port}.*Is the server running") as caught:
        gw.connect(replace(ticket, port=closed_port).format())
    assert caught.value.port == closed_port


def test_a_host_name_without_address(ticket: Ticket) -> None:
    with pytest.raises(ServerNotFound, match=r"nowhere\.invalid"):
        gw.connect(replace(ticket, host="nowhere.invalid").format())


def test_something_else_listens_there(ticket: Ticket, silent_port: int) -> None:
    began = time.monotonic()
    with pytest.raises(ConnectTimeout) as caught:
        gw.connect(
            replace(ticket, port=silent_port).format(),
            config=load_config(remote={"connect_timeout_seconds": 0.5}),
        )
    assert caught.value.seconds == 0.5
    assert time.monotonic() - began < 5


def test_a_server_with_another_key(ticket: Ticket) -> None:
    forged = replace(ticket, fingerprint="A" * len(ticket.fingerprint))
    with pytest.raises(WrongFingerprint) as caught:
        gw.connect(forged.format())
    assert caught.value.found == ticket.fingerprint


@pytest.mark.parametrize(("token", "reason"), [("nonsense", "wrong"), ("", "missing")])
def test_a_wrong_or_missing_token(ticket: Ticket, token: str, reason: str) -> None:
    with pytest.raises(TokenRejected) as caught:
        gw.connect(replace(ticket, token=token).format())
    assert caught.value.reason == reason


def test_an_expired_and_a_revoked_token(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        ticket = Ticket.parse(server.ticket)
        store = TokenStore(server.state_dir)
        expired = store.add("old", expires=datetime.now(UTC) - timedelta(seconds=1))
        revoked = store.add("gone")
        store.revoke("gone")
        for token, reason in ((expired, "expired"), (revoked, "revoked")):
            with pytest.raises(TokenRejected) as caught:
                gw.connect(replace(ticket, token=token).format())
            assert caught.value.reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpu-box:4433",
        "http://gpu-box:4433?fp=x&token=y",
        "gpuwire://:4433?token=y",
        "gpuwire://gpu-box:70000?token=y",
        "gpuwire://gpu-box:4433?fp=short&token=y",
    ],
)
def test_text_that_is_no_ticket(text: str) -> None:
    with pytest.raises(TicketError, match="gpuwire://"):
        gw.connect(text)


def test_a_device_index_out_of_range(server_ticket: str) -> None:
    with pytest.raises(NoSuchDevice) as caught:
        gw.connect(server_ticket, device=7)
    assert (caught.value.index, caught.value.count) == (7, 1)


def test_every_refusal_is_a_connect_error_with_one_line_of_help() -> None:
    for error_class in (ServerNotFound, ServerRefused, WrongFingerprint, TokenRejected):
        assert issubclass(error_class, ConnectError)
        assert issubclass(error_class, ConnectionError)


def test_refused_clients_leave_the_server_as_it_was(server_ticket: str, ticket: Ticket) -> None:
    with gw.connect(server_ticket) as dev:
        x = gw.asarray(np.arange(4.0, dtype=np.float32), device=dev)
        with pytest.raises(TokenRejected):
            gw.connect(replace(ticket, token="nonsense").format())
        np.testing.assert_array_equal(np.asarray(x + 1), [1, 2, 3, 4])
