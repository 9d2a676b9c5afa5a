"""A listener among clients of all kinds, and garbage."""

from __future__ import annotations

import asyncio
import random
import socket
from typing import Any

import pytest
from aioquic.asyncio.client import connect as connect_plain_quic
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicProtocolVersion

from gpuwire.errors import ConnectionClosed, ProtocolError, QuotaExceeded, ServerStartError
from gpuwire.transport import (
    Connection,
    Identity,
    Listener,
    PinnedKey,
    TransportOptions,
    connect,
    listen,
)


async def echo(connection: Connection) -> None:
    control = await connection.accept_control()
    while data := await control.reader.read(65_536):
        await control.writer.write(data)
    control.writer.finish()
    await control.writer.wait_acknowledged()


async def assert_serves(listener: Listener, identity: Identity) -> None:
    connection = await connect("127.0.0.1", listener.port, PinnedKey(identity.fingerprint))
    control = await connection.open_control()
    await control.writer.write(b"still there?")
    assert await control.reader.readexactly(12) == b"still there?"
    connection.close()
    await connection.wait_closed()


def garbage(count: int) -> list[bytes]:
    """Noise, and noise that looks a little like a first packet of QUIC."""
    chance = random.Random(7)
    datagrams = [chance.randbytes(chance.choice((0, 1, 7, 30, 300, 1_200, 9_000)))] * 2
    for _ in range(count):
        noise = chance.randbytes(chance.choice((1, 5, 8, 21, 500, 1_200, 1_400)))
        head = bytes([0xC0 | chance.randrange(16)]) + b"\0\0\0\1" + bytes([8])
        datagrams.append(noise if chance.random() < 0.5 else head + noise)
    return datagrams


def test_garbage_is_dropped_counted_and_harms_nobody(
    run: Any, serve: Any, identity: Identity
) -> None:
    datagrams = garbage(400)

    async def scenario() -> None:
        async with serve(identity, echo) as listener:
            connection = await connect("127.0.0.1", listener.port, PinnedKey(identity.fingerprint))
            control = await connection.open_control()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                for start in range(0, len(datagrams), 20):  # the socket's buffer must hold them all
                    for data in datagrams[start : start + 20]:
                        sock.sendto(data, ("127.0.0.1", listener.port))
                    await control.writer.write(b"x")
                    assert await control.reader.readexactly(1) == b"x"
            assert listener.counts.garbage_datagrams == len(datagrams)
            assert listener.counts.connections == 1
            assert listener.open_connections == 1, "garbage must leave no half-open connection"
            connection.close()
            await assert_serves(listener, identity)

    run(scenario())


def test_a_client_of_an_unknown_quic_version_is_told_ours(
    run: Any, serve: Any, identity: Identity
) -> None:
    async def scenario() -> None:
        async with serve(identity, echo) as listener:
            loop = asyncio.get_running_loop()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.connect(("127.0.0.1", listener.port))
                head = b"\xc0" + b"\x0a\x0a\x0a\x0a" + b"\x08" + b"D" * 8 + b"\x08" + b"S" * 8
                await loop.sock_sendall(sock, head.ljust(1_100, b"\0"))  # short: no answer
                await loop.sock_sendall(sock, head.ljust(1_200, b"\0"))
                answer = await loop.sock_recv(sock, 2_000)
                # RFC 9000 section 17.2.1: version 0, the ids swapped, the versions.
                assert answer[1:5] == b"\0\0\0\0"
                assert answer[5:23] == b"\x08" + b"S" * 8 + b"\x08" + b"D" * 8
                assert QuicProtocolVersion.VERSION_1.to_bytes(4, "big") in answer[23:]
                with pytest.raises(BlockingIOError):
                    sock.recv(2_000)

    run(scenario())


def test_under_load_a_client_proves_its_address_first(
    run: Any, serve: Any, identity: Identity
) -> None:
    async def scenario() -> None:
        async with serve(identity, echo, TransportOptions(retry_above_handshakes=0)) as listener:
            await assert_serves(listener, identity)
            assert listener.counts.retries == 1
            assert listener.counts.connections == 1

    run(scenario())


def test_connections_have_a_limit_and_make_room_when_they_end(
    run: Any, serve: Any, identity: Identity
) -> None:
    async def scenario() -> None:
        async with serve(identity, echo, TransportOptions(max_connections=1)) as listener:
            trust = PinnedKey(identity.fingerprint)
            first = await connect("127.0.0.1", listener.port, trust)
            with pytest.raises(QuotaExceeded, match="as many connections"):
                await connect("127.0.0.1", listener.port, trust)
            assert listener.counts.refused_connections == 1
            first.close()
            await assert_serves(listener, identity)

    run(scenario())


