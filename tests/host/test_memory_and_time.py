"""Memory reports, clean-ups, allocation modes and profiling windows of one session."""

from __future__ import annotations

import pytest

from gpuwire.errors import ArgumentError, ExecutionError, UnknownTensor
from gpuwire.host.channel_messages import SessionBroken, UploadWanted
from gpuwire.ids import RequestId, StreamId
from gpuwire.wire.device_tasks import (
    AskMemory,
    CleanMemory,
    EndProfile,
    MemoryFreed,
    MemoryReport,
    MemoryReported,
    ProfileTime,
    SetAllocationMode,
    StartProfile,
)
from gpuwire.wire.messages import Done, Failed
from gpuwire.wire.records import from_record
from host_tasks import F4, add, drop, register, sync


def persistent(value: bool, *, stream: int = 0) -> SetAllocationMode:
    return SetAllocationMode(StreamId(stream), value)


async def memory(front, session: int, request: int, *, stream: int = 0) -> MemoryReport:
    front.tasks(session, AskMemory(StreamId(stream), RequestId(request)))
    reply = await front.reply(session, request)
    assert isinstance(reply, MemoryReported)
    return reply.report


def in_use(report: MemoryReport, name: str) -> int:
    return next(pool.slices for pool in report.pools if pool.name == name)


def test_a_report_counts_the_session_and_a_cleanup_gives_back(front, runner) -> None:
    async def scenario() -> None:
        session = front.open(memory=1 << 20)
        front.tasks(session, register(1, [1] * 1000), add(1, 1.0, 2))
        report = await memory(front, session, 10)
        assert (report.session_bytes, report.session_limit) == (8000, 1 << 20)
        assert report.bytes_reserved >= report.bytes_in_use >= 8000
        assert report.bytes_in_use == sum(pool.bytes_in_use for pool in report.pools)
        assert [pool.kind for pool in report.pools][:2] == ["persistent", "sliced"]
        front.tasks(session, drop(1, 2), CleanMemory(RequestId(11)))
        freed = await front.reply(session, 11)
        assert isinstance(freed, MemoryFreed)
        after = await memory(front, session, 12)
        assert after.session_bytes == 0
        assert freed.size >= report.bytes_reserved - after.bytes_reserved > 0
        await front.end(session)

    runner.run(scenario())


def test_a_mode_holds_for_one_stream_of_one_session(front, runner) -> None:
    async def scenario() -> None:
        session, other = front.open(), front.open()
        before = in_use(await memory(front, session, 10), "persistent")
        front.tasks(session, persistent(True), register(1, [1] * 8), add(1, 1.0, 2), sync(3))
        # Streams fold: the ninth is the first one's real stream.
        front.tasks(other, *(register(n, [1] * 8, stream=n) for n in range(1, 9)))
        assert in_use(await memory(front, session, 11), "persistent") == before + 2
        front.tasks(session, persistent(False), register(4, [1] * 8))
        assert in_use(await memory(front, session, 12), "persistent") == before + 2
        await front.end(session)
        await front.end(other)

    runner.run(scenario())


def window(request: int, *, stream: int = 0) -> StartProfile:
    return StartProfile(StreamId(stream), RequestId(request))


def end(request: int, *, stream: int = 0) -> EndProfile:
    return EndProfile(StreamId(stream), RequestId(request))


def test_a_window_is_opened_closed_and_timed(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1] * 4), window(10))
        assert isinstance(await front.reply(session, 10), Done)
        front.forget_reply(session, 10)
        front.tasks(session, add(1, 1.0, 2), end(10))
        time = await front.reply(session, 10)
        assert isinstance(time, ProfileTime)
        assert time.seconds >= 0
        await front.end(session)

    runner.run(scenario())


def test_a_failure_inside_spoils_the_number_and_one_before_does_not(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1] * 4), add(1, 77, 2), window(10), window(11))
        assert isinstance(await front.reply(session, 10), Done)
        assert isinstance(await front.reply(session, 11), Done)
        front.forget_reply(session, 10)
        front.forget_reply(session, 11)
        front.tasks(session, add(1, 1.0, 3), end(10), add(1, 99, 4), end(11))
        assert isinstance(await front.reply(session, 10), ProfileTime)
        spoiled = await front.reply(session, 11)
        assert isinstance(spoiled, Failed)
        error = from_record(spoiled.error)
        assert isinstance(error, ExecutionError)
        assert isinstance(error.__cause__, ExecutionError)
        assert isinstance(error.__cause__.__cause__, UnknownTensor)
        await front.end(session)

    runner.run(scenario())


def test_a_window_waits_for_what_came_before_and_for_what_is_inside(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, None, F4, request=77), window(10), sync(5, stream=1))
        await front.message(UploadWanted)
        await front.reply(session, 5)
        assert not front.has_reply(session, 10)
        await front.put(session, 77, 0, bytes(16))
        assert isinstance(await front.reply(session, 10), Done)
        front.forget_reply(session, 10)
        front.tasks(session, register(2, None, F4, request=78), end(10), sync(6, stream=1))
        await front.message(UploadWanted)
        await front.reply(session, 6)
        assert not front.has_reply(session, 10)
        await front.put(session, 78, 0, bytes(16))
        assert isinstance(await front.reply(session, 10), ProfileTime)
        await front.end(session)

    runner.run(scenario())


@pytest.mark.parametrize("stream", [0, 1])
def test_a_window_that_is_not_open_cannot_be_closed(front, runner, stream) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, end(10, stream=stream))
        reply = await front.reply(session, 10)
        assert isinstance(reply, Failed)
        assert isinstance(from_record(reply.error), ArgumentError)
        await front.end(session)

    runner.run(scenario())


def test_sessions_end_with_windows_open_and_one_request_names_one(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, window(10), window(10))
        assert (await front.message(SessionBroken)).session == session
        session = front.open()
        front.tasks(session, window(10), register(1, [1]), window(11))
        await front.reply(session, 10)
        await front.end(session)

    runner.run(scenario())
