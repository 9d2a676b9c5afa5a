"""Streams over real loopback UDP: order, ends, giving up, and back-pressure in both directions."""

from __future__ import annotations

import asyncio
import hashlib
import random
from typing import Any

import numpy as np
import pytest

from gpuwire.errors import ConnectionClosed, LinkLost, StreamEnded, StreamReset, StreamStopped
from gpuwire.transport import ReceiveStream, Stream, TransportOptions

MIB = 1 << 20
SMALL_WINDOWS = TransportOptions(
    stream_window_bytes=256 * 1024,
    connection_window_bytes=MIB,
    high_water_bytes=512 * 1024,
)


async def controls(link: Any) -> tuple[Stream, Stream]:
    """Both ends of the control stream."""
    near = await link.client.open_control()
    near.writer.write_nowait(b"!")
    far = await link.server.accept_control()
    assert await far.reader.read(1) == b"!"
    return near, far


async def echo(reader: ReceiveStream, stream: Stream) -> None:
    while data := await reader.read(65_536):
        await stream.writer.write(data)


async def ping(near: Stream) -> None:
    near.writer.write_nowait(b"p")
    assert await near.reader.readexactly(1) == b"p"


async def read_all(reader: ReceiveStream) -> bytes:
    parts = []
    while data := await reader.read(MIB):
        parts.append(data)
    return b"".join(parts)


def test_20_mb_arrive_as_they_were_sent_both_ways_at_once(run: Any, linked: Any) -> None:
    payload = random.Random(1).randbytes(20_000_000)
    digest = hashlib.sha256(payload).digest()

    async def send(connection: Any) -> None:
        stream = connection.open_bulk()
        await stream.write(payload)
        stream.finish()
        await stream.wait_acknowledged()
        assert stream.unacknowledged_bytes == 0

    async def receive(connection: Any) -> None:
        target = bytearray(len(payload))
        stream = await connection.accept_bulk()
        await stream.read_into(memoryview(target))
        assert await stream.read(1) == b""
        assert hashlib.sha256(target).digest() == digest

    async def scenario() -> None:
        async with linked() as link:
            await asyncio.gather(
                send(link.client), receive(link.client), send(link.server), receive(link.server)
            )
            assert link.client.path.bytes_sent > len(payload)
            assert link.client.received_unread_bytes == 0

    run(scenario())


def test_a_reader_who_never_reads_bounds_both_sides(run: Any, linked: Any) -> None:
    payload = bytes(8 * MIB)

    async def scenario() -> None:
        async with linked(SMALL_WINDOWS, SMALL_WINDOWS) as link:
            near, far = await controls(link)
            echoing = asyncio.create_task(echo(far.reader, far))
            bulk = link.client.open_bulk()
            writing = asyncio.create_task(bulk.write(payload))
            unread = await link.server.accept_bulk()
            while unread.unread_bytes < SMALL_WINDOWS.stream_window_bytes:
                await ping(near)
            for _ in range(50):
                await ping(near)
                assert unread.unread_bytes == SMALL_WINDOWS.stream_window_bytes
                assert bulk.unacknowledged_bytes <= SMALL_WINDOWS.high_water_bytes + 256 * 1024
            assert not writing.done()
            assert link.server.received_unread_bytes <= SMALL_WINDOWS.stream_window_bytes + 1
            assert len(await unread.readexactly(len(payload))) == len(payload)
            await writing
            near.writer.finish()
            await echoing

    run(scenario())


