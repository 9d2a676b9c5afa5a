"""Reads and the host's bounds: nothing grows because a client does not take it."""

from __future__ import annotations

import numpy as np

from gpuwire.errors import ProtocolError
from gpuwire.host.channel_messages import (
    DownloadCancelled,
    DownloadChunk,
    DownloadReady,
    Pull,
    RepliesWritten,
    SessionBroken,
    SessionEnded,
    Tasks,
    TasksTaken,
    UploadWanted,
)
from gpuwire.host.downloads import READ_BYTES
from gpuwire.host.envelopes import unpack_error
from gpuwire.host.reads import DOWNLOADS_AT_ONCE, REPLY_BUDGET_BYTES
from gpuwire.host.slots import SLOT_BYTES, SLOTS_EACH_WAY
from gpuwire.ir.tensors import TensorType
from host_tasks import F4, add, drop, permute, read, register, reshape, sync, values

INLINE = TensorType(F4.dtype, (4096,))
"""16 KiB, the longest that travels inside its reply."""
LARGE = TensorType(F4.dtype, (READ_BYTES // 4 + 5,))
"""Two blocks of reading, the second with 20 bytes."""


async def upload(front, session: int, tensor: int, type_: TensorType, data: bytes) -> None:
    front.tasks(session, register(tensor, None, type_, request=tensor))
    await front.message(UploadWanted)
    for start in range(0, len(data), SLOT_BYTES):
        await front.put(session, tensor, start, data[start : start + SLOT_BYTES])


async def download(front, session: int, request: int) -> bytes:
    """Pulls a whole download, a slot at a time."""
    ready = await front.message(DownloadReady)
    assert (ready.session, ready.request) == (session, request)
    parts = []
    while (left := ready.length - sum(map(len, parts))) > 0:
        front.channel.send(Pull(session, request, min(left, SLOT_BYTES)))
        chunk = await front.message(DownloadChunk)
        assert chunk.request == request
        parts.append(front.take(chunk))
    return b"".join(parts)


def test_a_large_tensor_goes_up_and_comes_down(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        data = np.random.default_rng(1).random(LARGE.size, np.float32).tobytes()
        await upload(front, session, 1, LARGE, data)
        front.tasks(session, read(1, request=2))
        reply = await front.reply(session, 2)
        assert (reply.type, reply.data) == (LARGE, None)
        assert await download(front, session, 2) == data
        await front.end(session)

    runner.run(scenario())


def test_a_large_view_comes_down_in_row_major_order(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        values_ = np.arange(8192, dtype=np.float32)
        await upload(front, session, 1, TensorType(F4.dtype, (8192,)), values_.tobytes())
        front.tasks(session, reshape(1, (64, 128), 2), permute(2, (1, 0), 3), read(3, request=4))
        await front.reply(session, 4)
        expected = values_.reshape(64, 128).T.tobytes()
        assert await download(front, session, 4) == expected
        await front.end(session)

    runner.run(scenario())


def test_nothing_is_sent_that_was_not_pulled(front, runner) -> None:
    async def scenario() -> None:
        session, other = front.open(), front.open()
        await upload(front, session, 1, LARGE, bytes(LARGE.nbytes))
        requests = range(10, 10 + 2 * SLOTS_EACH_WAY)
        front.tasks(session, *(read(1, request=request) for request in requests))
        ready = [await front.message(DownloadReady) for _ in range(DOWNLOADS_AT_ONCE)]
        front.tasks(other, register(1, [3]), add(1, 1.0, 2))
        assert values(await front.read(other, 2)) == [4]
        assert front.count(DownloadReady) == front.count(DownloadChunk) == 0
        await upload(front, other, 5, LARGE, bytes(LARGE.nbytes))
        front.tasks(other, read(5, request=6))
        assert await download(front, other, 6) == bytes(LARGE.nbytes)
        front.channel.send(DownloadCancelled(session, ready[0].request))
        assert (await front.message(DownloadReady)).request == requests[DOWNLOADS_AT_ONCE]
        await front.end(session)
        await front.end(other)

    runner.run(scenario())


def test_a_dropped_tensor_is_still_read_whole(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        data = np.random.default_rng(2).random(LARGE.size, np.float32).tobytes()
        await upload(front, session, 1, LARGE, data)
        front.tasks(session, read(1, request=2), drop(1))
        assert await download(front, session, 2) == data
        assert await front.end(session) == 0

    runner.run(scenario())


def test_replies_that_are_not_taken_are_bounded(front, runner) -> None:
    async def scenario() -> None:
        session, other = front.open(), front.open()
        front.acknowledges_replies = False
        front.tasks(session, register(1, [0] * INLINE.size, INLINE))
        count = 2 * REPLY_BUDGET_BYTES // INLINE.nbytes
        front.tasks(session, *(read(1, request=request) for request in range(1, count + 1)))
        front.tasks(session, sync(9999))
        await front.reply(session, 9999)
        front.tasks(other, register(1, [1]), sync(1))
        await front.reply(other, 1)
        assert front.unwritten[session] < REPLY_BUDGET_BYTES + 2 * INLINE.nbytes
        assert not front.has_reply(session, count)
        front.acknowledges_replies = True
        front.channel.send(RepliesWritten(session, front.unwritten.pop(session)))
        assert len((await front.reply(session, count)).data) == INLINE.nbytes
        await front.end(session)
        await front.end(other)

    runner.run(scenario())


def test_taken_tasks_are_told(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        sent = 0
        for tensor in range(1, 41):
            task = register(tensor, [0] * INLINE.size, INLINE)
            front.tasks(session, task, drop(tensor))
            sent += INLINE.nbytes
        taken = await front.message(TasksTaken)
        assert taken.session == session
        assert 256 * 1024 <= taken.size <= sent + 40 * 64
        await front.end(session)

    runner.run(scenario())


def test_a_client_that_breaks_the_protocol_ends_alone(front, runner) -> None:
    async def scenario() -> None:
        good = front.open()
        breaches = [
            lambda session: front.channel.send(Tasks(session, 1, b"\xc1garbage")),
            lambda session: front.channel.send(Tasks(session, 3, b"")),
            lambda session: front.channel.send(Tasks(session, 0, b"extra")),
            lambda session: front.tasks(session, register(1, [1]), register(1, [2])),
            lambda session: front.tasks(session, register(1, [1, 2, 3], F4)),
        ]
        for breach in breaches:
            session = front.open()
            breach(session)
            broken = await front.message(SessionBroken)
            assert broken.session == session
            assert isinstance(unpack_error(broken.payload), ProtocolError)
            front.tasks(session, register(9, [1]))  # on its way when the session broke
            assert await front.end(session) == 0
        front.tasks(good, register(1, [7]))
        assert values(await front.read(good, 1)) == [7]
        await front.end(good)
        assert front.count(SessionEnded) == 0

    runner.run(scenario())
