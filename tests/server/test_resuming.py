"""Sessions that their clients come back to: proven, once each, bounded, told if they are gone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from gpuwire.bulk import BulkReader
from gpuwire.errors import (
    DeviceLost,
    GpuwireError,
    ProtocolError,
    QuotaExceeded,
    SessionLost,
    TokenRejected,
)
from gpuwire.ids import RequestId, SessionId
from gpuwire.ir.tensors import TensorType
from gpuwire.server import Server
from gpuwire.server.tokens import TokenStore
from gpuwire.telemetry.snapshots import SessionSnapshot
from gpuwire.transport import ReceiveStream, Ticket
from gpuwire.wire.codec import encode_task
from gpuwire.wire.framing import BULK_HEADER_BYTES, decode_bulk_header
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import Done, Hello, Progress, Resume
from gpuwire.wire.session import ClientSession
from host_tasks import F4, add, read, register, sync, values
from plain_client import PlainClient, connect_plainly, plain_client, reach
from server.conftest import configuration, running

LARGE = TensorType(F4.dtype, (5 * 256 * 1024 + 3,))
"""5 MiB and a bit."""


def numbers(seed: int) -> bytes:
    return np.random.default_rng(seed).random(LARGE.size, np.float32).tobytes()


async def come_back(
    ticket: str,
    old: PlainClient,
    *,
    session: SessionId | None = None,
    key: bytes | None = None,
    token: str | None = None,
    acknowledged: int | None = None,
    downloads: Progress = (),
) -> PlainClient:
    """The client over another link. What it claims may be changed."""
    assert old.welcome is not None and old.welcome.session is not None
    assert old.welcome.key is not None
    numbering = old.wire.numbering
    resume = Resume(
        session or old.welcome.session,
        key or old.welcome.key,
        numbering.tell() if acknowledged is None else acknowledged,
        downloads,
    )
    client = await reach(ticket)
    client.wire = ClientSession(numbering=numbering)
    secret = Ticket.parse(ticket).token if token is None else token
    try:
        welcome = await client.hello(Hello((1,), secret, 0, "plain client", resume))
    except BaseException:
        client.vanish()
        raise
    assert welcome.resumed is not None
    for frame in client.wire.kept_frames():
        client.control.writer.write_nowait(frame)
    client.welcome = old.welcome
    client.resumed = welcome.resumed
    return client


async def seen_at(server: Server) -> tuple[SessionSnapshot, ...]:
    """The sessions, as whoever holds the server's token sees them."""
    sight = await server.sight(Ticket.parse(server.ticket).token, "here")
    return (await server.watching.once(sight)).sessions


@pytest.fixture(scope="module")
def keeping_server(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory, runtime_directory: None
) -> Iterator[Server]:
    """A server that keeps sessions for a minute."""
    yield from running(runner, configuration({}, {}), tmp_path_factory.mktemp("state"))


@pytest.fixture
def serving(request, serve, runner):  # type: ignore[no-untyped-def]
    """Runs a scenario with such a server, or with one of its own that has other options."""

    def run(scenario, **options) -> None:  # type: ignore[no-untyped-def]
        async def started() -> None:
            async with serve(**options) as server:
                await scenario(server)

        if options:
            runner.run(started())
        else:
            runner.run(scenario(request.getfixturevalue("keeping_server")))

    return run


def test_what_was_lost_under_way_runs_once(serving, log) -> None:
    async def scenario(server) -> None:
        client = await connect_plainly(server.ticket)
        client.send(register(1, [1, 2]), add(1, 1.0, 2), read(2, request=5))
        assert values((await client.reply(5)).data) == [2, 3]
        # One frame that arrives and is not acknowledged, one that does not.
        client.send(add(2, 1.0, 3), sync(6))
        await client.reply(6)
        client.stop_reading()
        lost = client.wire.send_tasks(
            [encode_task(add(3, 1.0, 4)), encode_task(read(4, request=7))]
        )
        assert lost
        client.vanish()
        await log.line("lost its link and waits 60 s")
        back = await come_back(server.ticket, client)
        assert values((await back.reply(7)).data) == [4, 5]
        assert len(back.wire.numbering.kept) <= 1
        await back.close()
        await log.line("bytes freed: by the client")

    serving(scenario)


