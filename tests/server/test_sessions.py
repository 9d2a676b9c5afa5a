"""Sessions through front and device host: apart, bounded, and freed at their end."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from gpuwire.errors import ConnectionClosed, ProtocolError, StreamStopped, UploadTooLarge
from gpuwire.ir.tensors import TensorType
from gpuwire.server import session as session_module
from gpuwire.server.attached_link import READ_BYTES
from gpuwire.server.session import Session
from gpuwire.wire.framing import BULK_HEADER_BYTES, decode_bulk_header
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import Done, Failed
from gpuwire.wire.records import from_record
from host_tasks import F4, add, drop, read, register, sync, values
from plain_client import connect_plainly, plain_client

LARGE = TensorType(F4.dtype, (5 * 256 * 1024 + 3,))
"""5 MiB and a bit: six slots."""


def numbers(type_: TensorType, seed: int) -> bytes:
    return np.random.default_rng(seed).random(type_.size, np.float32).tobytes()


def test_small_and_large_tensors_go_up_and_come_down(shared_server, runner) -> None:
    async def scenario() -> None:
        data = numbers(LARGE, 1)
        async with plain_client(shared_server.ticket) as client:
            client.send(register(1, None, LARGE, request=1), register(2, [1, 2]), add(2, 1.0, 3))
            client.send(read(3, request=10), read(1, request=11), sync(12))
            assert values((await client.reply(10)).data) == [2, 3]
            await client.upload(1, data)
            assert isinstance(await client.reply(12), Done)
            assert (await client.reply(11)).data is None
            assert await client.download(11) == data

    runner.run(scenario())


def test_a_bulk_stream_may_come_before_its_task(shared_server, runner) -> None:
    async def scenario() -> None:
        data = numbers(LARGE, 2)
        async with plain_client(shared_server.ticket) as client:
            uploading = asyncio.create_task(client.upload(1, data))
            client.send(register(2, [1]), read(2, request=9))
            await client.reply(9)
            client.send(register(1, None, LARGE, request=1), read(1, request=2))
            await uploading
            assert await client.download(2) == data

    runner.run(scenario())


def test_two_sessions_use_the_same_ids_apart(shared_server, runner) -> None:
    async def one(ticket: str, number: float) -> list[float]:
        async with plain_client(ticket) as client:
            client.send(register(1, [number] * 4))
            for i in range(1, 40):
                client.send(add(i, number, i + 1), drop(i))
            client.send(read(40, request=1))
            return values((await client.reply(1)).data)

    async def scenario() -> None:
        results = await asyncio.gather(*(one(shared_server.ticket, n) for n in (1.0, 2.0, 3.0)))
        assert results == [[40.0 * n] * 4 for n in (1.0, 2.0, 3.0)]

    runner.run(scenario())


def test_a_client_that_does_not_read_holds_up_nobody(shared_server, runner) -> None:
    """It asks for far more than any buffer holds, large and small, and takes nothing; several of
    them would fill every slot if a slot could be held."""

    async def scenario() -> None:
        data = numbers(LARGE, 3)
        lazy = [await connect_plainly(shared_server.ticket) for _ in range(3)]
        inline = TensorType(F4.dtype, (4096,))
        for client in lazy:
            client.send(register(1, None, LARGE, request=1), sync(2))
            client.send(register(3, [1.0] * 4096, inline))
            await client.upload(1, data)
            await client.reply(2)
            client.stop_reading()
            client.send(*(read(1, request=r) for r in range(100, 140)))
            client.send(*(read(3, request=r) for r in range(200, 700)))
        async with plain_client(shared_server.ticket) as busy:
            busy.send(register(1, None, LARGE, request=1), add(1, 0.0, 2), read(2, request=5))
            await busy.upload(1, data)
            assert await busy.download(5) == data
            busy.send(register(7, [1]), read(7, request=8))
            assert values((await busy.reply(8)).data) == [1]
        client = lazy[0]
        client.start_reading()
        assert len((await client.reply(699)).data) == inline.nbytes
        assert await client.download(139) == data
        for client in lazy:
            client.vanish()

    runner.run(scenario())


def test_a_client_that_stalls_in_an_upload_holds_up_nobody(shared_server, runner) -> None:
    async def scenario() -> None:
        data = numbers(LARGE, 4)
        stalled = await connect_plainly(shared_server.ticket)
        for request in range(1, 33):
            stalled.send(register(request, None, LARGE, request=request))
            stream = stalled.begin_upload(request, LARGE.nbytes)
            stream.write_nowait(data[:70_000])
        async with plain_client(shared_server.ticket) as busy:
            busy.send(register(1, None, LARGE, request=1), sync(2))
            await busy.upload(1, data)
            assert isinstance(await busy.reply(2), Done)
        stalled.vanish()

    runner.run(scenario())


def test_a_client_that_floods_with_tasks_is_read_no_faster_than_they_are_taken(
    shared_server, runner, monkeypatch
) -> None:
    high_water = 300 * 1024
    monkeypatch.setattr(session_module, "HIGH_WATER_BYTES", high_water)
    backlogs: list[int] = []
    may_read = Session.may_read

    def noted(session: Session) -> bool:
        backlogs.append(session._backlog)
        return may_read(session)

    monkeypatch.setattr(Session, "may_read", noted)

    async def scenario() -> None:
        async with plain_client(shared_server.ticket) as client:
            client.send(register(1, None, F4, request=1))
            inline = [0.5] * 4096
            for i in range(2, 402):
                client.send(register(i, inline), drop(i))
            client.send(add(1, 1.0, 500), read(500, request=600))
            await client.upload(1, bytes(16))
            assert values((await client.reply(600)).data) == [1] * 4
        assert high_water < max(backlogs) <= high_water + READ_BYTES + 20_000

    runner.run(scenario())


def test_a_client_that_vanishes_in_an_upload_frees_its_memory(strict_server, runner, log) -> None:
    async def scenario() -> None:
        client = await connect_plainly(strict_server.ticket)
        client.send(register(1, None, LARGE, request=1), register(2, [1, 2, 3, 4]))
        stream = client.begin_upload(1, LARGE.nbytes)
        stream.write_nowait(bytes(1_500_000))
        client.send(read(2, request=3))
        await client.reply(3)
        client.vanish()
        await log.line("lost its link and waits 0.3 s for its client")
        line = await log.line("SessionLost")
        assert f"closed, {LARGE.nbytes + 16} bytes freed" in line

    runner.run(scenario())


def test_silence_loses_a_link_and_heartbeats_keep_it(strict_server, runner) -> None:
    async def scenario() -> None:
        async with plain_client(strict_server.ticket) as lively:
            silent = await connect_plainly(strict_server.ticket)
            silent.answers_heartbeats = False
            error = await silent.ended
            assert isinstance(error, ConnectionClosed)
            assert "the client was silent" in str(error)
            assert silent.heartbeats >= 2
            silent.vanish()
            assert lively.heartbeats >= 2
            lively.send(sync(1))
            assert isinstance(await lively.reply(1), Done)

    runner.run(scenario())


def test_an_upload_over_the_limit_is_refused_and_the_session_lives(strict_server, runner) -> None:
    too_large = TensorType(F4.dtype, (2 * 1024 * 1024,))

    async def scenario() -> None:
        async with plain_client(strict_server.ticket) as client:
            assert client.welcome.limits.max_upload_bytes == 6 * 1024 * 1024
            client.send(register(1, None, too_large, request=1), read(1, request=2))
            stream = client.begin_upload(1, too_large.nbytes)
            reply = await client.reply(2)
            assert isinstance(from_record(reply.error), UploadTooLarge)
            with pytest.raises(StreamStopped):
                while True:
                    await stream.write(bytes(1024 * 1024))
            client.send(register(3, [1]), read(3, request=4))
            assert values((await client.reply(4)).data) == [1]

    runner.run(scenario())


def test_a_reset_upload_fails_its_tensor_only(shared_server, runner) -> None:
    async def scenario() -> None:
        async with plain_client(shared_server.ticket) as client:
            client.send(register(1, None, LARGE, request=1), add(1, 1.0, 2), read(2, request=3))
            stream = client.begin_upload(1, LARGE.nbytes)
            await stream.write(bytes(2_000_000))
            await stream.wait_acknowledged()
            stream.reset()
            assert "the upload ended after" in (await client.reply(3)).error.message
            client.send(register(4, [1]), read(4, request=5))
            assert values((await client.reply(5)).data) == [1]

    runner.run(scenario())


def test_a_client_that_stops_a_download_gets_the_next(shared_server, runner) -> None:
    async def scenario() -> None:
        data = numbers(LARGE, 5)
        async with plain_client(shared_server.ticket) as client:
            client.send(register(1, None, LARGE, request=1), sync(2))
            await client.upload(1, data)
            await client.reply(2)
            client.stop_reading()
            client.send(*(read(1, request=r) for r in range(10, 16)))
            left = set(range(10, 16))
            for _ in range(4):
                # The next may be ready before one that was asked for earlier.
                stream = await client.connection.accept_bulk()
                head = await stream.readexactly(BULK_HEADER_BYTES)
                left.remove(decode_bulk_header(head, WireLimits()).request)
                stream.stop()
            client.start_reading()
            for request in left:
                assert await client.download(request) == data

    runner.run(scenario())


def test_breaches_end_one_session_with_the_reason(shared_server, runner) -> None:
    async def malformed_body(client) -> None:
        client.control.writer.write_nowait(client.wire.send_tasks([b"\xc1\xc1"], 1))

    async def wrong_length(client) -> None:
        client.send(register(1, None, LARGE, request=1))
        client.begin_upload(1, LARGE.nbytes + 4)

    async def two_streams(client) -> None:
        client.begin_upload(1, 4)
        client.begin_upload(1, 4)

    async def too_much(client) -> None:
        client.send(register(1, None, F4, request=1))
        stream = client.begin_upload(1, 16)
        stream.write_nowait(bytes(17))
        stream.finish()

    async def no_header(client) -> None:
        stream = client.connection.open_bulk()
        stream.write_nowait(b"head")
        stream.finish()

    async def huge_frame(client) -> None:
        client.control.writer.write_nowait((0xFFFFFFF0).to_bytes(4, "big") + b"begun")

    async def gap_in_frames(client) -> None:
        frame = client.wire.send_tasks([b""], 1)
        assert frame
        client.send(sync(1))

    async def scenario() -> None:
        async with plain_client(shared_server.ticket) as good:
            good.send(register(1, [3]))
            for breach in (
                malformed_body,
                wrong_length,
                two_streams,
                too_much,
                no_header,
                huge_frame,
                gap_in_frames,
            ):
                client = await connect_plainly(shared_server.ticket)
                await breach(client)
                error = await client.ended
                assert isinstance(error, ProtocolError), breach.__name__
                client.vanish()
            good.send(read(1, request=2))
            assert values((await good.reply(2)).data) == [3]

    runner.run(scenario())


def test_a_failure_travels_with_operation_place_and_location(shared_server, runner) -> None:
    async def scenario() -> None:
        async with plain_client(shared_server.ticket) as client:
            client.send(register(1, [1, 2]), register(2, [1, 2, 3]), add(1, 2, 3, location=42))
            client.send(sync(9))
            reply = await client.reply(9)
            assert isinstance(reply, Failed)
            error = from_record(reply.error)
            assert (error.operation, error.place, reply.location) == ("add", 1, 42)

    runner.run(scenario())
