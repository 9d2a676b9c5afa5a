"""A UDP relay that behaves like a link: delay, rate, loss, reordering, duplication, size, cuts.

    with Relay(("127.0.0.1", server_port), LinkProfile(delay_seconds=0.015)) as relay:
        ...connect to 127.0.0.1:relay.port...

It runs on a thread of its own, in real time. Chance comes from a seeded generator, one for each
direction, so that the n-th datagram of a direction meets the same fate in each run. A datagram of
1,452 bytes costs it 11 µs, one of 8,952 28: 200 Mb/s are a fifth or a twelfth of a core. As a
script it stands between two other programs:

    python tests/relay.py 127.0.0.1:4433 --delay-ms 15 --loss 0.01
"""

from __future__ import annotations

import argparse
import asyncio
import random
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """One direction of a link."""

    delay_seconds: float = 0.0
    """One way."""
    bytes_per_second: float | None = None
    queue_bytes: int = 256 * 1024
    """What waits for a slow link at most; more is dropped at the tail, as a router does."""
    loss: float = 0.0
    """Probability that a datagram vanishes."""
    duplication: float = 0.0
    reordering: float = 0.0
    """Probability that a datagram is held back, so that later ones overtake it."""
    reordering_seconds: float = 0.005
    max_datagram_bytes: int | None = None
    """A larger datagram vanishes without a word: a path MTU black hole."""


@dataclass(slots=True)
class Counters:
    """What one direction has seen."""

    passed: int = 0
    passed_bytes: int = 0
    lost: int = 0
    too_large: int = 0
    overflowed: int = 0
    duplicated: int = 0
    reordered: int = 0
    largest: int = 0
    """Bytes of the largest datagram that came in, passed on or not."""


@dataclass(slots=True)
class Direction:
    """Datagrams one way: decides each one's fate, and when it leaves."""

    profile: LinkProfile
    chance: random.Random
    counters: Counters = field(default_factory=Counters)
    free_at: float = 0.0
    """When the link has sent all that it accepted."""

    def departures(self, now: float, size: int) -> list[float]:
        """The times at which copies of a datagram of `size` bytes arrive at the other end."""
        profile, counters = self.profile, self.counters
        counters.largest = max(counters.largest, size)
        if profile.max_datagram_bytes is not None and size > profile.max_datagram_bytes:
            counters.too_large += 1
            return []
        if self.chance.random() < profile.loss:
            counters.lost += 1
            return []
        leaves = now
        if profile.bytes_per_second is not None:
            backlog = max(self.free_at - now, 0.0) * profile.bytes_per_second
            if backlog + size > profile.queue_bytes:
                counters.overflowed += 1
                return []
            leaves = self.free_at = max(self.free_at, now) + size / profile.bytes_per_second
        arrives = leaves + profile.delay_seconds
        if self.chance.random() < profile.reordering:
            counters.reordered += 1
            arrives += profile.reordering_seconds
        counters.passed += 1
        counters.passed_bytes += size
        if self.chance.random() < profile.duplication:
            counters.duplicated += 1
            return [arrives, arrives]
        return [arrives]


