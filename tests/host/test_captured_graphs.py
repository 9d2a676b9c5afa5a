"""Captured graphs in a device host: what they work on, their order, and what spoils them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest

from gpuwire.errors import (
    ArgumentError,
    CaptureError,
    ExecutionError,
    KernelCompileError,
    LaunchError,
    UnknownKernel,
    UnknownTensor,
)
from gpuwire.host.channel_messages import SessionBroken, UploadWanted
from gpuwire.ids import CaptureId, KernelId, LocationId, RequestId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.device_tasks import BeginCapture, CaptureLaunch, EndCapture, ReplayCapture
from gpuwire.wire.messages import Done, Failed, Task
from gpuwire.wire.records import from_record
from host.test_kernels import BROKEN, K, kernel
from host_tasks import F4, add, drop, register, sync, values

G = 600


def captured(
    slots: Sequence[tuple[int, ...]] = ((0, 1),),
    types: tuple[TensorType, ...] = (F4, F4),
    *,
    number: int = K,
    graph: int = G,
    request: int = 9,
) -> tuple[Task, ...]:
    """The tasks of a capture: y += x for each pair of slots."""
    one = struct.pack("<f", 1.0)
    launches = [
        CaptureLaunch(CaptureId(graph), KernelId(number), (1, 1, 1), pair, one, LocationId(place))
        for place, pair in enumerate(slots, 1)
    ]
    end = EndCapture(StreamId(0), RequestId(request), CaptureId(graph), types)
    return (BeginCapture(CaptureId(graph)), *launches, end)


def replay(
    inputs: dict[int, int], outputs: dict[int, int], *, graph: int = G, stream: int = 0
) -> ReplayCapture:
    return ReplayCapture(
        StreamId(stream),
        CaptureId(graph),
        tuple((slot, TensorId(tensor)) for slot, tensor in inputs.items()),
        tuple((slot, TensorId(tensor)) for slot, tensor in outputs.items()),
        LocationId(7),
    )


def test_replays_go_on_from_what_lies_there_and_take_in_what_is_new(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, kernel(), *captured(((0, 1), (1, 0))))
        assert isinstance(await front.reply(session, 9), Done)
        front.tasks(session, register(1, [1] * 4), register(2, [10] * 4))
        front.tasks(session, replay({0: 1, 1: 2}, {0: 3, 1: 4}))
        assert values(await front.read(session, 4)) == [11] * 4
        assert values(await front.read(session, 3)) == [12] * 4
        front.tasks(session, replay({}, {0: 5, 1: 6}), replay({0: 1}, {0: 7, 1: 8}))
        assert values(await front.read(session, 6)) == [23] * 4
        assert values(await front.read(session, 5)) == [35] * 4
        assert values(await front.read(session, 8)) == [24] * 4
        assert values(await front.read(session, 4)) == [11] * 4, "what was taken out stays"
        assert values(await front.read(session, 2)) == [10] * 4
        front.tasks(session, drop(G, *range(1, 9)), sync(11))
        await front.reply(session, 11)
        assert await front.end(session) == 0

    runner.run(scenario())


def test_replays_keep_their_order_while_one_waits_for_an_upload(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, kernel(), *captured())
        front.tasks(session, register(1, None, F4, request=77), register(2, [0] * 4))
        front.tasks(session, replay({0: 1, 1: 2}, {1: 3}), replay({}, {1: 4}), drop(G), sync(5))
        await front.message(UploadWanted)
        await front.put(session, 77, 0, np.array([1, 2, 3, 4], np.float32).tobytes())
        assert isinstance(await front.reply(session, 5), Done)
        assert values(await front.read(session, 3)) == [1, 2, 3, 4]
        assert values(await front.read(session, 4)) == [2, 4, 6, 8]
        await front.end(session)

    runner.run(scenario())


def test_a_replay_runs_on_any_stream_of_its_session(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, kernel(), *captured(), register(1, [1] * 4), register(2, [0] * 4))
        front.tasks(session, replay({0: 1, 1: 2}, {1: 3}, stream=1), replay({}, {1: 4}, stream=2))
        assert values(await front.read(session, 4)) == [2] * 4
        await front.end(session)

    runner.run(scenario())


def test_a_replay_that_failed_spoils_what_comes_after_until_it_is_brought_in_anew(
    front, runner
) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, kernel(), *captured(), register(1, [1] * 4), register(2, [5] * 4))
        front.tasks(session, replay({0: 1, 1: 2}, {1: 3}), add(1, 77, 4))
        front.tasks(session, replay({0: 4}, {1: 5}), replay({0: 1}, {1: 6}))
        for tensor in (5, 6):
            error = await front.failure(session, tensor)
            assert error.operation == "add"
            assert isinstance(error.__cause__, UnknownTensor)
        front.tasks(session, replay({1: 2}, {1: 7}))
        assert values(await front.read(session, 7)) == [6] * 4
        await front.end(session)

    runner.run(scenario())


EMPTY = TensorType(dt.float32, (0,))


@pytest.mark.parametrize(
    ("tasks", "cause", "location"),
    [
        ((kernel(), *captured(number=8)), UnknownKernel, 1),
        ((kernel(BROKEN), *captured(((0, 1), (0, 1)))), KernelCompileError, 1),
        ((kernel(), *captured(((0, 1), (0,)))), LaunchError, 2),
        ((kernel(), *captured(((0, 2),))), ArgumentError, 1),
        ((kernel(), *captured(((1, 1),))), LaunchError, 1),
        ((kernel(), *captured(types=(F4, EMPTY))), LaunchError, 1),
        ((kernel(words=3), *captured(((0, 1),))), LaunchError, 1),
    ],
)
def test_no_graph_with_a_hole_is_made(front, runner, tasks, cause, location) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, *tasks, register(1, [1] * 4), replay({0: 1, 1: 1}, {1: 3}))
        reply = await front.reply(session, 9)
        assert isinstance(reply, Failed)
        assert reply.location == location
        error = from_record(reply.error)
        assert isinstance(error, CaptureError)
        assert error.state == "doomed"
        assert isinstance(error.__cause__, cause)
        unknown = await front.failure(session, 3)
        assert isinstance(unknown, ExecutionError)
        assert isinstance(unknown.__cause__, CaptureError)
        front.tasks(session, kernel(number=11), *captured(number=11, graph=601, request=10))
        assert isinstance(await front.reply(session, 10), Done), "the stream captures again"
        await front.end(session)

    runner.run(scenario())


def test_an_end_without_a_begin_and_a_graph_that_is_gone(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, kernel(), *captured()[1:])
        reply = await front.reply(session, 9)
        assert isinstance(reply, Failed)
        assert isinstance(from_record(reply.error), CaptureError)
        front.tasks(session, *captured(request=10), register(1, [1] * 4), drop(G))
        assert isinstance(await front.reply(session, 10), Done)
        front.tasks(session, replay({0: 1, 1: 1}, {1: 3}), replay({}, {}), sync(11), sync(12))
        assert isinstance(await front.failure(session, 3), ExecutionError)
        # Both wait for the device at once, and either may be answered first.
        replies = [await front.reply(session, request) for request in (11, 12)]
        assert {type(reply) for reply in replies} == {Done, Failed}, "each failure is told once"
        await front.end(session)

    runner.run(scenario())


def test_what_does_not_fit_the_graph_fails_the_replay(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, kernel(), *captured(), register(1, [1] * 4), register(2, [1] * 5))
        front.tasks(session, replay({0: 2, 1: 1}, {1: 3}), replay({9: 1}, {1: 4}))
        front.tasks(session, replay({0: 77}, {1: 5}), replay({0: 1, 1: 1}, {9: 6}))
        for tensor, cause in ((3, ArgumentError), (4, ArgumentError), (5, UnknownTensor)):
            assert isinstance((await front.failure(session, tensor)).__cause__, cause)
        assert isinstance((await front.failure(session, 6)).__cause__, ArgumentError)
        front.tasks(session, replay({0: 1, 1: 1}, {1: 7}))
        assert values(await front.read(session, 7)) == [2] * 4
        await front.end(session)

    runner.run(scenario())


def test_one_id_for_two_graphs_ends_the_session(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, kernel(), *captured(), BeginCapture(CaptureId(G)))
        assert (await front.message(SessionBroken)).session == session

    runner.run(scenario())


def test_a_session_that_ends_leaves_nothing(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, kernel(), *captured(), register(1, [1] * 4))
        front.tasks(session, replay({0: 1, 1: 1}, {1: 3}), *captured(graph=601, request=10)[:2])
        await front.read(session, 3)
        assert await front.end(session) == 4 * 16, "two pieces of the graph's own and two tensors"

    runner.run(scenario())
