"""Bindings: any row of runs arrives as it was sent, and a settled loop costs next to nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.errors import MalformedMessage
from gpuwire.ids import GraphId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.tensors import Scalar
from gpuwire.wire.bindings import Bindings, LastRun, bindings_of, run_of
from gpuwire.wire.codec import decode_tasks, encode_task
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import RunGraph

STREAM, GRAPH = StreamId(0), GraphId(1)
values = st.sampled_from([0.0, -0.0, 1.0, float("inf"), float("nan")])
ids = st.integers(1, 30).map(TensorId) | st.integers(1, (1 << 63) - 1).map(TensorId)


def rows(size: int | None) -> st.SearchStrategy[tuple[TensorId, ...]]:
    most = 5 if size is None else size
    return st.lists(ids, min_size=size or 0, max_size=most).map(tuple)


bindings = st.builds(
    Bindings,
    ids,
    rows(3),
    rows(2),
    rows(None),
    st.lists(values.map(lambda v: Scalar(v, dt.float32)), min_size=2, max_size=2).map(tuple),
)


def travelled(run: RunGraph) -> RunGraph:
    (task,) = decode_tasks(encode_task(run), 1, DEFAULT_LIMITS)
    assert isinstance(task, RunGraph)
    return task


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(bindings, max_size=6))
def test_any_runs_arrive_as_they_were_sent(runs: list[Bindings]) -> None:
    sent: LastRun | None = None
    received: LastRun | None = None
    for wanted in runs:
        run, sent = run_of(STREAM, GRAPH, wanted, sent, None if sent else b"x")
        found, received = bindings_of(travelled(run), received)
        assert repr(found) == repr(wanted)


def loop(step: int) -> Bindings:
    """200 ops a step, one upload among them; 18 weights, and a value carried along."""
    base = 5_000_000 + 201 * step
    carried = base - 201 + 199
    return Bindings(
        TensorId(base),
        (*[TensorId(100 + n) for n in range(18)], TensorId(carried), TensorId(base - 1)),
        (TensorId(base + 7), TensorId(base + 199)),
        (TensorId(carried), TensorId(base - 1)),
        tuple([Scalar(0.5, dt.float32)] * 30),
    )


def test_a_settled_loop_says_nothing_but_its_graph() -> None:
    last = None
    sizes = []
    for step in range(6):
        run, last = run_of(STREAM, GRAPH, loop(step), last)
        sizes.append(len(encode_task(run)))
    assert sizes[3:] == [4, 4, 4]
    assert sizes[1] < 150


def test_a_changed_scalar_is_all_that_is_sent() -> None:
    last = None
    for step in range(4):
        run, last = run_of(STREAM, GRAPH, loop(step), last)
    scalars = list(loop(4).scalars)
    scalars[7] = Scalar(0.25, dt.float32)
    run, last = run_of(STREAM, GRAPH, replace(loop(4), scalars=tuple(scalars)), last)
    assert run == RunGraph(STREAM, GRAPH, ((7, Scalar(0.25, dt.float32)),))
    assert len(encode_task(run)) == 17


@pytest.mark.parametrize(
    "run",
    [
        RunGraph(STREAM, GRAPH),
        RunGraph(STREAM, GRAPH, base=TensorId(3), inputs=(2,)),
        RunGraph(STREAM, GRAPH, base=TensorId(3), inputs=(7,), outputs=(0,)),
        RunGraph(STREAM, GRAPH, base=TensorId(3), inputs=(0,), outputs=(0,)),
        RunGraph(STREAM, GRAPH, base=TensorId(3), inputs=(2,), outputs=(-3,)),
        RunGraph(STREAM, GRAPH, base=TensorId(3), dropped=(1 << 64,), inputs=(), outputs=(0,)),
        RunGraph(STREAM, GRAPH, ((0, Scalar(1.0, dt.float32)),), TensorId(3), None, (2,), (0,)),
    ],
)
def test_a_run_that_binds_too_little_or_no_ids_is_malformed(run: RunGraph) -> None:
    with pytest.raises(MalformedMessage):
        bindings_of(run, None)