class Relay:
    """The relay between clients and one server address, as a context manager."""

    def __init__(
        self,
        server: Address,
        up: LinkProfile | None = None,
        down: LinkProfile | None = None,
        *,
        seed: int = 1,
        port: int = 0,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`up` is client to server; `down` is the same unless given. The loop is the relay's own
        from then on."""
        up = up or LinkProfile()
        self.up = Direction(up, random.Random(seed))
        self.down = Direction(down or up, random.Random(seed + 1))
        self._server = server
        self._wanted_port = port
        self._loop = loop or asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._cut = False
        self._upstream: dict[Address, socket.socket] = {}
        self._inside: socket.socket | None = None

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 that clients use."""
        assert self._inside is not None
        port: int = self._inside.getsockname()[1]
        return port

    def __enter__(self) -> Relay:
        self._thread.start()
        self._call(self._open)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._call(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """From now on nothing passes."""
        self._cut = True

    def mend(self) -> None:
        """From now on datagrams pass again; those sent while the link was cut stay lost."""
        self._call(self._drain_and_mend)

    def set_profile(self, up: LinkProfile, down: LinkProfile | None = None) -> None:
        """Changes the link while it is in use."""
        self.up.profile, self.down.profile = up, down or up

    def move_clients(self) -> None:
        """Gives each client a new address as the server sees it, as a changed network does."""
        self._call(self._forget_upstream)

    def _call(self, work: object) -> None:
        done = threading.Event()

        def run() -> None:
            assert callable(work)
            work()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait()

    def _open(self) -> None:
        self._inside = _udp_socket()
        self._inside.bind(("127.0.0.1", self._wanted_port))
        self._loop.add_reader(self._inside, self._from_clients)

    def _close(self) -> None:
        self._forget_upstream()
        assert self._inside is not None
        self._loop.remove_reader(self._inside)
        self._inside.close()

    def _forget_upstream(self) -> None:
        for outside in self._upstream.values():
            self._loop.remove_reader(outside)
            outside.close()
        self._upstream.clear()

    def _from_clients(self) -> None:
        assert self._inside is not None
        for data, client in _received(self._inside):
            for arrives in self._departures(self.up, data):
                self._loop.call_at(arrives, self._to_server, client, data)

    def _from_server(self, client: Address, outside: socket.socket) -> None:
        for data, _ in _received(outside):
            for arrives in self._departures(self.down, data):
                self._loop.call_at(arrives, self._to_client, client, data)

    def _drain_and_mend(self) -> None:
        self._from_clients()
        for client, outside in self._upstream.items():
            self._from_server(client, outside)
        self._cut = False

    def _departures(self, direction: Direction, data: bytes) -> list[float]:
        return [] if self._cut else direction.departures(self._loop.time(), len(data))

    def _to_server(self, client: Address, data: bytes) -> None:
        outside = self._upstream.get(client)
        if outside is None:
            outside = _udp_socket()
            outside.connect(self._server)
            self._upstream[client] = outside
            self._loop.add_reader(outside, self._from_server, client, outside)
        _send(outside, data, None)

    def _to_client(self, client: Address, data: bytes) -> None:
        assert self._inside is not None
        _send(self._inside, data, client)


@contextmanager
def relay_process(server_port: int, *arguments: str) -> Iterator[int]:
    """A relay to a port of this machine in a process of its own, with the script's `arguments`, for
    measurements that it must not disturb; gives its port."""
    command = [sys.executable, __file__, f"127.0.0.1:{server_port}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield int(child.stdout.readline().rpartition(":")[2])
        finally:
            child.kill()


def _udp_socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 2**20)
    return made


def _received(source: socket.socket) -> list[tuple[bytes, Address]]:
    datagrams: list[tuple[bytes, Address]] = []
    for _ in range(64):
        try:
            datagrams.append(source.recvfrom(65_535))
        except (BlockingIOError, ConnectionRefusedError):
            break
    return datagrams


def _send(target: socket.socket, data: bytes, address: Address | None) -> None:
    """A datagram that the kernel does not take now is lost, as on any link."""
    try:
        if address is None:
            target.send(data)
        else:
            target.sendto(data, address)
    except (BlockingIOError, ConnectionRefusedError, OSError):
        return


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("server", metavar="HOST:PORT")
    arguments.add_argument("--port", type=int, default=0, help="where clients connect to")
    arguments.add_argument("--delay-ms", type=float, default=0.0, help="one way")
    arguments.add_argument("--megabits", type=float, help="rate of each direction")
    arguments.add_argument("--queue-kib", type=int, default=256, help="of a slow link")
    arguments.add_argument("--loss", type=float, default=0.0)
    arguments.add_argument("--duplication", type=float, default=0.0)
    arguments.add_argument("--reordering", type=float, default=0.0)
    arguments.add_argument("--max-datagram", type=int)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    host, port = chosen.server.rsplit(":", 1)
    profile = LinkProfile(
        delay_seconds=chosen.delay_ms / 1e3,
        bytes_per_second=chosen.megabits and chosen.megabits * 1e6 / 8,
        queue_bytes=chosen.queue_kib * 1024,
        loss=chosen.loss,
        duplication=chosen.duplication,
        reordering=chosen.reordering,
        max_datagram_bytes=chosen.max_datagram,
    )
    # epoll rounds each delay up to a whole millisecond; select, which is for few sockets, does not.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    address = (host, int(port))
    with Relay(address, profile, seed=chosen.seed, port=chosen.port, loop=loop) as relay:
        print(f"127.0.0.1:{relay.port}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