def test_replies_that_were_not_taken_in_come_again(serving) -> None:
    async def scenario(server) -> None:
        client = await connect_plainly(server.ticket)
        client.send(register(1, [7]), sync(2))
        await client.reply(2)
        client.stop_reading()
        client.send(read(1, request=3))
        async with plain_client(server.ticket) as other:  # The host answers it before this one.
            other.send(register(1, [1]), sync(2))
            await other.reply(2)
        client.vanish()
        back = await come_back(server.ticket, client)
        assert values((await back.reply(3)).data) == [7]
        again = await come_back(server.ticket, back)
        assert 3 not in again._replies
        again.send(read(1, request=4))
        assert values((await again.reply(4)).data) == [7]
        await again.close()

    serving(scenario)


def test_an_upload_that_arrived_whole_is_taken_in_and_another_goes_on(serving, log) -> None:
    async def scenario(server) -> None:
        whole, part = numbers(1), numbers(2)
        client = await connect_plainly(server.ticket)
        client.send(register(1, None, LARGE, request=1), register(2, None, LARGE, request=2))
        stream = client.begin_upload(1, LARGE.nbytes)
        await stream.write(whole)
        stream.finish()
        await stream.wait_acknowledged()
        other = client.begin_upload(2, LARGE.nbytes)
        await other.write(part[: 3 * 2**20])
        await other.wait_acknowledged()
        client.send(sync(90), read(1, request=3))
        assert len(await client.download(3)) == LARGE.nbytes
        client.vanish()
        await log.line("lost its link")
        back = await come_back(server.ticket, client)
        ((request, taken),) = back.resumed.uploads
        assert request == 2 and 2**20 <= taken <= 3 * 2**20
        # Of the first, the client says that it did not hear: the server wants no more of it.
        again = back.begin_upload(1, LARGE.nbytes)
        rest = back.begin_upload(2, LARGE.nbytes)
        await rest.write(part[taken:])
        rest.finish()
        back.send(read(1, request=4), read(2, request=5))
        assert await back.download(4) == whole
        assert await back.download(5) == part
        with pytest.raises(GpuwireError, match="does not want"):
            while True:
                await again.write(bytes(2**20))
        assert isinstance(await back.reply(90), Done)
        await back.close()

    serving(scenario)


def test_an_upload_that_arrived_before_its_task_is_there_after_the_link(serving, log) -> None:
    async def scenario(server) -> None:
        small = TensorType(F4.dtype, (64 * 1024,))
        data = np.random.default_rng(5).random(small.size, np.float32).tobytes()
        client = await connect_plainly(server.ticket)
        stream = client.begin_upload(1, small.nbytes)
        await stream.write(data)
        stream.finish()
        await stream.wait_acknowledged()
        client.vanish()
        await log.line("lost its link")
        back = await come_back(server.ticket, client)
        back.send(register(1, None, small, request=1), read(1, request=2))
        assert await asyncio.wait_for(back.download(2), 20) == data
        await back.close()

    serving(scenario)


