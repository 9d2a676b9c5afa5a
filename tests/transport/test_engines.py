"""Both engines behind one face: each client with each server, both ways."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from gpuwire.errors import (
    ConfigError,
    ConnectionClosed,
    ConnectTimeout,
    LinkLost,
    ProtocolError,
    StreamReset,
    StreamStopped,
    WrongFingerprint,
)
from gpuwire.transport import (
    AuthorityFile,
    Connection,
    Identity,
    PinnedKey,
    TransportOptions,
    connect,
    engines,
)
from relay import LinkProfile, Relay

PAIRS = [("aioquic", "qh3"), ("qh3", "aioquic"), ("qh3", "qh3"), ("aioquic", "aioquic")]
MIB = 1 << 20
pairs = pytest.mark.parametrize(("near", "far"), PAIRS)


def options(engine: Any, **more: Any) -> TransportOptions:
    return TransportOptions(engine=engine, **more)


async def drain(connection: Connection) -> bytes:
    stream = await connection.accept_bulk()
    digest = hashlib.sha256()
    while data := await stream.read(MIB):
        digest.update(data)
    return digest.digest()


@pairs
def test_streams_work_both_ways(run: Any, linked: Any, near: str, far: str) -> None:
    payload = bytes(i * 31 % 251 for i in range(3 * MIB))

    async def send(connection: Connection) -> None:
        stream = connection.open_bulk()
        await stream.write(payload)
        stream.finish()
        await stream.wait_acknowledged()

    async def scenario() -> None:
        async with linked(options(near), options(far)) as link:
            assert (link.client.path.engine, link.server.path.engine) == (near, far)
            control = await link.client.open_control()
            await control.writer.write(b"question")
            other = await link.server.accept_control()
            assert await other.reader.readexactly(8) == b"question"
            await other.writer.write(b"answer")
            assert await control.reader.readexactly(6) == b"answer"
            await control.writer.wait_acknowledged()
            _, up, _, down = await asyncio.gather(
                send(link.client), drain(link.server), send(link.server), drain(link.client)
            )
            assert up == down == hashlib.sha256(payload).digest()

    run(scenario())


@pairs
def test_streams_are_given_up_both_ways(run: Any, linked: Any, near: str, far: str) -> None:
    async def scenario() -> None:
        async with linked(options(near), options(far)) as link:
            ended = link.client.open_bulk()
            await ended.write(b"some")
            arrived = await link.server.accept_bulk()
            assert await arrived.read(4) == b"some"
            ended.reset(7)
            with pytest.raises(StreamReset) as reset:
                await arrived.read(1)
            assert reset.value.error_code == 7
            unwanted = link.client.open_bulk()
            await unwanted.write(b"more")
            arrived = await link.server.accept_bulk()
            assert await arrived.read(4) == b"more"
            arrived.stop(9)
            with pytest.raises(StreamStopped):
                while True:
                    await unwanted.write(bytes(100_000))

    run(scenario())


@pairs
def test_the_end_is_told_with_its_code(run: Any, linked: Any, near: str, far: str) -> None:
    async def scenario() -> None:
        async with linked(options(near), options(far)) as link:
            link.client.close(42, "done here")
            await link.client.wait_closed()
            await link.server.wait_closed()
            ours, theirs = link.client.close_cause, link.server.close_cause
            assert isinstance(ours, ConnectionClosed)
            assert not ours.by_peer
            assert isinstance(theirs, ConnectionClosed)
            assert (theirs.by_peer, theirs.error_code, theirs.reason) == (True, 42, "done here")

    run(scenario())


@pairs
def test_a_server_with_another_key_is_refused(
    run: Any, identity: Identity, serve: Any, near: str, far: str
) -> None:
    async def handler(connection: Connection) -> None:
        await connection.wait_closed()

    async def scenario() -> None:
        async with serve(identity, handler, options(far)) as listener:
            with pytest.raises(WrongFingerprint):
                await connect("127.0.0.1", listener.port, PinnedKey("A" * 43), options(near))

    run(scenario())


def test_qh3_accepts_a_certificate_of_an_authority(
    run: Any, serve: Any, tmp_path: Path, identity: Identity
) -> None:
    path = tmp_path / "authority.pem"
    path.write_bytes(identity.certificate.public_bytes(Encoding.PEM))

    async def handler(connection: Connection) -> None:
        await connection.wait_closed()

    async def scenario() -> None:
        async with serve(identity, handler, options("qh3")) as listener:
            trust = AuthorityFile(path, server_name="gpuwire")
            connection = await connect("127.0.0.1", listener.port, trust, options("qh3"))
            connection.close()

    run(scenario())


@pairs
def test_what_nobody_reads_is_bounded(run: Any, linked: Any, near: str, far: str) -> None:
    window = MIB

    async def scenario() -> None:
        receiving = options(far, connection_window_bytes=window, stream_window_bytes=window // 2)
        async with linked(options(near), receiving) as link:
            stream = link.client.open_bulk()
            writing = asyncio.ensure_future(stream.write(bytes(16 * MIB)))
            arrived = await link.server.accept_bulk()
            quiet = 0
            while quiet < 20:
                before = link.server.received_unread_bytes
                await asyncio.wait({writing}, timeout=0.01)
                quiet = quiet + 1 if link.server.received_unread_bytes == before else 0
            assert link.server.received_unread_bytes <= window
            assert not writing.done()
            count = 0
            while count < 16 * MIB:
                count += len(await arrived.read(MIB))
            await writing

    run(scenario())


@pairs
def test_work_goes_on_when_the_client_moves(
    run: Any, identity: Identity, serve: Any, near: str, far: str
) -> None:
    async def handler(connection: Connection) -> None:
        control = await connection.accept_control()
        while data := await control.reader.read(100):
            await control.writer.write(data)
            if data == b"last":
                await control.writer.write(await drain(connection))

    async def scenario() -> None:
        async with serve(identity, handler, options(far)) as listener:
            with Relay(("127.0.0.1", listener.port), LinkProfile(delay_seconds=0.002)) as relay:
                trust = PinnedKey(identity.fingerprint)
                connection = await connect("127.0.0.1", relay.port, trust, options(near))
                control = await connection.open_control()
                for word in (b"first", b"then", b"last"):
                    await control.writer.write(word)
                    assert await control.reader.readexactly(len(word)) == word
                    relay.move_clients()
                stream = connection.open_bulk()
                await stream.write(bytes(MIB))
                stream.finish()
                digest = hashlib.sha256(bytes(MIB)).digest()
                assert await control.reader.readexactly(32) == digest
                connection.close()

    run(scenario())


def test_streams_that_nobody_reads_are_bounded_where_the_core_does_not(
    run: Any, identity: Identity, serve: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("gpuwire.transport.engine_qh3.MOST_UNRELEASED_STREAMS", 200)
    causes: list[object] = []

    async def never_read(connection: Connection) -> None:
        await connection.wait_closed()
        causes.append(connection.close_cause)

    async def scenario() -> None:
        async with serve(identity, never_read, options("qh3")) as listener:
            trust = PinnedKey(identity.fingerprint)
            client = await connect("127.0.0.1", listener.port, trust, options("aioquic"))
            for _ in range(1_000):
                stream = client.open_bulk()
                stream.write_nowait(b"x")
                stream.finish()
            await client.wait_closed()
        assert [type(cause) for cause in causes] == [ProtocolError]

    run(scenario())


def test_qh3_does_not_stand_still_on_a_path_that_has_narrowed(
    run: Any, identity: Identity, serve: Any
) -> None:
    """Its core finds no smaller size, so the connection ends, and the session goes on over
    another."""

    async def handler(connection: Connection) -> None:
        control = await connection.accept_control()
        while True:
            await control.writer.write(await drain(connection))

    async def scenario() -> None:
        async with serve(identity, handler, options("qh3")) as listener:
            with Relay(("127.0.0.1", listener.port), LinkProfile()) as relay:
                trust = PinnedKey(identity.fingerprint)
                client = await connect("127.0.0.1", relay.port, trust, options("qh3"))
                control = await client.open_control()
                await control.writer.write(b"open")
                relay.set_profile(LinkProfile(max_datagram_bytes=1_400))
                stream = client.open_bulk()
                await stream.write(bytes(100_000))
                stream.finish()
                with pytest.raises(LinkLost):
                    await control.reader.readexactly(32)

    run(scenario())


@pytest.mark.parametrize("engine", ["aioquic", "qh3"])
def test_silence_is_noticed(run: Any, linked: Any, engine: str) -> None:
    async def scenario() -> None:
        async with linked(options(engine, idle_timeout_seconds=0.2), options(engine)) as link:
            await link.client.wait_closed()
            assert isinstance(link.client.close_cause, LinkLost | ConnectTimeout)

    run(scenario())


def test_an_engine_that_is_not_installed_is_named(run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda name: None)

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="gpuwire\\[fast\\]"):
            await connect("127.0.0.1", 9, PinnedKey("A" * 43), options("qh3"))

    run(scenario())
