"""Recorded graphs in parts: they give what the whole gives, and leave nothing behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.graph_cache.replaying import (
    OTHER,
    VECTOR,
    IntegerServer,
    Program,
    scalar_value,
    value_of,
)
from gpuwire.client.graph_cache.known import KnownGraphs
from gpuwire.client.recorded_graphs import RecordedGraph, recorded_graph
from gpuwire.client.tensor import Tensor
from gpuwire.errors import ArgumentError
from gpuwire.ids import LocationId, StreamId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, AxisAttributes
from gpuwire.ir.graphs import (
    InputRef,
    NodeRef,
    NodeSource,
    OpGraph,
    ScalarRef,
    ValueRef,
    typed_graph,
)
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar
from gpuwire.wire.codec import decode_definition
from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits

INPUTS = 3


@st.composite
def graphs(draw: st.DrawFn) -> OpGraph:
    """Sums and products of inputs, numbers and each other; some are outputs, among them all that no
    other one reads."""
    nodes: list[NodeSource] = []
    scalars = 0
    for number in range(draw(st.integers(1, 40))):
        operands: list[ValueRef] = []
        for place in range(2):
            # The left one is a tensor: the result is then of the same shape as all others.
            pick = draw(st.integers(-INPUTS - place, number - 1))
            if pick >= 0:
                operands.append(NodeRef(pick))
            elif pick >= -INPUTS:
                operands.append(InputRef(~pick))
            else:
                operands.append(ScalarRef(scalars, dt.int32))
                scalars += 1
        name = draw(st.sampled_from(["add", "multiply"]))
        nodes.append(NodeSource(OPERATIONS[name], tuple(operands), NO_ATTRIBUTES))
    read = {x.index for node in nodes for x in node.operands if isinstance(x, NodeRef)}
    unread = set(range(len(nodes))) - read
    others = draw(st.sets(st.integers(0, len(nodes) - 1), max_size=4))
    outputs = draw(st.permutations(sorted(unread | others)))
    return typed_graph((VECTOR,) * INPUTS, nodes, outputs)


def limits(nodes: int = 4096, graph_bytes: int = 96 * 1024) -> WireLimits:
    return replace(DEFAULT_LIMITS, max_graph_nodes=nodes, max_graph_bytes=graph_bytes)


def recorded(graph: OpGraph, within: WireLimits, number: int = 1) -> RecordedGraph:
    locations = tuple([LocationId(n + 1) for n in range(len(graph.nodes))])
    return recorded_graph(number, graph, locations, within)


def meant(
    program: Program, graph: OpGraph, inputs: list[Tensor], scalars: list[Scalar]
) -> list[int]:
    """The values of the outputs, were each op run by itself."""
    made: list[int] = []

    def value(operand: ValueRef) -> int:
        match operand:
            case NodeRef(index):
                return made[index]
            case InputRef(index):
                return program.meant[inputs[index].id]
            case ScalarRef(index):
                return scalar_value(scalars[index])

    for node in graph.nodes:
        operands = tuple(map(value, node.operands))
        made.append(value_of(node.definition.name, operands))
    return [made[output.index] for output in graph.outputs]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    graphs(),
    st.integers(2, 12),
    st.integers(90, 400),
    st.sampled_from([(1 << 30, 1024), (2, 1024), (1, 1)]),
)
def test_parts_give_what_the_whole_gives_and_leave_nothing(
    graph: OpGraph, nodes: int, graph_bytes: int, kept: tuple[int, int]
) -> None:
    """Whatever the limits are, and however few graphs either side keeps."""
    whole = recorded(graph, limits(nodes, graph_bytes))
    count = sum(isinstance(x, ScalarRef) for node in graph.nodes for x in node.operands)
    program = Program(IntegerServer(kept[0]), KnownGraphs(max_graphs=kept[1]))
    x, y, z = (program.upload() for _ in range(3))
    alive = [x, y, z]
    for turn in range(4):
        scalars = [Scalar(number % (turn + 1), dt.int32) for number in range(count)]
        inputs = [x, alive[-1], z]
        found = program.recorder.run(StreamId(0), whole, inputs, tuple(scalars))
        for tensor, value in zip(found, meant(program, graph, inputs, scalars), strict=True):
            program.meant[tensor.id] = value
        alive = [x, y, z, found[0]]
    del found, inputs, tensor
    program.check_end(alive)
    assert len(program.server.runs) == 4 * len(whole.parts)
    for part in whole.parts:
        assert part.end - part.start <= nodes
        assert len(part.definition) <= graph_bytes
        told = decode_definition(part.definition, limits(nodes, graph_bytes))
        assert told.locations == whole.locations[part.start : part.end]


def chain(length: int, waiting: int) -> OpGraph:
    """A chain of ops, and `waiting` more values that are made at its head and read at its end, but
    for a short stretch in the middle where all have been read and are made anew."""
    add = OPERATIONS["add"]
    nodes: list[NodeSource] = []

    def node(*operands: ValueRef) -> NodeRef:
        nodes.append(NodeSource(add, operands, NO_ATTRIBUTES))
        return NodeRef(len(nodes) - 1)

    h: ValueRef = InputRef(0)
    for _ in range(2):
        held = [node(h, InputRef(0)) for _ in range(waiting)]
        for _ in range(length // 2):
            h = node(h, h)
        for value in held:
            h = node(h, value)
    return typed_graph((VECTOR,), nodes, [len(nodes) - 1])


def test_a_part_ends_where_least_has_to_be_kept() -> None:
    graph = chain(60, 10)
    half = len(graph.nodes) // 2
    first, second = recorded(graph, limits(half + 8)).parts
    assert (first.end, second.start) == (half, half)
    assert len(first.nodes) == 1
    assert len(second.dropped) == 1


def test_what_fits_is_one_part() -> None:
    graph = chain(100, 3)
    whole = recorded(graph, DEFAULT_LIMITS)
    assert [(part.start, part.end) for part in whole.parts] == [(0, len(graph.nodes))]


def test_an_operation_that_is_too_large_by_itself_is_an_error() -> None:
    inputs = (OTHER,) * 60
    operands = tuple([InputRef(number) for number in range(60)])
    source = NodeSource(OPERATIONS["concat"], operands, AxisAttributes(0))
    graph = typed_graph(inputs, [source], [0])
    assert len(recorded(graph, limits()).parts) == 1
    with pytest.raises(ArgumentError, match=r"one concat is \d+ bytes to tell; the most is 200"):
        recorded(graph, limits(graph_bytes=200))
    with pytest.raises(ArgumentError, match="one concat is over 60 arrays; the most is 59"):
        recorded(graph, limits(nodes=59))


def test_a_graph_with_many_numbers_leaves_room_for_them() -> None:
    """Definition and bindings travel in one item."""
    multiply = OPERATIONS["multiply"]
    nodes: list[NodeSource] = []
    h: ValueRef = InputRef(0)
    for number in range(9000):
        operands = (h, ScalarRef(number, dt.int32))
        nodes.append(NodeSource(multiply, operands, NO_ATTRIBUTES))
        h = NodeRef(number)
    graph = typed_graph((VECTOR,), nodes, [8999])
    whole = recorded(graph, DEFAULT_LIMITS)
    program = Program()
    x = program.upload()
    scalars = [Scalar(number, dt.int32) for number in range(9000)]
    (y,) = program.recorder.run(StreamId(0), whole, [x], tuple(scalars))
    (program.meant[y.id],) = meant(program, graph, [x], scalars)
    program.check_end([x, y])
