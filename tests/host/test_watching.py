"""What a device host tells whoever watches, over its channel."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from gpuwire.errors import ExecutionError
from gpuwire.host.channel_messages import AskFacts, AskGraph, Facts
from gpuwire.ids import GraphId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import ShapeAttributes
from gpuwire.ir.operations import OpClass
from gpuwire.ir.tensors import Scalar
from gpuwire.telemetry.event_block import unpacked
from gpuwire.telemetry.plain import from_json
from gpuwire.telemetry.snapshots import NO_EVENTS, Count, GraphDrawing, HostSnapshot
from gpuwire.wire.bindings import Bindings, run_of
from host.conftest import FrontEnd
from host.test_graphs import SCALE_AND_ADD
from host_tasks import add, operation, register

_numbers = itertools.count(1)
LEASE_MS = 60_000


async def facts(front: FrontEnd, lease_ms: int = 0) -> HostSnapshot:
    number = next(_numbers)
    front.channel.send(AskFacts(number, lease_ms))
    answer = await front.message(Facts)
    assert answer.number == number
    return from_json(HostSnapshot, bytes(answer.payload))


def launches(snapshot: HostSnapshot, name: str) -> int:
    return sum(kernel.launches for kernel in snapshot.kernels if kernel.name.startswith(name))


async def drawing(front: FrontEnd, session: int, graph: int) -> GraphDrawing | None:
    front.channel.send(AskGraph(1, session, graph))
    answer = await front.message(Facts)
    return from_json(GraphDrawing, bytes(answer.payload)) if len(answer.payload) else None


async def work(front: FrontEnd, session: int, first: int) -> None:
    front.tasks(session, register(first, [1, 2, 3, 4]), add(first, 1.0, first + 1))
    await front.read(session, first + 1)


def test_events_are_told_only_while_somebody_watches(
    runner: asyncio.Runner, front: FrontEnd
) -> None:
    async def check() -> None:
        session = front.open()
        await work(front, session, 1)
        before = await facts(front, LEASE_MS)
        assert (before.events, before.ops, before.samples) == (NO_EVENTS, (), ())
        await work(front, session, 11)
        watched = await facts(front)
        told = [
            (event.kind, event.name, event.shape, event.nbytes)
            for event in unpacked(watched.events)
        ]
        assert told == [
            ("upload", "upload", "float32[4]", 16),
            ("elementwise", "add", "float32[4]", 16),
            ("read", "read", "", 0),
        ]
        assert {event.session for event in unpacked(watched.events)} == {session}
        assert set(watched.ops) == {Count("upload", 1), Count("elementwise", 1), Count("read", 1)}
        assert launches(watched, "add__") - launches(before, "add__") == 1
        assert (await facts(front)).events == NO_EVENTS, "told once"
        (told_session,) = [told for told in watched.sessions if told.session == session]
        assert told_session.tensors == 4
        assert told_session.memory_bytes > 0
        assert watched.in_use_bytes == sum(pool.in_use_bytes for pool in watched.pools)
        await front.end(session)
        assert session not in {told.session for told in (await facts(front)).sessions}

    runner.run(check())


def test_a_flood_of_operations_drops_events_and_loses_no_count(
    runner: asyncio.Runner, front: FrontEnd
) -> None:
    async def check() -> None:
        await facts(front, LEASE_MS)
        session = front.open()
        count = 600
        tasks = [
            operation("reshape", (1,), n, ShapeAttributes((2, 2))) for n in range(2, count + 2)
        ]
        front.tasks(session, register(1, [1, 2, 3, 4]), *tasks)
        await front.read(session, count + 1)
        watched = await facts(front)
        assert Count("shape", count) in watched.ops
        assert len(list(unpacked(watched.events))) + watched.dropped == count + 2
        assert watched.dropped > 0
        await front.end(session)

    runner.run(check())


def test_a_kernel_is_timed_by_samples(runner: asyncio.Runner, front: FrontEnd) -> None:
    async def check() -> None:
        await facts(front, LEASE_MS)
        session = front.open()
        front.tasks(session, register(1, [1, 2, 3, 4]))
        number = 1
        while True:
            number += 1
            front.tasks(session, operation("exp", (1,), number))
            await front.read(session, number)
            watched = await facts(front)
            timed = [
                kernel for kernel in watched.kernels if kernel.samples and "exp" in kernel.name
            ]
            if timed:
                break
        assert 0 < timed[0].mean_seconds < 10
        assert timed[0].launches >= timed[0].samples
        await front.end(session)

    runner.run(check())


def test_an_op_graph_is_told_drawn_and_counted(runner: asyncio.Runner, front: FrontEnd) -> None:
    async def check() -> None:
        session = front.open()
        at_first = await facts(front, LEASE_MS)
        before = at_first.cache
        ran_before = sum(count.count for count in (*at_first.fused, *at_first.unfused))
        front.tasks(session, register(1, [1, 2, 3, 4]))
        last = None
        for number in range(3):
            outputs = (TensorId(10 + 2 * number), TensorId(11 + 2 * number))
            scalars = (Scalar(2.0, dt.float32), Scalar(1.0, dt.float32))
            bindings = Bindings(outputs[0], (TensorId(1),), outputs, (), scalars)
            definition = SCALE_AND_ADD if last is None else None
            task, last = run_of(StreamId(0), GraphId(5), bindings, last, definition)
            front.tasks(session, task)
        await front.read(session, 15)
        watched = await facts(front)
        (graph,) = [told for told in watched.graphs if told.session == session]
        assert (graph.session, graph.graph, graph.nodes, graph.runs) == (session, 5, 3, 3)
        assert graph.classes == (Count("elementwise", 3),)
        assert graph.definition_bytes == len(SCALE_AND_ADD)
        assert watched.cache.runs - before.runs == 3
        assert watched.cache.registrations - before.registrations == 1
        counts = {count.kind for count in (*watched.fused, *watched.unfused)}
        assert counts and counts <= {op_class.value for op_class in OpClass}
        ran = sum(count.count for count in (*watched.fused, *watched.unfused))
        assert ran - ran_before == 9
        baseline = watched.cache.baseline_bytes - before.baseline_bytes
        assert 0 < baseline - 3 * len(SCALE_AND_ADD) < 3 * 60, "with the bindings of each run"
        assert [event.kind for event in unpacked(watched.events)].count("graph") == 3
        assert Count("elementwise", 9) in watched.ops, "operations are counted one by one"
        assert watched.dropped == 0, "and a run is one event"
        drawn = await drawing(front, session, 5)
        assert drawn is not None
        assert [node.operands for node in drawn.nodes] == [("i0", "s0"), ("n0", "s1"), ("n1", "i0")]
        assert drawn.outputs == (1, 2)
        assert await drawing(front, session, 6) is None
        await front.end(session)
        assert await drawing(front, session, 5) is None
        assert (await facts(front)).cache == watched.cache, "what a session saved stays counted"

    runner.run(check())


def test_a_failure_is_counted_whether_or_not_anybody_watches(
    runner: asyncio.Runner, front: FrontEnd
) -> None:
    async def check() -> None:
        before = (await facts(front)).failures
        session = front.open(memory=1)
        front.tasks(session, operation("full", (1.0,), 1, ShapeAttributes((64,))))
        with pytest.raises(ExecutionError):
            await front.read(session, 1)
        assert (await facts(front)).failures == before + 1
        await front.end(session)

    runner.run(check())
