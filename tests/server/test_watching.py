"""Watching a real server with real sessions: who sees what, and that nobody waits for a viewer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuwire.client.watching import Viewer, watch
from gpuwire.config import RemoteConfig
from gpuwire.errors import QuotaExceeded, ServerStopped, TokenRejected
from gpuwire.server import Server, TokenStore
from gpuwire.server.watching import KEPT_MOMENTS, MAX_VIEWERS, Sight, told
from gpuwire.telemetry.event_block import unpacked
from gpuwire.telemetry.plain import from_json
from gpuwire.telemetry.snapshots import EventBlock, OpEvent, ServerSnapshot, TrafficPoint
from gpuwire.transport import Ticket
from host_tasks import add, read, register
from plain_client import PlainClient, connect_plainly, plain_client
from server.conftest import Serve


async def compute(client: PlainClient, first: int) -> None:
    client.send(register(first, [1, 2, 3, 4]), add(first, 1.0, first + 1))
    client.send(read(first + 1, request=first))
    await client.reply(first)


def told_events(snapshot: ServerSnapshot) -> list[OpEvent]:
    return [event for _, block in snapshot.events for event in unpacked(block)]


async def until(
    viewer: Viewer, found: Callable[[ServerSnapshot], bool]
) -> tuple[ServerSnapshot, list[OpEvent]]:
    """The first snapshot of which that is so, and all events up to it."""
    events: list[OpEvent] = []
    while True:
        snapshot = await viewer.next()
        events += told_events(snapshot)
        if found(snapshot):
            return snapshot, events


def test_a_viewer_sees_sessions_operations_memory_and_the_log(
    runner: asyncio.Runner, shared_server: Server
) -> None:
    async def check() -> None:
        ticket = Ticket.parse(shared_server.ticket)
        async with watch(ticket, RemoteConfig()) as viewer, plain_client(ticket.format()) as client:
            first = await viewer.next()
            assert first.whole
            assert [device.state for device in first.devices] == ["ready"]
            assert any("listening on" in line for line in first.log)
            assert all(ticket.token not in line for line in first.log), "a log holds no secrets"
            await compute(client, 1)
            traffic: list[TrafficPoint] = []
            names: set[str] = set()

            def is_told(now: ServerSnapshot) -> bool:
                traffic.extend(now.traffic)
                names.update(event.name for event in told_events(now))
                # Frames are counted in the front, operations in the host, a moment apart, and
                # kernels are told once a second.
                has_kernels = any(device.kernels for device in now.devices)
                return "read" in names and has_kernels and any(point.tasks for point in traffic)

            snapshot, events = await until(viewer, is_told)
            assert [event.name for event in events] == ["upload", "add", "read"]
            (session,) = snapshot.sessions
            assert session.client == "plain client"
            assert (session.token, session.state, session.tasks) == ("default", "open", 3)
            assert session.tensors == 2
            assert session.memory_bytes > 0
            assert session.bytes_in > 0
            assert session.number == events[0].session
            device = snapshot.devices[0]
            assert device.in_use_bytes == sum(pool.in_use_bytes for pool in device.pools) > 0
            assert sum(kernel.launches for kernel in device.kernels) >= 1
            assert any(point.tasks for point in traffic)

    runner.run(check())


def test_another_token_sees_its_own_sessions_only(runner: asyncio.Runner, serve: Serve) -> None:
    async def check() -> None:
        async with serve() as server:
            alice = TokenStore(server.state_dir).add("alice")
            ticket = Ticket.parse(server.ticket)
            own = Ticket(ticket.host, ticket.port, ticket.fingerprint, alice)
            async with (
                plain_client(ticket.format()) as others,
                plain_client(own.format()) as hers,
                watch(own, RemoteConfig()) as viewer,
            ):
                await viewer.next()
                await compute(others, 1)
                await compute(hers, 11)
                snapshot, events = await until(
                    viewer, lambda now: any(e.name == "read" for e in told_events(now))
                )
                assert not snapshot.whole
                assert [session.token for session in snapshot.sessions] == ["alice"]
                assert {event.session for event in events} == {snapshot.sessions[0].number}
                assert snapshot.log == ()
                assert [device.kernels for device in snapshot.devices] == [()]
                assert snapshot.devices[0].in_use_bytes > 0
                theirs = next(
                    one.number
                    for one in (await server.watching.once(Sight())).sessions
                    if one.token == "default"
                )
                sight = Sight("alice")
                assert await server.watching.drawing(sight, 0, theirs, 1) is None
            with pytest.raises(TokenRejected):
                wrong = Ticket(ticket.host, ticket.port, ticket.fingerprint, "wrong")
                async with watch(wrong, RemoteConfig()):
                    pass

    runner.run(check())


def test_counts_of_a_session_stay_when_it_has_gone(runner: asyncio.Runner, serve: Serve) -> None:
    async def check() -> None:
        async with serve() as server:  # One that nobody has watched: a look holds for two seconds.
            before = (await server.watching.once(Sight())).totals
            async with plain_client(server.ticket) as client:
                await compute(client, 1)
            with pytest.raises(TokenRejected):
                await connect_plainly(server.ticket, token="wrong")
            after = await server.watching.once(Sight())
            assert after.sessions == ()
            assert after.totals.sessions - before.sessions == 1
            assert after.totals.refusals - before.refusals == 1
            assert after.totals.tasks - before.tasks == 3
            assert after.totals.bytes_in > before.bytes_in
            assert told_events(after) == [], "nobody watched"

    runner.run(check())


def test_a_viewer_that_does_not_look_misses_moments_and_holds_up_nobody(
    runner: asyncio.Runner, shared_server: Server
) -> None:
    async def check() -> None:
        with (
            shared_server.watching.view(Sight()) as slow,
            shared_server.watching.view(Sight()) as quick,
        ):
            for _ in range(KEPT_MOMENTS + 3):
                snapshot = await quick.next()
                assert snapshot is not None
                assert snapshot.missed == 0
            late = await slow.next()
            assert late is not None
            assert late.missed == 3
            assert late.viewers == 2

    runner.run(check())


def test_viewers_are_limited(runner: asyncio.Runner, shared_server: Server) -> None:
    async def check() -> None:
        views = [shared_server.watching.view(Sight()) for _ in range(MAX_VIEWERS)]
        with pytest.raises(QuotaExceeded, match="viewers"):
            shared_server.watching.view(Sight())
        for view in views:
            view.close()
        shared_server.watching.view(Sight()).close()

    runner.run(check())


def test_a_stopping_server_tells_its_viewers(runner: asyncio.Runner, serve: Serve) -> None:
    async def check() -> None:
        async with serve() as server:
            ticket = Ticket.parse(server.ticket)
            async with watch(ticket, RemoteConfig()) as viewer:
                await viewer.next()
                stopping = asyncio.create_task(server.stop())
                with pytest.raises(ServerStopped):
                    while True:
                        await viewer.next()
                await stopping

    runner.run(check())


def test_what_is_too_long_for_the_wire_is_shortened(
    runner: asyncio.Runner, shared_server: Server
) -> None:
    async def check() -> None:
        snapshot = await shared_server.watching.once(Sight())
        block = EventBlock((), "AAAA" * 25_000)
        long = replace(snapshot, events=((0, block),), log=("x" * 400,) * 200)
        short = from_json(ServerSnapshot, told(long))
        assert len(told(long)) <= 96 * 1024
        assert short.sessions == snapshot.sessions
        assert short.events == ()
        assert short.log == ("x" * 400,) * 30

    runner.run(check())