def test_a_download_goes_on_from_what_the_client_has(serving) -> None:
    async def scenario(server) -> None:
        data = numbers(3)
        client = await connect_plainly(server.ticket)
        client.send(register(1, None, LARGE, request=1), sync(2))
        await client.upload(1, data)
        await client.reply(2)
        client.stop_reading()
        client.send(*(read(1, request=r) for r in (10, 11)))
        taken: dict[int, bytes] = {}

        async def take(stream: ReceiveStream, upto: int) -> None:
            header = decode_bulk_header(await stream.readexactly(BULK_HEADER_BYTES), WireLimits())
            before = taken.setdefault(header.request, b"")
            target = bytearray(upto - len(before))
            await BulkReader(stream, header, len(before)).read_into(memoryview(target))
            taken[header.request] += target

        async with asyncio.TaskGroup() as taking:
            for count in (300_000, LARGE.nbytes):
                taking.create_task(take(await client.connection.accept_bulk(), count))
        client.vanish()
        progress = tuple((RequestId(request), len(got)) for request, got in taken.items())
        back = await reach(server.ticket)
        back.stop_reading()
        back.wire = ClientSession(numbering=client.wire.numbering)
        resume = Resume(
            client.welcome.session, client.welcome.key, client.wire.numbering.tell(), progress
        )
        hello = Hello((1,), Ticket.parse(server.ticket).token, 0, "plain client", resume)
        back.control.writer.write_nowait(back.wire.send(hello))
        # Not of the one that is whole: it would be longer than it is.
        await take(await back.connection.accept_bulk(), LARGE.nbytes)
        assert list(taken.values()) == [data, data]
        back.vanish()

    serving(scenario)


def test_nobody_else_can_take_a_session_up(serving, log) -> None:
    async def scenario(server) -> None:
        store = TokenStore(server.state_dir)
        mallory = store.add("mallory")
        client = await connect_plainly(server.ticket)
        client.send(register(1, [1]), sync(2))
        await client.reply(2)
        for claims in (
            {"key": bytes(32)},
            {"session": SessionId(bytes(16))},
            {"token": mallory},
        ):
            with pytest.raises(SessionLost, match="does not know this session"):
                await come_back(server.ticket, client, **claims)
        with pytest.raises(TokenRejected):
            await come_back(server.ticket, client, token="wrong")
        client.send(read(1, request=3))
        assert values((await client.reply(3)).data) == [1]
        assert not any("lost its link" in line for line in log.lines)
        await client.close()

    serving(scenario)


def test_claims_that_cannot_be_are_refused_and_change_nothing(serving) -> None:
    async def scenario(server) -> None:
        client = await connect_plainly(server.ticket)
        client.send(register(1, None, LARGE, request=1), sync(2))
        await client.upload(1, numbers(4))
        await client.reply(2)
        client.stop_reading()
        client.send(read(1, request=3))
        await client.connection.accept_bulk()
        for claims in (
            {"acknowledged": 1 << 40},
            {"downloads": ((RequestId(3), LARGE.nbytes + 1),)},
        ):
            with pytest.raises(ProtocolError):
                await come_back(server.ticket, client, **claims)
        client.start_reading()
        client.send(sync(4))
        assert isinstance(await client.reply(4), Done)
        await client.close()

    serving(scenario)


def test_a_token_that_was_revoked_meanwhile_does_not_resume(serving, log) -> None:
    async def scenario(server) -> None:
        store = TokenStore(server.state_dir)
        secret = store.add("alice")
        client = await connect_plainly(server.ticket, token=secret)
        client.vanish()
        await log.line("lost its link")
        store.revoke("alice")
        with pytest.raises(TokenRejected):
            await come_back(server.ticket, client, token=secret)

    serving(scenario)


def test_a_new_token_of_an_old_name_does_not_resume(serving, log) -> None:
    async def scenario(server) -> None:
        store = TokenStore(server.state_dir)
        client = await connect_plainly(server.ticket, token=store.add("alice"))
        client.vanish()
        await log.line("lost its link")
        store.revoke("alice")
        with pytest.raises(SessionLost, match="does not know this session"):
            await come_back(server.ticket, client, token=store.add("alice"))

    serving(scenario)