def test_a_handshake_that_never_ends_is_dropped(run: Any, serve: Any, identity: Identity) -> None:
    class Eavesdropper(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, address: Any) -> None:
            first_flight.set_result(data)

    async def scenario() -> None:
        nonlocal first_flight
        loop = asyncio.get_running_loop()
        first_flight = loop.create_future()
        ear, _ = await loop.create_datagram_endpoint(Eavesdropper, ("127.0.0.1", 0))
        port = ear.get_extra_info("sockname")[1]
        attempt = asyncio.create_task(connect("127.0.0.1", port, PinnedKey(identity.fingerprint)))
        data = await first_flight
        attempt.cancel()
        ear.close()
        await asyncio.wait([attempt])
        async with serve(
            identity, echo, TransportOptions(handshake_timeout_seconds=0.1)
        ) as listener:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.connect(("127.0.0.1", listener.port))
                sock.send(data)
                sock.send(data)  # in one batch with the first: still one connection
                await loop.sock_recv(sock, 2_000)
                assert listener.open_connections == 1
                while listener.open_connections:
                    await loop.sock_recv(
                        sock, 2_000
                    )  # the server's flight again, then its farewell
            assert listener.counts.connections == 0

    first_flight: asyncio.Future[bytes]
    run(scenario())


@pytest.mark.parametrize("engine", ["aioquic", "qh3"])
def test_a_client_that_opens_thousands_of_streams_is_cut_off_alone(
    run: Any, serve: Any, identity: Identity, engine: Any
) -> None:
    causes: list[object] = []

    async def keep(connection: Connection) -> None:
        await connection.wait_closed()
        causes.append(connection.close_cause)

    async def scenario() -> None:
        options = TransportOptions(engine=engine, max_bulk_streams=32)
        async with serve(identity, keep, options) as listener:
            trust = PinnedKey(identity.fingerprint)
            good = await connect("127.0.0.1", listener.port, trust)
            configuration = QuicConfiguration(alpn_protocols=["gpuwire/1"], verify_mode=0)
            async with connect_plain_quic(
                "127.0.0.1", listener.port, configuration=configuration
            ) as bad:
                bad._quic._remote_max_streams_uni = 10_000
                for number in range(5_000):
                    bad._quic.send_stream_data(2 + 4 * number, b"x", end_stream=True)
                bad.transmit()
                await bad.wait_closed()
            assert isinstance(causes[0], ProtocolError)
            assert good.close_cause is None
            bulk = good.open_bulk()
            bulk.write_nowait(b"x")
            await bulk.wait_acknowledged()
            good.close()
            await good.wait_closed()

    run(scenario())


def test_a_handler_that_fails_ends_its_connection_only(identity: Identity) -> None:
    told: list[dict[str, Any]] = []

    async def fail(connection: Connection) -> None:
        raise ValueError("a fault in the server")

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        listener = await listen("127.0.0.1", 0, identity, fail)
        connection = await connect("127.0.0.1", listener.port, PinnedKey(identity.fingerprint))
        await connection.wait_closed()
        assert isinstance(connection.close_cause, ConnectionClosed)
        assert connection.close_cause.error_code == 1
        assert "fault" not in (connection.close_cause.reason or "")
        await listener.close()

    asyncio.run(scenario())
    assert [str(context["exception"]) for context in told] == ["a fault in the server"]


def test_closing_tells_all_clients_and_ends_stubborn_handlers(
    run: Any, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuwire.transport.listener.HANDLER_GRACE_SECONDS", 0.05)
    ended: list[str] = []

    async def stubborn(connection: Connection) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cancelled")

    async def scenario() -> None:
        listener = await listen("127.0.0.1", 0, identity, stubborn)
        trust = PinnedKey(identity.fingerprint)
        clients = [await connect("127.0.0.1", listener.port, trust) for _ in range(3)]
        await asyncio.gather(listener.close(7, "going down"), *(c.wait_closed() for c in clients))
        for client in clients:
            assert isinstance(client.close_cause, ConnectionClosed)
            assert (client.close_cause.error_code, client.close_cause.reason) == (7, "going down")
        assert ended == ["cancelled"] * 3
        again = await listen("127.0.0.1", listener.port, identity, stubborn)
        await again.close()

    run(scenario())


def test_an_address_that_is_taken_or_not_ours(run: Any, serve: Any, identity: Identity) -> None:
    async def scenario() -> None:
        async with serve(identity, echo) as listener:
            with pytest.raises(ServerStartError, match=str(listener.port)):
                await listen("127.0.0.1", listener.port, identity, echo)
        with pytest.raises(ServerStartError):
            await listen("203.0.113.7", 0, identity, echo)
        with pytest.raises(ServerStartError):
            await listen("no-such-host.invalid", 0, identity, echo)

    run(scenario())
