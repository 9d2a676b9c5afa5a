"""Two ends of a connection: over real loopback UDP, and two bare engines over a simulated link."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from gpuwire.transport import (
    Connection,
    Identity,
    Listener,
    PinnedKey,
    TransportOptions,
    connect,
    listen,
)
from gpuwire.transport.engine import Datagram, Event
from gpuwire.transport.engine_aioquic import AioquicEngine, client_engine, server_engine

DEFAULT_OPTIONS = TransportOptions()
SMALL_DATAGRAMS = TransportOptions(datagram_bytes=1_200)
CLIENT_ADDRESS = ("192.0.2.1", 1000)
SERVER_ADDRESS = ("192.0.2.2", 4433)


@pytest.fixture(scope="session")
def identity() -> Identity:
    return Identity.create()


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a scenario; it fails as well if a task or a complaint of the loop is left behind."""

    def run_scenario(scenario: Coroutine[Any, Any, None]) -> None:
        complaints: list[dict[str, Any]] = []

        async def guarded() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            try:
                async with asyncio.timeout(60):
                    await scenario
            finally:
                loop.set_exception_handler(None)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left behind: {left}"

        asyncio.run(guarded())
        assert not complaints, complaints

    return run_scenario


@dataclass
class Link:
    """Both ends of one connection over loopback."""

    client: Connection
    server: Connection
    listener: Listener


class Linked(Protocol):
    """The type of the `linked` fixture."""

    def __call__(
        self, client: TransportOptions = ..., server: TransportOptions = ...
    ) -> contextlib.AbstractAsyncContextManager[Link]: ...


@pytest.fixture
def linked(identity: Identity) -> Linked:
    """`async with linked(client_options, server_options) as link:` gives a fresh `Link`."""

    @contextlib.asynccontextmanager
    async def open_link(
        client: TransportOptions = DEFAULT_OPTIONS, server: TransportOptions = DEFAULT_OPTIONS
    ) -> AsyncIterator[Link]:
        arrived: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        async with serving(identity, hold(arrived), server) as listener:
            near = await connect(
                "127.0.0.1", listener.port, PinnedKey(identity.fingerprint), client
            )
            try:
                yield Link(near, await arrived, listener)
            finally:
                near.close()

    return open_link


def hold(arrived: asyncio.Future[Connection]) -> Callable[[Connection], Awaitable[None]]:
    """A handler that hands its connection out and keeps it open."""

    async def handler(connection: Connection) -> None:
        if not arrived.done():
            arrived.set_result(connection)
        await connection.wait_closed()

    return handler


@contextlib.asynccontextmanager
async def serving(
    identity: Identity,
    handler: Callable[[Connection], Awaitable[None]],
    options: TransportOptions = DEFAULT_OPTIONS,
    host: str = "127.0.0.1",
) -> AsyncIterator[Listener]:
    listener = await listen(host, 0, identity, handler, options)
    try:
        yield listener
    finally:
        await listener.close()


@pytest.fixture
def serve() -> Callable[..., contextlib.AbstractAsyncContextManager[Listener]]:
    """`async with serve(identity, handler, options, host) as listener:`."""
    return serving


@dataclass
class EnginePair:
    """Two engines and the link between them. Time moves only here."""

    client: AioquicEngine
    options: TransportOptions
    identity: Identity
    server: AioquicEngine | None = None
    now: float = 0.0
    one_way_seconds: float = 0.01
    passes: Callable[[bytes], bool] = lambda data: True
    """Which datagrams survive the way."""
    client_events: list[Event] = field(default_factory=list)
    server_events: list[Event] = field(default_factory=list)

    def turn(self) -> bool:
        """One way there and one way back; whether anything happened."""
        there = self._collect(self.client)
        self.now += self.one_way_seconds
        for data in there:
            self._server_for(data).receive([(data, CLIENT_ADDRESS)], self.now)
        assert self.server is not None
        self.server_events += self.server.events()
        back = self._collect(self.server)
        self.now += self.one_way_seconds
        self.client.receive([(data, SERVER_ADDRESS) for data in back], self.now)
        self.client_events += self.client.events()
        fired = False
        for engine in (self.client, self.server):
            due = engine.timer()
            if due is not None and due <= self.now:
                engine.handle_timer(self.now)
                fired = True
        self.client_events += self.client.events()
        self.server_events += self.server.events()
        return bool(there or back or fired)

    def settle(self, turns: int = 1_000) -> None:
        """Turns, and lets time pass, until no timer is left but that of silence."""
        for _ in range(turns):
            if self.turn():
                continue
            assert self.server is not None
            timers = [due for e in (self.client, self.server) if (due := e.timer()) is not None]
            soon = [due for due in timers if due < self.now + self.options.idle_timeout_seconds / 2]
            if not soon:
                return
            self.now = max(self.now, min(soon))
        raise AssertionError("the engines do not come to rest")

    def _collect(self, engine: AioquicEngine) -> list[bytes]:
        datagrams: list[Datagram] = engine.datagrams_to_send(self.now)
        return [data for data, _ in datagrams if self.passes(data)]

    def _server_for(self, first: bytes) -> AioquicEngine:
        if self.server is None:
            self.server = server_engine(
                self.identity,
                self.options,
                is_loopback=False,
                original_connection_id=first[6 : 6 + first[5]],
                retry_connection_id=None,
            )
        return self.server


@pytest.fixture
def engines(identity: Identity) -> Callable[..., EnginePair]:
    """`engines(options)` gives a pair whose handshake is done."""

    def make(options: TransportOptions = SMALL_DATAGRAMS, **link: Any) -> EnginePair:
        trust = PinnedKey(identity.fingerprint)
        client = client_engine("host", trust, options, is_loopback=False)
        pair = EnginePair(client, options, identity, **link)
        client.connect(SERVER_ADDRESS, pair.now)
        pair.settle()
        pair.client_events.clear()
        pair.server_events.clear()
        return pair

    return make