def test_a_session_that_waits_counts_and_frees_its_memory_when_it_has_waited(serving, log) -> None:
    async def scenario(server) -> None:
        client = await connect_plainly(server.ticket)
        client.send(register(1, [1, 2, 3, 4]), sync(2))
        await client.reply(2)
        client.vanish()
        await log.line("lost its link")
        with pytest.raises(QuotaExceeded):
            await connect_plainly(server.ticket)
        line = await log.line("SessionLost: the session waited 0.5 s for its client")
        assert "closed, 16 bytes freed" in line
        with pytest.raises(SessionLost, match=r"waited 0\.5 s"):
            await come_back(server.ticket, client)
        async with plain_client(server.ticket):
            pass

    serving(scenario, max_sessions=1, remote={"resume_grace_seconds": 0.5})


def test_what_nobody_takes_waits_on_the_device_and_not_in_the_front(serving, log) -> None:
    async def scenario(server) -> None:
        inline, count = TensorType(F4.dtype, (4096,)), 2000
        client = await connect_plainly(server.ticket)
        client.send(register(1, [1.0] * 4096, inline), sync(2))
        await client.reply(2)
        client.stop_reading()
        client.send(*(read(1, request=100 + i) for i in range(count)))
        await client.control.writer.wait_acknowledged()
        client.vanish()
        await log.line("lost its link")
        async with plain_client(server.ticket) as other:
            for request in range(1, 50):  # Turns in which the device host may go too far.
                other.send(sync(request))
                await other.reply(request)
        session = server._reception._sessions[client.welcome.session].session
        held = sum(len(replies.payload) for replies in session._replies)
        held += session._numbering.kept_bytes
        assert 0 < held < count * inline.nbytes / 2
        back = await come_back(server.ticket, client)
        assert len((await back.reply(100 + count - 1)).data) == inline.nbytes
        await back.close()

    serving(scenario)


def test_without_a_grace_nothing_can_be_resumed(serving, log) -> None:
    async def scenario(server) -> None:
        client = await connect_plainly(server.ticket)
        assert client.welcome.key is None
        assert client.welcome.limits.resume_grace_seconds == 0
        client.vanish()
        await log.line("bytes freed: LinkLost")

    serving(scenario, remote={"resume_grace_seconds": 0.0})


def test_a_host_that_died_meanwhile_is_told_to_who_comes_back(serving, log) -> None:
    async def scenario(server) -> None:
        client = await connect_plainly(server.ticket)
        client.send(sync(1))
        await client.reply(1)
        client.vanish()
        await log.line("lost its link")
        (owned,) = [line for line in log.lines if "owned by process" in line]
        os.kill(int(owned.rsplit(maxsplit=1)[1]), signal.SIGKILL)
        await log.line("bytes freed: DeviceLost")
        for _ in range(2):  # Its first attempt may not have had the answer.
            with pytest.raises(DeviceLost, match="SIGKILL"):
                await come_back(server.ticket, client)
        with pytest.raises(SessionLost):
            await come_back(server.ticket, client, key=bytes(32))

    serving(scenario, max_sessions=2)


def test_a_link_is_taken_over_and_the_old_one_closed(serving) -> None:
    async def scenario(server) -> None:
        client = await connect_plainly(server.ticket)
        client.send(register(1, [1]), sync(2))
        await client.reply(2)
        back = await come_back(server.ticket, client)
        ended = await asyncio.wait_for(client.ended, 10)
        assert "another link" in str(ended)
        back.send(read(1, request=3))
        assert values((await back.reply(3)).data) == [1]
        assert client.welcome.session is not None
        name = client.welcome.session.hex()[:8]
        (seen,) = [session for session in await seen_at(server) if session.name == name]
        assert (seen.state, seen.resumptions) == ("open", 1)
        client.vanish()
        await back.close()

    serving(scenario)


def test_a_server_that_is_stopped_ends_sessions_that_wait(serve, runner, log) -> None:
    async def scenario() -> None:
        async with serve() as server:
            client = await connect_plainly(server.ticket)
            client.vanish()
            await log.line("lost its link")
            assert [session.state for session in await seen_at(server)] == ["away"]
        assert any("ServerStopped" in line for line in log.lines)

    runner.run(scenario())
