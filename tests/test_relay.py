"""The relay does to datagrams what its profile says; other tests lean on that."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator

import pytest

from relay import Direction, LinkProfile, Relay


@pytest.fixture
def echo() -> Iterator[socket.socket]:
    """A UDP socket on loopback; tests answer on it by hand."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(10)
        yield made


@pytest.fixture
def client() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.settimeout(10)
        yield made


def there_and_back(client: socket.socket, echo: socket.socket, port: int, data: bytes) -> bytes:
    client.sendto(data, ("127.0.0.1", port))
    received, sender = echo.recvfrom(65_535)
    echo.sendto(received[::-1], sender)
    return client.recvfrom(65_535)[0]


def test_passes_both_ways(echo: socket.socket, client: socket.socket) -> None:
    with Relay(echo.getsockname()) as relay:
        assert there_and_back(client, echo, relay.port, b"abc") == b"cba"
        assert (relay.up.counters.passed, relay.down.counters.passed) == (1, 1)


def test_delays_each_way(echo: socket.socket, client: socket.socket) -> None:
    with Relay(echo.getsockname(), LinkProfile(delay_seconds=0.05)) as relay:
        began = time.monotonic()
        there_and_back(client, echo, relay.port, b"abc")
        assert time.monotonic() - began >= 0.1


def test_a_cut_link_passes_nothing_until_mended(echo: socket.socket, client: socket.socket) -> None:
    with Relay(echo.getsockname()) as relay:
        there_and_back(client, echo, relay.port, b"first")
        relay.cut()
        client.sendto(b"lost", ("127.0.0.1", relay.port))
        relay.mend()
        assert there_and_back(client, echo, relay.port, b"second") == b"dnoces"


def test_moved_clients_have_a_new_address(echo: socket.socket, client: socket.socket) -> None:
    with Relay(echo.getsockname()) as relay:
        client.sendto(b"a", ("127.0.0.1", relay.port))
        _, before = echo.recvfrom(100)
        relay.move_clients()
        client.sendto(b"b", ("127.0.0.1", relay.port))
        _, after = echo.recvfrom(100)
        assert before != after


def test_loss_duplication_and_reordering_come_at_their_rates() -> None:
    profile = LinkProfile(loss=0.1, duplication=0.2, reordering=0.05, delay_seconds=1.0)
    direction = Direction(profile, random.Random(3))
    fates = [direction.departures(0.0, 100) for _ in range(10_000)]
    assert 0.08 < fates.count([]) / len(fates) < 0.12
    assert 0.15 < sum(len(fate) == 2 for fate in fates) / len(fates) < 0.21
    assert 300 < direction.counters.reordered < 600
    assert all(arrives >= 1.0 for fate in fates for arrives in fate)


def test_a_rate_spaces_datagrams_and_its_queue_overflows() -> None:
    profile = LinkProfile(bytes_per_second=1000.0, queue_bytes=300)
    direction = Direction(profile, random.Random(0))
    arrivals = [direction.departures(0.0, 100) for _ in range(5)]
    assert arrivals == [[0.1], [pytest.approx(0.2)], [pytest.approx(0.3)], [], []]
    assert direction.counters.overflowed == 2


def test_large_datagrams_vanish(echo: socket.socket, client: socket.socket) -> None:
    with Relay(echo.getsockname(), LinkProfile(max_datagram_bytes=1200)) as relay:
        client.sendto(bytes(1201), ("127.0.0.1", relay.port))
        assert there_and_back(client, echo, relay.port, bytes(1200)) == bytes(1200)
        assert relay.up.counters.too_large == 1
