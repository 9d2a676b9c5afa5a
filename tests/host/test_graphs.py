"""Op-graphs on a real device: registered once, run by id, given up and told again, misused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgpack
import numpy as np
import pytest

from gpuwire.errors import (
    ExecutionError,
    GpuwireError,
    GraphBindingError,
    LimitBreached,
    MalformedMessage,
    OutOfMemory,
    ShapeError,
    UnknownGraph,
    UnknownTensor,
)
from gpuwire.host.channel_messages import SessionBroken, UploadBroken, UploadWanted
from gpuwire.ids import GraphId, LocationId, RequestId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, Attributes, ShapeAttributes, SliceAttributes
from gpuwire.ir.graphs import InputRef, NodeRef, NodeSource, ScalarRef, ValueRef
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.wire.bindings import Bindings, LastRun, run_of
from gpuwire.wire.codec import encode_definition
from gpuwire.wire.definitions import GraphDefinition
from gpuwire.wire.device_tasks import DescribeGraph
from gpuwire.wire.messages import DefineGraph, Done, Failed, GraphMissing, RunGraph
from gpuwire.wire.records import from_record
from host.conftest import MAX_GRAPHS
from host_tasks import F4, add, drop, read, register, sync, values


def node(name: str, *operands: ValueRef, attributes: Attributes = NO_ATTRIBUTES) -> NodeSource:
    return NodeSource(OPERATIONS[name], operands, attributes)


def definition(
    nodes: Sequence[NodeSource], outputs: Sequence[int], inputs: Sequence[TensorType] = (F4,)
) -> bytes:
    """Op k was recorded at location 70 + k."""
    locations = tuple(LocationId(70 + number) for number in range(len(nodes)))
    return encode_definition(
        GraphDefinition(tuple(inputs), tuple(nodes), tuple(outputs), locations)
    )


SCALE_AND_ADD = definition(
    [
        node("multiply", InputRef(0), ScalarRef(0, dt.float32)),
        node("add", NodeRef(0), ScalarRef(1, dt.float32)),
        node("add", NodeRef(1), InputRef(0)),
    ],
    (1, 2),
)
"""s * x + t, and that plus x."""


class Client:
    """What a client keeps of its graphs."""

    def __init__(self) -> None:
        self.last: dict[int, LastRun] = {}

    def run(
        self,
        graph: int,
        base: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        scalars: Sequence[float] = (),
        *,
        dropped: Sequence[int] = (),
        definition: bytes | None = None,
        stream: int = 0,
    ) -> RunGraph:
        bindings = Bindings(
            TensorId(base),
            tuple(map(TensorId, inputs)),
            tuple(map(TensorId, outputs)),
            tuple(map(TensorId, dropped)),
            tuple(Scalar(value, dt.float32) for value in scalars),
        )
        last = self.last.get(graph)
        task, self.last[graph] = run_of(
            StreamId(stream), GraphId(graph), bindings, last, definition
        )
        return task


def test_a_graph_registered_once_runs_by_its_id_over_other_tensors(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        front.tasks(session, register(1, [1, 2, 3, 4]), register(2, [5, 6, 7, 8]))
        front.tasks(
            session,
            client.run(1, 10, [1], [11, 12], [2.0, 1.0], definition=SCALE_AND_ADD),
            client.run(1, 20, [2], [21, 22], [2.0, 1.0]),
            client.run(1, 30, [11], [31, 32], [2.0, 0.5], dropped=[11]),
        )
        assert values(await front.read(session, 12)) == [4, 7, 10, 13]
        assert values(await front.read(session, 22)) == [16, 19, 22, 25]
        assert values(await front.read(session, 31)) == [6.5, 10.5, 14.5, 18.5]
        assert isinstance(await front.failure(session, 11), UnknownTensor)
        await front.end(session)

    runner.run(scenario())


def test_a_graph_waits_for_the_upload_that_it_takes(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        front.tasks(
            session,
            register(1, None, F4, request=1),
            client.run(1, 10, [1], [11, 12], [2.0, 1.0], dropped=[1], definition=SCALE_AND_ADD),
            sync(60),
        )
        await front.message(UploadWanted)
        assert not front.has_reply(session, 60)
        await front.put(session, 1, 0, np.ones(4, np.float32).tobytes())
        assert values(await front.read(session, 12)) == [4] * 4
        assert isinstance(await front.reply(session, 60), Done)
        await front.end(session)

    runner.run(scenario())


def test_what_does_not_depend_on_a_failed_input_is_still_made(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        two = definition(
            [
                node("negative", InputRef(0)),
                node("negative", InputRef(1)),
                node("add", NodeRef(1), NodeRef(1)),
            ],
            (0, 2),
            (F4, F4),
        )
        front.tasks(session, register(1, None, F4, request=1), register(2, [1, 2, 3, 4]))
        await front.message(UploadWanted)
        front.tasks(session, client.run(1, 10, [1, 2], [10, 12], definition=two))
        front.channel.send(UploadBroken(session, 1))
        assert values(await front.read(session, 12)) == [-2, -4, -6, -8]
        assert "after 0 of 16 bytes" in str(await front.failure(session, 10))
        await front.end(session)

    runner.run(scenario())


def test_a_failure_inside_names_the_op_and_its_line_and_spares_the_others(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(memory=4096), Client()
        growing = definition(
            [
                node("negative", InputRef(0)),
                node("broadcast_to", NodeRef(0), attributes=ShapeAttributes((1024, 4))),
                node("exp", NodeRef(1)),
                node("add", NodeRef(2), NodeRef(2)),
            ],
            (0, 3),
        )
        front.tasks(session, register(1, [1, 2, 3, 4]), add(1, 1.0, 2), add(1, 1.0, 3))
        for turn in range(3):
            base = 10 * (turn + 1)
            told = growing if turn == 0 else None
            task = client.run(1, base, [1], [base, base + 3], definition=told)
            front.tasks(session, task, read(base + 3, request=60 + turn))
            failed = await front.reply(session, 60 + turn)
            assert isinstance(failed, Failed)
            assert failed.location == 72
            error = await front.failure(session, base + 3)
            assert isinstance(error, ExecutionError)
            assert (error.operation, error.place) == ("exp", 2 + 4 * turn + 3)
            assert isinstance(error.__cause__, OutOfMemory)
            assert values(await front.read(session, base)) == [-1, -2, -3, -4]
        await front.end(session)

    runner.run(scenario())


def test_views_of_a_graph_keep_and_count_the_memory_that_they_look_at(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        corner = SliceAttributes((1,), (1,), (2,))
        seen = definition(
            [
                node("negative", InputRef(0)),
                node("slice", NodeRef(0), attributes=corner),
                node("slice", InputRef(0), attributes=corner),
            ],
            (1, 2),
        )
        front.tasks(session, register(1, [1, 2, 3, 4]))
        front.tasks(session, client.run(1, 10, [1], [11, 12], dropped=[1], definition=seen))
        assert values(await front.read(session, 11)) == [-2, -3]
        assert values(await front.read(session, 12)) == [2, 3]
        assert await front.end(session) == 32
        front.forget()

    runner.run(scenario())


# --- The table -------------------------------------------------------------------------------


def test_a_graph_given_up_is_asked_for_once_and_its_runs_wait(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        front.tasks(session, register(1, [1, 2, 3, 4]))
        for graph in range(1, MAX_GRAPHS + 2):
            base = 100 * graph
            outputs, scalars = [base + 1, base + 2], [2.0, 1.0]
            front.tasks(
                session,
                client.run(graph, base, [1], outputs, scalars, definition=SCALE_AND_ADD),
            )
        front.tasks(
            session,
            client.run(1, 1000, [1], [1001, 1002], [2.0, 1.0]),
            client.run(1, 2000, [1001], [2001, 2002], [2.0, 1.0], dropped=[1, 1001]),
            add(2001, 1.0, 3000),
            read(3000, request=60),
            sync(61),
            client.run(MAX_GRAPHS + 1, 4000, [2001], [4001, 4002], [1.0, 0.0]),
        )
        assert (await front.message(GraphMissing)).graph == 1
        front.tasks(session, sync(62, stream=9))
        assert isinstance(await front.reply(session, 62), Done)
        assert not front.has_reply(session, 60)
        assert not front.has_reply(session, 61)
        assert front.count(GraphMissing) == 0
        front.tasks(session, DefineGraph(GraphId(1), SCALE_AND_ADD))
        assert values((await front.reply(session, 60)).data) == [8, 12, 16, 20]
        assert isinstance(await front.reply(session, 61), Done)
        assert values(await front.read(session, 4001)) == [7, 11, 15, 19]
        await front.end(session)

    runner.run(scenario())


def test_the_graph_not_run_for_longest_is_given_up(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        front.tasks(session, register(1, [1, 2, 3, 4]))

        def run(graph: int, base: int, told: bytes | None = None) -> RunGraph:
            return client.run(graph, base, [1], [base, base + 1], [2.0, 1.0], definition=told)

        for graph in range(1, MAX_GRAPHS + 1):
            front.tasks(session, run(graph, 100 * graph, SCALE_AND_ADD))
        front.tasks(session, run(1, 1000), run(MAX_GRAPHS + 1, 2000, SCALE_AND_ADD))
        front.tasks(session, run(1, 3000), run(2, 4000))
        assert (await front.message(GraphMissing)).graph == 2
        await front.end(session)

    runner.run(scenario())


@pytest.mark.parametrize(
    ("again", "wanted"),
    [
        (None, UnknownGraph),
        (definition([node("negative", InputRef(0))], (0,)), GraphBindingError),
    ],
)
def test_a_graph_that_does_not_come_back_fails_its_runs(front, runner, again, wanted) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        front.tasks(session, register(1, [1, 2, 3, 4]))
        for graph in range(1, MAX_GRAPHS + 2):
            outputs = [100 * graph + 1, 100 * graph + 2]
            told = SCALE_AND_ADD
            run = client.run(graph, 100 * graph, [1], outputs, [2.0, 1.0], definition=told)
            front.tasks(session, run)
        front.tasks(session, client.run(1, 1000, [1], [1001, 1002], [2.0, 1.0]))
        await front.message(GraphMissing)
        front.tasks(session, DefineGraph(GraphId(1), again))
        assert isinstance(await front.failure(session, 1001), wanted)
        assert values(await front.read(session, 401)) == [3, 5, 7, 9]
        await front.end(session)

    runner.run(scenario())


def test_sessions_do_not_run_each_others_graphs(front, runner) -> None:
    async def scenario() -> None:
        one, other = front.open(), front.open()
        for session in (one, other):
            front.tasks(session, register(1, [1, 2, 3, 4]))
        double = definition([node("add", InputRef(0), InputRef(0))], (0,))
        square = definition([node("multiply", InputRef(0), InputRef(0))], (0,))
        mine, theirs = Client(), Client()
        front.tasks(one, mine.run(1, 10, [1], [10], definition=double))
        front.tasks(other, theirs.run(1, 10, [1], [10], definition=square))
        front.tasks(one, mine.run(1, 20, [1], [20]))
        front.tasks(other, theirs.run(1, 20, [1], [20]))
        assert values(await front.read(one, 20)) == [2, 4, 6, 8]
        assert values(await front.read(other, 20)) == [1, 4, 9, 16]
        await front.end(one)
        await front.end(other)

    runner.run(scenario())


# --- Bad input -------------------------------------------------------------------------------


def test_a_graph_never_registered_fails_its_outputs_and_the_session_goes_on(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1, 2, 3, 4]))
        front.tasks(session, Client().run(9, 10, [1], [10]), RunGraph(StreamId(0), GraphId(8)))
        error = await front.failure(session, 10)
        assert isinstance(error, UnknownGraph)
        assert error.graph == 9
        front.tasks(session, sync(60), add(1, 1.0, 2))
        failed = await front.reply(session, 60)
        assert isinstance(failed, Failed)
        assert "graph 8 was never registered" in failed.error.message
        assert values(await front.read(session, 2)) == [2, 3, 4, 5]
        await front.end(session)

    runner.run(scenario())


@pytest.mark.parametrize(
    ("inputs", "outputs", "scalars", "wanted"),
    [
        ([1, 1], [21, 22], [2.0, 1.0], GraphBindingError),
        ([], [21, 22], [2.0, 1.0], GraphBindingError),
        ([1], [21], [2.0, 1.0], GraphBindingError),
        ([1], [21, 22, 23], [2.0, 1.0], GraphBindingError),
        ([2], [21, 22], [2.0, 1.0], GraphBindingError),
        ([3], [21, 22], [2.0, 1.0], UnknownTensor),
    ],
)
def test_bindings_that_do_not_fit_fail_the_outputs(
    front, runner, inputs, outputs, scalars, wanted
) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        front.tasks(session, register(1, [1, 2, 3, 4]), register(2, [1, 2]), register(3, [1]))
        front.tasks(session, drop(3))
        told = client.run(1, 10, [1], [11, 12], [2.0, 1.0], definition=SCALE_AND_ADD)
        front.tasks(session, told, client.run(1, 20, inputs, outputs, scalars))
        for output in outputs:
            assert isinstance(await front.failure(session, output), wanted)
        front.tasks(session, client.run(1, 30, [1], [31, 32], [2.0, 1.0]))
        assert values(await front.read(session, 31)) == [3, 5, 7, 9]
        await front.end(session)

    runner.run(scenario())


ONE = Scalar(1.0, dt.float32)


def test_scalars_of_another_type_do_not_fit(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        front.tasks(session, register(1, [1, 2, 3, 4]))
        told = client.run(1, 10, [1], [11, 12], [2.0, 1.0], definition=SCALE_AND_ADD)
        again = client.run(1, 20, [1], [21, 22], [2.0, 1.0])
        same = client.run(1, 30, [1], [31, 32], [2.0, 1.0])
        assert not same.scalars
        front.tasks(session, told, replace(again, scalars=((1, Scalar(1, dt.int32)),)), same)
        for output in (21, 31):
            assert isinstance(await front.failure(session, output), GraphBindingError)
        back = replace(client.run(1, 40, [1], [41, 42], [2.0, 1.0]), scalars=((1, ONE),))
        front.tasks(session, back)
        assert values(await front.read(session, 41)) == [3, 5, 7, 9]
        await front.end(session)

    runner.run(scenario())


def test_a_graph_whose_ops_do_not_fit_together_fails_by_their_rule(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        bad = definition([node("reshape", InputRef(0), attributes=ShapeAttributes((3, 3)))], (0,))
        front.tasks(session, register(1, [1, 2, 3, 4]))
        front.tasks(session, client.run(1, 10, [1], [10], definition=bad), add(1, 1.0, 2))
        assert isinstance(await front.failure(session, 10), ShapeError)
        assert values(await front.read(session, 2)) == [2, 3, 4, 5]
        await front.end(session)

    runner.run(scenario())


def damaged(source: random.Random, whole: bytes) -> bytes:
    """A definition in which something is otherwise than it should be, at times nothing: a byte, or
    a whole field, which is how an operand comes to name its own node, or one behind it."""
    if source.random() < 0.3:
        place = source.randrange(len(whole))
        byte = bytes((source.randrange(256),))
        return whole[:place] + source.choice((byte, b"", byte * 3)) + whole[place + 1 :]
    unpacker = msgpack.Unpacker(use_list=True)
    unpacker.feed(whole)
    rows = list(unpacker)
    for _ in range(source.choice((1, 1, 2))):
        row = source.choice(rows)
        while isinstance(row[place := source.randrange(len(row))], list) and row[place]:
            row = row[place]
        row[place] = source.choice(
            (0, 1, 4, 8, -4, 9, 255, 4096, 1 << 20, 1 << 40, None, [], [1, 2], b"", b"\x02", "x")
        )
    if source.random() < 0.1:
        rows.insert(source.randrange(len(rows)), source.choice(rows))
    return b"".join(map(msgpack.packb, rows))


WIDE = definition(
    [
        node("negative", InputRef(0)),
        node("slice", NodeRef(0), attributes=SliceAttributes((1,), (1,), (2,))),
        node("broadcast_to", NodeRef(1), attributes=ShapeAttributes((3, 2))),
        node("multiply", NodeRef(2), NodeRef(2)),
        node("reshape", NodeRef(3), attributes=ShapeAttributes((6,))),
    ],
    (3, 4),
)


def test_damaged_graphs_fail_their_outputs_with_typed_errors_and_nothing_is_half_run(
    front, runner
) -> None:
    async def scenario() -> None:
        source = random.Random(1)
        session = front.open(memory=4096)
        front.tasks(session, register(1, [1, 2, 3, 4]))
        met: Counter[str] = Counter()
        for number in range(1, 301):
            base = 100 * number
            whole, scalars = source.choice(((SCALE_AND_ADD, [2.0, 1.0]), (WIDE, [])))
            told = damaged(source, whole)
            run = Client().run(number, base, [1], [base, base + 1], scalars, definition=told)
            front.tasks(session, run)
            found = [await outcome(front, session, base + output) for output in (0, 1)]
            assert found[0] == found[1] or "Execution" in "".join(found)
            met[found[0]] += 1
            front.tasks(session, drop(base, base + 1))
        # It must reach all layers.
        assert met["MalformedMessage"] > 60
        assert met["LimitBreached"] > 3
        assert met["GraphBindingError"] > 5
        assert met["ShapeError"] + met["DTypeError"] > 3
        assert met["values"] > 20
        assert values(await front.read(session, 1)) == [1, 2, 3, 4]
        assert await front.end(session) == 16, "of the failed runs nothing is left"

    runner.run(scenario())


async def outcome(front, session: int, tensor: int) -> str:
    try:
        await front.read(session, tensor)
    except GpuwireError as error:
        assert type(error) is not GpuwireError, "a class of its own"
        return type(error).__name__
    return "values"


def test_a_damaged_definition_that_was_asked_for_fails_the_runs_that_wait(front, runner) -> None:
    async def scenario() -> None:
        session, client = front.open(), Client()
        front.tasks(session, register(1, [1, 2, 3, 4]))
        for graph in range(1, MAX_GRAPHS + 2):
            outputs, scalars = [100 * graph + 1, 100 * graph + 2], [2.0, 1.0]
            told = SCALE_AND_ADD
            front.tasks(
                session, client.run(graph, 100 * graph, [1], outputs, scalars, definition=told)
            )
        front.tasks(session, client.run(1, 1000, [1], [1001, 1002], [2.0, 1.0]))
        await front.message(GraphMissing)
        front.tasks(session, DefineGraph(GraphId(1), SCALE_AND_ADD[:-1]))
        assert isinstance(await front.failure(session, 1001), MalformedMessage)
        front.tasks(session, client.run(1, 2000, [1], [2001, 2002], [2.0, 1.0]))
        await front.message(GraphMissing)
        front.tasks(session, DefineGraph(GraphId(1), SCALE_AND_ADD))
        assert values(await front.read(session, 2001)) == [3, 5, 7, 9]
        await front.end(session)

    runner.run(scenario())


def test_the_plan_of_a_damaged_graph_is_why_there_is_none(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, DescribeGraph(RequestId(9), SCALE_AND_ADD[:-1]))
        failed = await front.reply(session, 9)
        assert isinstance(failed, Failed)
        assert isinstance(from_record(failed.error), MalformedMessage)
        front.tasks(session, DescribeGraph(RequestId(10), SCALE_AND_ADD))
        assert "launch" in (await front.reply(session, 10)).text
        await front.end(session)

    runner.run(scenario())


def test_a_tensor_of_another_session_is_none_of_this_one(front, runner) -> None:
    async def scenario() -> None:
        one, other = front.open(), front.open()
        front.tasks(one, register(1, [1, 2, 3, 4]), register(77, [5, 6, 7, 8]))
        front.tasks(other, register(1, [1, 2, 3, 4]))
        client = Client()
        told = client.run(1, 10, [1], [11, 12], [2.0, 1.0], definition=SCALE_AND_ADD)
        front.tasks(other, told, client.run(1, 20, [77], [21, 22], [2.0, 1.0]))
        for output in (21, 22):
            assert isinstance(await front.failure(other, output), UnknownTensor)
        assert values(await front.read(other, 11)) == [3, 5, 7, 9]
        await front.end(one)
        await front.end(other)

    runner.run(scenario())


def test_a_graph_beyond_the_limits_fails_and_the_session_goes_on(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        long = [node("negative", NodeRef(n - 1) if n else InputRef(0)) for n in range(5000)]
        told = definition(long, (4999,))
        front.tasks(session, register(1, [1, 2, 3, 4]))
        front.tasks(session, Client().run(1, 10, [1], [10], definition=told), add(1, 1.0, 2))
        error = await front.failure(session, 10)
        assert isinstance(error, LimitBreached)
        assert "5000" in str(error) and "4096" in str(error)
        assert values(await front.read(session, 2)) == [2, 3, 4, 5]
        await front.end(session)

    runner.run(scenario())


@pytest.mark.parametrize(
    "task",
    [
        Client().run(1, 10, [1], [1, 2], [1.0, 1.0], definition=SCALE_AND_ADD),
        Client().run(5, 10, [1], [11, 12], [1.0, 1.0], definition=SCALE_AND_ADD),
        RunGraph(StreamId(0), GraphId(5), inputs=(2,), outputs=(9, 9)),
    ],
    ids=["an output that exists", "a graph that exists", "an output twice"],
)
def test_what_no_client_may_send_ends_the_session(front, runner, task) -> None:
    async def scenario() -> None:
        session = front.open()
        told = Client().run(5, 20, [1], [21, 22], [2.0, 1.0], definition=SCALE_AND_ADD)
        front.tasks(session, register(1, [1, 2, 3, 4]), told, task)
        broken = await front.message(SessionBroken)
        assert broken.session == session
        other = front.open()
        front.tasks(other, register(1, [1, 2, 3, 4]), add(1, 1.0, 2))
        assert values(await front.read(other, 2)) == [2, 3, 4, 5]
        await front.end(other)

    runner.run(scenario())
