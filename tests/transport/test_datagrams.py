"""The socket: batches, refusals, sizes, and a kernel that is busy."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from gpuwire.transport.datagrams import BACKLOG, DatagramSocket


class Heard:
    """What a socket reported."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.errors: list[OSError] = []
        self.too_large = 0
        self._news = asyncio.Event()

    def datagrams(self, batch: list[tuple[bytes, Any]]) -> None:
        self.batches.append([data for data, _ in batch])
        self._news.set()

    def error(self, error: OSError) -> None:
        self.errors.append(error)
        self._news.set()

    def refused_size(self, address: Any, size: int) -> None:
        self.too_large += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()


def bound(sock: socket.socket | None = None) -> socket.socket:
    sock = sock or socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock


def open_socket(sock: socket.socket, heard: Heard, peer: Any = None) -> DatagramSocket:
    if peer is not None:
        sock.connect(peer)
    return DatagramSocket(sock, peer, heard.datagrams, heard.error, heard.refused_size)


def test_what_arrived_together_is_handled_together(run: Any) -> None:
    async def scenario() -> None:
        heard = Heard()
        receiver = open_socket(bound(), heard)
        sender = open_socket(bound(), Heard(), peer=("127.0.0.1", receiver.port))
        sent = [bytes([number]) * (number + 1) for number in range(40)]
        sender.send([(data, None) for data in sent])
        await heard.until(lambda: bool(heard.batches))
        assert heard.batches == [sent]
        sender.close()
        sender.close()
        receiver.close()
        receiver.send([(b"late", ("127.0.0.1", 9))])

    run(scenario())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_after_a_refusal_datagrams_still_go_out_and_come_in(loop: Any) -> None:
    async def scenario() -> None:
        with bound() as gone:
            address = gone.getsockname()
        heard = Heard()
        sender = open_socket(bound(), heard, peer=address)
        sender.send([(b"one", None)])
        await heard.until(lambda: bool(heard.errors))
        assert isinstance(heard.errors[0], ConnectionRefusedError)
        sender.send([(b"two", None)])
        late = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        late.bind(address)
        received = Heard()
        receiver = open_socket(late, received)
        sender.send([(b"three", None)])
        await received.until(lambda: bool(received.batches))
        assert received.batches == [[b"three"]]
        receiver.send([(b"four", ("127.0.0.1", sender.port))])
        await heard.until(lambda: bool(heard.batches))
        assert heard.batches == [[b"four"]]
        sender.close()
        receiver.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


def test_a_datagram_that_is_too_large_is_reported_and_the_rest_goes_out(run: Any) -> None:
    async def scenario() -> None:
        heard, received = Heard(), Heard()
        receiver = open_socket(bound(), received)
        sender = open_socket(bound(), heard)
        to = ("127.0.0.1", receiver.port)
        sender.send([(bytes(70_000), to), (b"small", to)])
        await received.until(lambda: bool(received.batches))
        assert received.batches == [[b"small"]]
        assert heard.too_large == 1
        sender.close()
        receiver.close()

    run(scenario())


class BusySocket(socket.socket):
    """A socket whose kernel takes nothing for a while."""

    busy = True

    def sendto(self, data: Any, address: Any) -> int:  # type: ignore[override]
        if self.busy:
            raise BlockingIOError(errno.EAGAIN, "busy")
        return super().sendto(data, address)


def test_what_a_busy_kernel_does_not_take_waits_in_order_and_within_bounds(run: Any) -> None:
    async def scenario() -> None:
        received = Heard()
        receiver = open_socket(bound(), received)
        busy = BusySocket(socket.AF_INET, socket.SOCK_DGRAM)
        sender = open_socket(bound(busy), Heard())
        to = ("127.0.0.1", receiver.port)
        for number in range(BACKLOG + 10):
            sender.send([(number.to_bytes(4, "big"), to)])
        assert sender.dropped == 10
        BusySocket.busy = False
        await received.until(lambda: sum(map(len, received.batches)) == BACKLOG)
        numbers = [int.from_bytes(data, "big") for batch in received.batches for data in batch]
        assert numbers == list(range(10, BACKLOG + 10))
        sender.close()
        receiver.close()

    run(scenario())
