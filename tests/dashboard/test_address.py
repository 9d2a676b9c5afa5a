"""Where the dashboard listens, as it is written on the command line."""

from __future__ import annotations

import socket

import pytest

from gpuwire.dashboard.address import Address
from gpuwire.errors import ArgumentError, ServerStartError


@pytest.mark.parametrize(
    ("text", "host", "port", "is_local"),
    [
        ("8433", "127.0.0.1", 8433, True),
        ("localhost:1", "localhost", 1, True),
        ("0.0.0.0:8433", "0.0.0.0", 8433, False),
        ("[::1]:8433", "::1", 8433, True),
        ("[::]:8433", "::", 8433, False),
        ("gpu-box:80", "gpu-box", 80, False),
    ],
)
def test_an_address_says_who_reaches_it(text: str, host: str, port: int, is_local: bool) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.is_local) == (host, port, is_local)


@pytest.mark.parametrize("text", ["", "x", ":8433", "8433x", "host:", "70000", "1:²"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="no address for the dashboard"):
        Address.parse(text)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerStartError, match=f"127.0.0.1:{port}.*in use.*another port"):
            Address("127.0.0.1", port).bind()
