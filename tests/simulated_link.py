"""Two engines over a link in simulated time: an upload takes as long as the link makes it take,
whatever the machine is doing."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable

from gpuwire.transport import Identity, PinnedKey, TransportOptions
from gpuwire.transport.engine import QuicEngine, StreamData
from gpuwire.transport.engine_aioquic import client_engine, server_engine
from relay import Direction, LinkProfile

CLIENT = ("192.0.2.1", 1000)
SERVER = ("192.0.2.2", 4433)
READING_SECONDS = 0.001
"""How often a slow program reads."""


class Simulation:
    """A client and a server; `run` moves time from one event to the next."""

    def __init__(
        self, identity: Identity, options: TransportOptions, profile: LinkProfile, seed: int = 1
    ) -> None:
        self.now = 0.0
        self.up = Direction(profile, random.Random(seed))
        self.down = Direction(profile, random.Random(seed + 1))
        self.client = client_engine(
            "host", PinnedKey(identity.fingerprint), options, is_loopback=False
        )
        self.server: QuicEngine | None = None
        self.received = 0
        """Bytes that the server's program has read."""
        self.read_bytes_per_second = math.inf
        """How fast it reads; 0 is not at all."""
        self._unread: deque[tuple[int, int]] = deque()
        self._read_until = 0.0
        self._identity = identity
        self._options = options
        self._order = itertools.count()
        self._under_way: list[tuple[float, int, bool, bytes]] = []
        self.client.connect(SERVER, 0.0)

    def run(self, until: Callable[[], bool], *, limit_seconds: float = 60.0) -> None:
        """Until the condition holds; an assertion fails when it does not within `limit_seconds`
        of simulated time."""
        end = self.now + limit_seconds
        self._send()
        while not until():
            self.now = self._next_event()
            assert self.now < end, "the link stands still"
            arrived: dict[bool, list[bytes]] = {True: [], False: []}
            while self._under_way and self._under_way[0][0] <= self.now:
                _, _, to_server, data = heapq.heappop(self._under_way)
                arrived[to_server].append(data)
            if arrived[True]:
                self._make_server(arrived[True][0])
                assert self.server is not None
                self.server.receive([(data, CLIENT) for data in arrived[True]], self.now)
            if arrived[False]:
                self.client.receive([(data, SERVER) for data in arrived[False]], self.now)
            for engine in self._engines():
                due = engine.timer()
                if due is not None and due <= self.now:
                    engine.handle_timer(self.now)
            self._read()
            self._send()

    def upload(self, count: int) -> float:
        """Simulated seconds until the server has read `count` bytes."""
        began, before = self.now, self.received
        stream_id = self.client.open_stream(bidirectional=False)
        self.client.send(stream_id, memoryview(bytes(count)), end=True)
        self.run(lambda: self.received - before >= count)
        return self.now - began

    def _engines(self) -> list[QuicEngine]:
        return [self.client] if self.server is None else [self.client, self.server]

    def _next_event(self) -> float:
        times = [due for engine in self._engines() if (due := engine.timer()) is not None]
        if self._under_way:
            times.append(self._under_way[0][0])
        if self._unread and self.read_bytes_per_second:
            times.append(self.now + READING_SECONDS)
        # A timer that is due now may find, by the last bit of a float, that it is not: time passes.
        return max(self.now + 1e-7, min(times))

    def _make_server(self, first: bytes) -> None:
        if self.server is None:
            self.server = server_engine(
                self._identity,
                self._options,
                is_loopback=False,
                original_connection_id=first[6 : 6 + first[5]],
                retry_connection_id=None,
            )

    def _read(self) -> None:
        for _ in self.client.events():
            pass
        if self.server is None:
            return
        for event in self.server.events():
            if isinstance(event, StreamData):
                self._unread.append((event.stream_id, sum(map(len, event.pieces))))
        elapsed, self._read_until = self.now - self._read_until, self.now
        room = self.read_bytes_per_second * min(max(elapsed, 1e-9), READING_SECONDS)
        while self._unread and room > 0:
            stream_id, count = self._unread.popleft()
            taken = int(min(count, max(1, room)))
            if taken < count:
                self._unread.appendleft((stream_id, count - taken))
            room -= taken
            self.received += taken
            self.server.consume(stream_id, taken)

    def _send(self) -> None:
        for engine in self._engines():
            is_client = engine is self.client
            direction = self.up if is_client else self.down
            while True:
                for data, _ in engine.datagrams_to_send(self.now):
                    for arrives in direction.departures(self.now, len(data)):
                        entry = (arrives, next(self._order), is_client, data)
                        heapq.heappush(self._under_way, entry)
                if not engine.has_more_to_send:
                    break