def test_the_other_direction_is_bounded_as_well(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked(SMALL_WINDOWS, SMALL_WINDOWS) as link:
            near, far = await controls(link)
            echoing = asyncio.create_task(echo(far.reader, far))
            writers = []
            for _ in range(8):
                bulk = link.server.open_bulk()
                writers.append(asyncio.create_task(bulk.write(bytes(2 * MIB))))
            streams = [await link.client.accept_bulk() for _ in range(8)]
            # Bulk may fill the connection's window but for the part that is kept for control.
            # The pings' own bytes count too, until their credit is worth a message.
            limit = SMALL_WINDOWS.connection_window_bytes * 15 // 16
            while link.client.received_unread_bytes < limit - 16 * 1024:
                await ping(near)
            for _ in range(20):
                await ping(near)
                assert link.client.received_unread_bytes <= limit
            assert not any(writer.done() for writer in writers)
            read = await asyncio.gather(*(stream.readexactly(2 * MIB) for stream in streams))
            assert all(len(data) == 2 * MIB for data in read)
            await asyncio.gather(*writers)
            near.writer.finish()
            await echoing

    run(scenario())


def test_control_goes_on_while_bulk_fills_the_link(run: Any, linked: Any) -> None:
    async def drain(reader: ReceiveStream, counts: list[int]) -> None:
        while data := await reader.read(MIB):
            counts[0] += len(data)

    async def scenario() -> None:
        async with linked() as link:
            near, far = await controls(link)
            echoing = asyncio.create_task(echo(far.reader, far))
            counts = [0]
            bulk = link.client.open_bulk()
            writing = asyncio.create_task(bulk.write(bytes(128 * MIB)))
            draining = asyncio.create_task(drain(await link.server.accept_bulk(), counts))
            per_round_trip = []
            for _ in range(50):
                before = counts[0]
                await ping(near)
                per_round_trip.append(counts[0] - before)
            assert not writing.done(), "the bulk transfer must outlast the round trips"
            assert sum(per_round_trip) > 0, "bulk makes progress too"
            # A ping that waited its turn behind queued bulk would see 4 MiB (the high water) pass.
            assert sorted(per_round_trip)[25] < MIB
            writing.cancel()
            bulk.reset()
            near.writer.finish()
            await asyncio.gather(writing, draining, echoing, return_exceptions=True)

    run(scenario())


def test_many_streams_more_than_the_peer_allows_at_once(run: Any, linked: Any) -> None:
    count = 300
    allowed = TransportOptions(max_bulk_streams=16)

    async def send(link: Any, number: int) -> None:
        stream = link.client.open_bulk()
        await stream.write(number.to_bytes(4, "big") + bytes(number))
        stream.finish()
        await stream.wait_acknowledged()

    async def scenario() -> None:
        async with linked(server=allowed) as link:
            sending = [asyncio.create_task(send(link, number)) for number in range(count)]
            seen = set()
            for _ in range(count):
                stream = await link.server.accept_bulk()
                number = int.from_bytes(await stream.readexactly(4), "big")
                assert len(await read_all(stream)) == number
                seen.add(number)
            assert seen == set(range(count))
            await asyncio.gather(*sending)

    run(scenario())


def test_an_array_is_sent_from_its_own_memory(run: Any, linked: Any) -> None:
    array = np.arange(600_000, dtype=np.float64).reshape(600, 1_000)

    async def scenario() -> None:
        async with linked() as link:
            stream = link.client.open_bulk()
            writing = asyncio.create_task(stream.write(memoryview(array)))
            target = np.empty_like(array)
            await (await link.server.accept_bulk()).read_into(memoryview(target))
            await writing
            assert np.array_equal(target, array)

    run(scenario())


def test_what_is_read_is_bytes_of_its_own_also_from_large_datagrams(run: Any, linked: Any) -> None:
    payload = random.Random(2).randbytes(300_000)

    async def scenario() -> None:
        async with linked() as link:
            while link.client.path.datagram_bytes < 16_000:
                stream = link.client.open_bulk()
                writing = asyncio.create_task(stream.write(payload))
                reader = await link.server.accept_bulk()
                parts = [await reader.readexactly(17)]
                while sum(map(len, parts)) < len(payload):
                    parts.append(await reader.read(50_000))
                assert {type(part) for part in parts} == {bytes}
                assert b"".join(parts) == payload
                await writing

    run(scenario())


def test_a_stream_that_ends_early_says_how_much_there_was(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            stream = link.client.open_bulk()
            stream.write_nowait(b"0123456")
            stream.finish()
            reader = await link.server.accept_bulk()
            with pytest.raises(StreamEnded) as caught:
                await reader.readexactly(10)
            assert (caught.value.wanted, caught.value.found) == (10, 7)
            assert await reader.read(100) == b"0123456"
            assert await reader.read(100) == b""

    run(scenario())


def test_what_has_arrived_is_read_after_the_end_of_the_connection(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            whole, part = link.client.open_bulk(), link.client.open_bulk()
            await whole.write(bytes(1000))
            whole.finish()
            await part.write(bytes(700))
            await whole.wait_acknowledged()
            await part.wait_acknowledged()
            link.server.abandon(LinkLost("cut"))
            first, second = [await link.server.accept_bulk() for _ in range(2)]
            assert (first.is_whole, second.is_whole) == (True, False)
            assert len(await first.readexactly(1000)) == 1000
            with pytest.raises(LinkLost):
                await second.read_into(memoryview(bytearray(1000)))
            assert second.taken_bytes == 700
            with pytest.raises(LinkLost):
                await link.server.accept_bulk()

    run(scenario())


def test_cancelling_a_read_loses_nothing(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            near, far = await controls(link)
            near.writer.write_nowait(b"half")
            reading = asyncio.create_task(far.reader.readexactly(8))
            far.writer.write_nowait(b"x")
            await near.reader.read(1)
            reading.cancel()
            await asyncio.wait([reading])
            near.writer.write_nowait(b"more")
            assert await far.reader.readexactly(8) == b"halfmore"

    run(scenario())


def test_a_sender_who_gives_up(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            stream = link.client.open_bulk()
            stream.write_nowait(b"begun")
            reader = await link.server.accept_bulk()
            assert await reader.read(5) == b"begun"
            stream.reset(17)
            with pytest.raises(StreamReset) as caught:
                await reader.read(5)
            assert caught.value.error_code == 17
            with pytest.raises(StreamReset, match="this side"):
                await stream.write(b"more")

    run(scenario())


def test_a_reader_who_wants_no_more_frees_its_writer(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked(SMALL_WINDOWS, SMALL_WINDOWS) as link:
            for _ in range(8):  # more than the connection's window in all: stopping gives it back
                bulk = link.client.open_bulk()
                writing = asyncio.create_task(bulk.write(bytes(4 * MIB)))
                reader = await link.server.accept_bulk()
                reader.stop(5)
                with pytest.raises(StreamStopped) as caught:
                    await writing
                assert caught.value.error_code == 5
                with pytest.raises(StreamStopped):
                    await bulk.wait_acknowledged()
            last = link.client.open_bulk()
            last.write_nowait(b"still open")
            assert await (await link.server.accept_bulk()).read(100) == b"still open"

    run(scenario())


def test_the_end_of_the_connection_ends_every_wait(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked(SMALL_WINDOWS, SMALL_WINDOWS) as link:
            near, far = await controls(link)
            bulk = link.client.open_bulk()
            waits = [
                asyncio.create_task(coroutine)
                for coroutine in (
                    bulk.write(bytes(4 * MIB)),
                    near.reader.read(1),
                    link.client.accept_bulk(),
                    link.client.accept_control(),
                )
            ]
            far.writer.write_nowait(b"last words")
            await link.server.accept_bulk()
            far.writer.write_nowait(b"!")
            link.server.close(9, "enough")
            await link.client.wait_closed()
            outcomes = await asyncio.gather(*waits, return_exceptions=True)
            assert outcomes[1] == b"l", "what arrived before the end can be read"
            for outcome in (outcomes[0], *outcomes[2:]):
                assert isinstance(outcome, ConnectionClosed)
                assert (outcome.error_code, outcome.reason) == (9, "enough")
            with pytest.raises(ConnectionClosed):
                link.client.open_bulk()
            with pytest.raises(ConnectionClosed):
                await bulk.wait_acknowledged()

    run(scenario())


def test_writing_after_the_end_is_refused(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            stream = link.client.open_bulk()
            stream.finish()
            stream.finish()
            await stream.wait_acknowledged()
            with pytest.raises(RuntimeError):
                stream.write_nowait(b"late")

    run(scenario())
