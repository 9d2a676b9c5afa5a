"""A session's work on a real device: order, waiting, failures, limits."""

from __future__ import annotations

import asyncio

import numpy as np

from gpuwire.errors import (
    ExecutionError,
    LimitBreached,
    OutOfMemory,
    SessionError,
    ShapeError,
    UnknownTensor,
    UploadTooLarge,
)
from gpuwire.host import dataflow, tensors
from gpuwire.host.channel_messages import SessionBroken, UploadBroken, UploadRefused, UploadWanted
from gpuwire.host.envelopes import unpack_error
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import CastAttributes, SliceAttributes
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.messages import Done, Failed
from gpuwire.wire.records import from_record
from host_tasks import F4, add, drop, operation, permute, read, register, reshape, sync, values

LARGE = TensorType(F4.dtype, (8192,))
"""32 KiB: travels on a bulk stream."""


def test_an_operation_makes_a_tensor(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1, 2, 3, 4]), add(1, 10.0, 2), add(2, 2, 3))
        assert values(await front.read(session, 3)) == [22, 24, 26, 28]
        assert values(await front.read(session, 1)) == [1, 2, 3, 4]
        await front.end(session)

    runner.run(scenario())


def test_work_waits_for_just_the_upload_it_needs(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        data = np.arange(8192, dtype=np.float32)
        front.tasks(session, register(1, None, LARGE, request=1), add(1, 1.0, 2), drop(1))
        wanted = await front.message(UploadWanted)
        assert (wanted.session, wanted.request, wanted.length) == (session, 1, 32768)
        front.tasks(session, register(3, [5]), add(3, 1.0, 4), read(2, request=50))
        assert values(await front.read(session, 4)) == [6]
        await front.put(session, 1, 0, data[:4096].tobytes())
        assert not front.has_reply(session, 50)
        await front.put(session, 1, 16384, data[4096:].tobytes())
        assert (await front.reply(session, 50)).data is None
        corner = SliceAttributes((0, 0), (1, 1), (2, 2))
        front.tasks(session, reshape(2, (2, 4096), 5), operation("slice", (5,), 6, corner))
        assert values(await front.read(session, 6)) == [1, 2, 4097, 4098]
        await front.end(session)

    runner.run(scenario())


def test_a_long_chain_behind_an_upload_runs_when_it_comes(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, None, F4, request=1))
        await front.message(UploadWanted)
        length = 2000
        front.tasks(session, *(add(i, 1.0, i + 1) for i in range(1, length)))
        front.tasks(session, *(drop(i) for i in range(2, length)))
        await front.put(session, 1, 0, np.zeros(4, np.float32).tobytes())
        assert values(await front.read(session, length)) == [length - 1] * 4
        await front.end(session)

    runner.run(scenario())


def test_a_sync_waits_for_the_uploads_of_its_stream_only(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, None, F4, request=1, stream=1))
        await front.message(UploadWanted)
        front.tasks(session, sync(10, stream=1), sync(11, stream=0), sync(12, stream=None))
        assert isinstance(await front.reply(session, 11), Done)
        front.tasks(session, register(2, [1], stream=1), sync(13, stream=0))
        assert isinstance(await front.reply(session, 13), Done)
        assert not front.has_reply(session, 10)
        assert not front.has_reply(session, 12)
        await front.put(session, 1, 0, bytes(16))
        assert isinstance(await front.reply(session, 10), Done)
        assert isinstance(await front.reply(session, 12), Done)
        await front.end(session)

    runner.run(scenario())


def test_the_first_cause_goes_downstream_and_nowhere_else(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(
            session,
            register(1, [1, 2, 3, 4]),
            register(2, [1, 2, 3]),
            add(1, 1.0, 3),
            add(1, 2, 4, location=77),
            add(4, 1.0, 5),
            add(5, 3, 6),
            add(3, 1.0, 7),
        )
        for tensor in (4, 5, 6):
            error = await front.failure(session, tensor)
            assert isinstance(error, ExecutionError)
            assert (error.operation, error.place) == ("add", 2)
            assert isinstance(error.__cause__, ShapeError)
        front.tasks(session, read(6, request=20))
        assert (await front.reply(session, 20)).location == 77
        assert values(await front.read(session, 7)) == [3, 4, 5, 6]
        await front.end(session)

    runner.run(scenario())


def test_a_failed_upload_fails_what_waits_for_it(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, None, F4, request=1), add(1, 1.0, 2), sync(9))
        await front.message(UploadWanted)
        front.channel.send(UploadBroken(session, 1))
        assert isinstance(await front.reply(session, 9), Failed)
        assert isinstance(await front.failure(session, 1), SessionError)
        assert "after 0 of 16 bytes" in str(await front.failure(session, 2))
        await front.end(session)

    runner.run(scenario())


def test_an_unknown_tensor_taints_its_reader(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1]), add(1, 99, 2))
        error = await front.failure(session, 2)
        assert isinstance(error.__cause__, UnknownTensor)
        assert error.__cause__.tensor == 99
        assert isinstance(await front.failure(session, 99), UnknownTensor)
        await front.end(session)

    runner.run(scenario())


def test_a_sync_reports_each_failure_once_and_on_its_stream(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1, 2]), register(2, [1, 2, 3]))
        front.tasks(session, add(1, 2, 3, stream=4, location=5), add(2, 1, 4, stream=4, location=6))
        front.tasks(session, sync(10, stream=0), sync(11, stream=4), sync(12, stream=None))
        front.tasks(session, sync(13, stream=4))
        replies = [await front.reply(session, request) for request in (10, 11, 12, 13)]
        assert [type(reply) for reply in replies] == [Done, Failed, Failed, Done]
        assert [reply.location for reply in replies[1:3]] == [5, 6]
        assert from_record(replies[1].error).operation == "add"
        await front.end(session)

    runner.run(scenario())


