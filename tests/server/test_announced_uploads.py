"""Uploads announced by their hash, and bulk streams in pieces, from clients that keep the rules and
from such as do not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import numpy as np
import pytest
from backports import zstd
from blake3 import blake3

from gpuwire.errors import (
    GpuwireError,
    LimitBreached,
    MalformedMessage,
    SessionError,
)
from gpuwire.ids import RequestId
from gpuwire.ir.tensors import TensorType
from gpuwire.server import Grant, TokenLimits, TokenStore
from gpuwire.server import announcements as announcements_module
from gpuwire.transport import SendStream
from gpuwire.wire.compression import CODED_PIECE_BYTES, PieceKind, encode_piece
from gpuwire.wire.framing import PREFIX, encode_bulk_header
from gpuwire.wire.messages import AnnounceUpload, BulkHeader, Done, Failed
from gpuwire.wire.records import from_record
from host_tasks import F4, read, register, sync
from plain_client import PlainClient, connect_plainly, plain_client

TYPE = TensorType(F4.dtype, (300_000,))
"""Two chunks, the second one short."""
SIZE = TYPE.nbytes


def numbers(seed: int) -> bytes:
    return np.random.default_rng(seed).random(TYPE.size, np.float32).tobytes()


def digest(data: bytes) -> bytes:
    return blake3(data).digest()


async def upload(client: PlainClient, request: int, data: bytes) -> None:
    """Announces, sends what is not there, and waits for the device."""
    client.send(register(request, None, TYPE, request=request), sync(request + 1))
    assert not await client.announce(request, len(data), digest(data))
    await client.upload(request, data)
    assert isinstance(await client.reply(request + 1), Done)


async def found_at_last(client: PlainClient, request: int, data: bytes) -> None:
    """Asks until the server has hashed what it got."""
    async with asyncio.timeout(20):
        while not await client.announce(request, len(data), digest(data)):
            pass


def test_what_one_session_sent_is_there_for_the_next(shared_server, runner) -> None:
    async def scenario() -> None:
        data = numbers(1)
        async with plain_client(shared_server.ticket) as client:
            await upload(client, 1, data)
        async with plain_client(shared_server.ticket) as client:
            client.send(register(7, None, TYPE, request=7))
            await found_at_last(client, 7, data)
            received = client.connection.path.bytes_sent
            client.send(read(7, request=8))
            assert await client.download(8) == data
            assert client.connection.path.bytes_sent - received < SIZE // 4
            assert await client.announce(7, SIZE, digest(data)), "asked again after its end"

    runner.run(scenario())


def test_many_announcements_share_one_round_trip(shared_server, runner) -> None:
    async def scenario() -> None:
        data = numbers(2)
        async with plain_client(shared_server.ticket) as client:
            await upload(client, 1, data)
            await _announce_again(client, data)
            requests = range(100, 140)
            client.send(*(register(request, None, TYPE, request=request) for request in requests))
            answers = await asyncio.gather(
                *(client.announce(request, SIZE, digest(data)) for request in requests)
            )
            assert all(answers)
            client.send(*(read(request, request=request + 100) for request in requests))
            for request in requests:
                assert await client.download(request + 100) == data

    runner.run(scenario())


async def _announce_again(client: PlainClient, data: bytes) -> None:
    client.send(register(50, None, TYPE, request=50))
    await found_at_last(client, 50, data)


def test_another_token_finds_nothing_not_even_one_of_the_same_name(shared_server, runner) -> None:
    async def scenario() -> None:
        data = numbers(3)
        store = TokenStore(shared_server.state_dir)
        alice, bob = store.add("alice"), store.add("bob")
        client = await connect_plainly(shared_server.ticket, token=alice)
        await upload(client, 1, data)
        await _announce_again(client, data)
        await client.close()
        store.revoke("alice")
        for token in (bob, store.add("alice"), None):
            client = await connect_plainly(shared_server.ticket, token=token)
            client.send(register(1, None, TYPE, request=1))
            assert not await client.announce(1, SIZE, digest(data))
            await client.close()

    runner.run(scenario())


def test_an_authorizers_names_tell_owners_apart(serve, runner) -> None:
    """And a kept upload that the device refuses is a failed tensor, with nothing to send."""

    async def scenario() -> None:
        data = numbers(4)
        limits = TokenLimits(max_memory_bytes=SIZE * 5 // 2)
        async with serve(authorizer=lambda request: Grant(request.token, limits)) as server:
            client = await connect_plainly(server.ticket, token="first")
            await upload(client, 1, data)
            await _announce_again(client, data)
            client.send(register(60, None, TYPE, request=60), read(60, request=61))
            assert await client.announce(60, SIZE, digest(data))
            assert isinstance(await client.reply(61), Failed)
            await client.close()
            for token, wanted in (("second", False), ("first", True)):
                client = await connect_plainly(server.ticket, token=token)
                client.send(register(1, None, TYPE, request=1))
                assert await client.announce(1, SIZE, digest(data)) is wanted
                await client.close()

    runner.run(scenario())


def test_a_lie_about_the_hash_poisons_nothing(shared_server, runner, log) -> None:
    async def scenario() -> None:
        wanted, sent = numbers(5), numbers(6)
        async with plain_client(shared_server.ticket) as client:
            client.send(register(1, None, TYPE, request=1), read(1, request=2))
            assert not await client.announce(1, SIZE, digest(wanted))
            await client.upload(1, sent)
            assert await client.download(2) == sent, "the tensor is what was sent"
            await log.line("was not what its hash had said")
            client.send(register(3, None, TYPE, request=3), register(4, None, TYPE, request=4))
            assert not await client.announce(3, SIZE, digest(wanted))
            assert not await client.announce(4, SIZE, digest(sent))

    runner.run(scenario())


def test_the_length_of_an_announcement_counts(shared_server, runner) -> None:
    """A kept upload of another length than the tensor is not taken; its own bytes may come."""

    async def scenario() -> None:
        data = numbers(7)
        shorter = TensorType(F4.dtype, (TYPE.size - 1,))
        async with plain_client(shared_server.ticket) as client:
            await upload(client, 1, data)
            await _announce_again(client, data)
            client.send(register(3, None, shorter, request=3), read(3, request=4))
            assert not await client.announce(3, SIZE, digest(data))
            assert not await client.announce(3, SIZE - 4, digest(data))
            await client.upload(3, data[4:])
            assert await client.download(4) == data[4:]

    runner.run(scenario())


def test_what_is_announced_and_never_sent_holds_nothing_up(shared_server, runner) -> None:
    async def scenario() -> None:
        data, kept = numbers(8), numbers(9)
        idle = await connect_plainly(shared_server.ticket)
        await upload(idle, 1, kept)
        await _announce_again(idle, kept)
        idle.send(register(3, None, TYPE, request=3))
        assert not await idle.announce(3, SIZE, digest(data))
        for request in range(1000, 1010):  # No task ever names these.
            idle.control.writer.write_nowait(
                idle.wire.send(AnnounceUpload(RequestId(request), SIZE, digest(kept)))
            )
        async with plain_client(shared_server.ticket) as busy:
            await upload(busy, 1, data)
        idle.vanish()

    runner.run(scenario())


def test_announcements_without_an_end_are_bounded(shared_server, runner, monkeypatch) -> None:
    async def scenario() -> None:
        client = await connect_plainly(shared_server.ticket)
        for request in range(1, 5):
            assert not await client.announce(request, SIZE, bytes(32))
        with pytest.raises(LimitBreached, match="announced"):
            await client.announce(5, SIZE, bytes(32))
        client.vanish()

    monkeypatch.setattr(announcements_module, "MOST_ANNOUNCED", 4)
    runner.run(scenario())


@pytest.mark.parametrize(
    "payload",
    [
        b"\x93\x16\x01\x02",
        b"\x94\x16\x00\x02\xc4\x20" + bytes(32),
        b"\x94\x16\x01\x02\xc4\x1f" + bytes(31),
        b"\x93\x17\x01\xc3",
    ],
    ids=["no hash", "no request", "a short hash", "a server's answer"],
)
def test_a_malformed_announcement_ends_the_session(shared_server, runner, payload: bytes) -> None:
    async def scenario() -> None:
        client = await connect_plainly(shared_server.ticket)
        client.control.writer.write_nowait(PREFIX.pack(len(payload)) + payload)
        error = await client.ended
        assert isinstance(error, GpuwireError) and error.code // 100 == MalformedMessage.code // 100
        client.vanish()

    runner.run(scenario())


def test_a_stream_before_the_answer_ends_the_session(shared_server, runner) -> None:
    async def scenario() -> None:
        data = numbers(10)
        client = await connect_plainly(shared_server.ticket)
        await upload(client, 1, data)
        await _announce_again(client, data)
        announcing = asyncio.create_task(client.announce(9, SIZE, digest(data)))
        await client.announce(10, SIZE, bytes(32))  # The server has read both.
        await client.upload(9, data)
        with pytest.raises(MalformedMessage, match="not answered"):
            await announcing
        client.vanish()

    runner.run(scenario())


def test_uploads_survive_a_restart_on_disk_and_damage_is_a_miss(serve, runner, tmp_path) -> None:
    async def scenario() -> None:
        data = numbers(12)
        options = {"upload_cache_dir": tmp_path / "kept", "upload_cache_memory_bytes": 0}
        grant = {"authorizer": lambda request: Grant("somebody")}
        async with serve(**grant, **options) as server, plain_client(server.ticket) as client:
            await upload(client, 1, data)
            await _announce_again(client, data)
        async with serve(**grant, **options) as server, plain_client(server.ticket) as client:
            client.send(register(1, None, TYPE, request=1), read(1, request=2))
            assert await client.announce(1, SIZE, digest(data))
            assert await client.download(2) == data
            await asyncio.to_thread(_damage, tmp_path / "kept")
            client.send(register(3, None, TYPE, request=3), read(3, request=4))
            assert not await client.announce(3, SIZE, digest(data))
            await client.upload(3, data)
            assert await client.download(4) == data

    runner.run(scenario())


def _damage(directory) -> None:
    (file,) = directory.glob("*.upload")
    file.write_bytes(bytes(SIZE))


# --- Streams in pieces -------------------------------------------------------------------------


def begin_pieces(client: PlainClient, request: int) -> SendStream:
    client.send(register(request, None, TYPE, request=request), read(request, request=request + 1))
    stream = client.connection.open_bulk()
    stream.write_nowait(encode_bulk_header(BulkHeader(RequestId(request), SIZE, 4)))
    return stream


def test_pieces_of_every_kind_make_one_tensor(shared_server, runner) -> None:
    async def scenario() -> None:
        data = np.sin(np.arange(TYPE.size, dtype=np.float32) / 50).tobytes()
        async with plain_client(shared_server.ticket) as client:
            stream = begin_pieces(client, 1)
            kinds = [PieceKind.GROUPED, PieceKind.STORED, PieceKind.ZSTD, PieceKind.GROUPED]
            start = 0
            while start < SIZE:
                kind = kinds[start % len(kinds)]
                piece = memoryview(data)[start : start + 100_001]
                for part in encode_piece(piece, kind, 4):
                    await stream.write(part)
                start += len(piece)
            stream.finish()
            assert await client.download(2) == data

    runner.run(scenario())


async def _write(stream: SendStream, *parts: bytes) -> None:
    for part in parts:
        await stream.write(part)
    stream.finish()


def head(kind: int, raw: int, coded: int) -> bytes:
    return bytes([kind]) + raw.to_bytes(4, "big") + coded.to_bytes(4, "big")


BOMB = zstd.compress(bytes(1 << 24))
GARBAGE = b"this is not Zstandard"


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ((head(1, 1000, len(GARBAGE)), GARBAGE), MalformedMessage),
        ((head(1, 1 << 24, len(BOMB)), BOMB), MalformedMessage),
        ((head(1, CODED_PIECE_BYTES + 1, len(BOMB)), BOMB), LimitBreached),
        ((head(2, CODED_PIECE_BYTES, len(BOMB)), BOMB), MalformedMessage),
        ((head(1, 1000, 1000), bytes(1000)), MalformedMessage),
        ((head(0, SIZE + 1, SIZE + 1),), MalformedMessage),
        ((head(9, 10, 10), bytes(10)), MalformedMessage),
        ((head(0, SIZE, SIZE), bytes(SIZE), b"more"), MalformedMessage),
    ],
    ids=[
        "no Zstandard",
        "longer than the tensor",
        "longer than a piece",
        "a bomb",
        "not compressed",
        "stored beyond the end",
        "of no kind",
        "after the end",
    ],
)
def test_wrong_pieces_end_the_session(
    shared_server, runner, parts: tuple[bytes, ...], error: type[GpuwireError]
) -> None:
    async def scenario() -> None:
        client = await connect_plainly(shared_server.ticket)
        await _ended_by(client, _write(begin_pieces(client, 1), *parts))
        assert type(await client.ended) is error
        client.vanish()

    runner.run(scenario())


async def _ended_by(client: PlainClient, work: Awaitable[None]) -> None:
    """The server may stop the stream while it is written."""
    try:
        await work
    except GpuwireError:
        await client.ended


def test_a_stream_that_ends_inside_a_piece_is_a_failed_tensor(shared_server, runner) -> None:
    async def scenario() -> None:
        coded = zstd.compress(bytes(1000))
        async with plain_client(shared_server.ticket) as client:
            await _write(begin_pieces(client, 1), head(1, 1000, len(coded)), coded[:-3])
            reply = await client.reply(2)
            assert isinstance(reply, Failed)
            error = from_record(reply.error)
            assert isinstance(error, SessionError) and "ended after" in str(error)
            client.send(register(5, [1.0]), sync(6))
            assert isinstance(await client.reply(6), Done | Failed)

    runner.run(scenario())