def test_a_read_that_told_a_failure_leaves_the_sync_nothing_to_tell(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1, 2]), register(2, [1, 2, 3]), add(1, 2, 3))
        await front.failure(session, 3)
        front.tasks(session, sync(10))
        assert isinstance(await front.reply(session, 10), Done)
        await front.end(session)

    runner.run(scenario())


def test_an_upload_above_the_limit_is_refused_before_anything_is_allocated(front, runner) -> None:
    async def scenario() -> None:
        session = front.open(upload=1000)
        front.tasks(session, register(1, None, LARGE, request=1), register(2, [1] * 250))
        refused = await front.message(UploadRefused)
        assert (refused.session, refused.request) == (session, 1)
        error = await front.failure(session, 1)
        assert isinstance(error, UploadTooLarge)
        assert (error.size, error.limit) == (32768, 1000)
        assert values(await front.read(session, 2)) == [1] * 250
        assert await front.end(session) == 1000

    runner.run(scenario())


def test_a_session_keeps_to_its_memory(front, runner) -> None:
    async def scenario() -> None:
        session = front.open(memory=3000)
        front.tasks(session, register(1, [1] * 250), add(1, 1.0, 2), add(2, 1.0, 3), add(3, 1.0, 4))
        error = await front.failure(session, 4)
        assert isinstance(error.__cause__, OutOfMemory)
        assert (error.__cause__.in_use, error.__cause__.limit) == (3000, 3000)
        front.tasks(session, drop(1), add(3, 1.0, 5))
        assert values(await front.read(session, 5)) == [4] * 250
        front.tasks(session, register(6, None, LARGE, request=6))
        assert (await front.message(UploadRefused)).request == 6
        assert isinstance(await front.failure(session, 6), OutOfMemory)
        await front.end(session)

    runner.run(scenario())


def test_a_view_costs_no_memory_and_keeps_what_it_shows(front, runner) -> None:
    async def scenario() -> None:
        session = front.open(memory=1000)
        front.tasks(session, register(1, list(range(250))), reshape(1, (2, 125), 2))
        front.tasks(
            session, permute(2, (1, 0), 3), permute(3, (1, 0), 4), drop(1), drop(2), drop(3)
        )
        assert values(await front.read(session, 4)) == list(range(250))
        front.tasks(session, register(5, [1]))
        assert isinstance(await front.failure(session, 5), OutOfMemory)
        front.tasks(session, drop(4), register(6, [1]))
        assert values(await front.read(session, 6)) == [1]
        await front.end(session)

    runner.run(scenario())


def test_sessions_are_apart_and_an_ended_one_leaves_nothing(front, runner) -> None:
    async def scenario() -> None:
        one, other = front.open(), front.open()
        front.tasks(one, register(1, [1]), register(2, None, LARGE, request=2))
        front.tasks(other, register(1, [2]))
        await front.message(UploadWanted)
        assert values(await front.read(one, 1)) == [1]
        assert values(await front.read(other, 1)) == [2]
        assert isinstance(await front.failure(other, 2), UnknownTensor)
        assert await front.end(one) == 32768 + 4
        await front.put(one, 2, 0, bytes(16))  # a chunk on its way when the session ended
        assert values(await front.read(other, 1)) == [2]
        assert await front.end(other) == 4

    runner.run(scenario())


def test_zero_size_tensors_need_no_device_memory(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        empty = TensorType(F4.dtype, (0, 3))
        front.tasks(session, register(1, [], empty), add(1, 1.0, 2))
        assert await front.read(session, 2) == b""
        await front.end(session)

    runner.run(scenario())


def test_concurrent_work_of_many_sessions(front, runner) -> None:
    async def one(number: int) -> list[float]:
        session = front.open()
        front.tasks(session, register(1, [number] * 4))
        for i in range(1, 30):
            front.tasks(session, add(i, 1.0, i + 1), drop(i))
        return values(await front.read(session, 30))

    async def scenario() -> None:
        results = await asyncio.gather(*(one(number) for number in range(8)))
        assert results == [[number + 29.0] * 4 for number in range(8)]

    runner.run(scenario())


def test_a_step_on_the_host_holds_back_only_what_reads_it(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        complex_ = CastAttributes(dt.complex64)
        front.tasks(
            session,
            register(1, [0, 1, 2, 3]),
            operation("cast", (1,), 2, complex_),
            operation("sin", (2,), 3),  # of complex numbers: NumPy does it on the host
            operation("real", (3,), 4),
            add(4, 1.0, 5),
            sync(20),
            drop(2, 3, 4),
        )
        result = np.frombuffer(await front.read(session, 5), np.float32)
        np.testing.assert_allclose(result, np.sin([0, 1, 2, 3]) + 1, rtol=1e-6)
        assert isinstance(await front.reply(session, 20), Done)
        assert await front.end(session) == 32

    runner.run(scenario())


def test_a_session_has_so_many_streams_and_tensors_and_no_more(front, runner, monkeypatch) -> None:
    monkeypatch.setattr(dataflow, "MAX_STREAMS", 3)
    monkeypatch.setattr(tensors, "MAX_TENSORS", 3)

    async def scenario() -> None:
        for stream in (1, 0):
            session = front.open()
            tasks = [register(i, [i], stream=i * stream) for i in range(1, 5)]
            front.tasks(session, *tasks[:3], sync(9, stream=None))
            assert isinstance(await front.reply(session, 9), Done)
            front.tasks(session, tasks[3])
            broken = unpack_error((await front.message(SessionBroken)).payload)
            assert isinstance(broken, LimitBreached)
            assert broken.limit == 3
            await front.end(session)

    runner.run(scenario())
