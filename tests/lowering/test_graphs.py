"""Graphs of several nodes, the plans kept of them, and what a plan does with memory."""

from __future__ import annotations

import numpy as np
import pytest

from gpuwire.errors import ArgumentError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    NO_ATTRIBUTES,
    Attributes,
    CastAttributes,
    PermuteAttributes,
    ReduceAttributes,
)
from gpuwire.ir.graphs import InputRef, Node, NodeRef, OpGraph, ScalarRef, ValueRef
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.lowering import Lowering
from gpuwire.lowering.builder import KernelCache
from gpuwire.lowering.facts import device_facts
from gpuwire.lowering.planner import plan_graph
from gpuwire.lowering.steps import AllocateStep, KernelStep
from lowered import Machine


class _Graph:
    """Builds graphs by name."""

    def __init__(self, *inputs: TensorType) -> None:
        self.inputs = inputs
        self.nodes: list[Node] = []

    def node(
        self, name: str, *operands: ValueRef, attributes: Attributes = NO_ATTRIBUTES
    ) -> NodeRef:
        definition = OPERATIONS[name]
        types = []
        for operand in operands:
            match operand:
                case InputRef(index):
                    types.append(self.inputs[index])
                case NodeRef(index):
                    types.append(self.nodes[index].type)
                case ScalarRef(_, dtype):
                    types.append(TensorType(dtype, ()))
        result = definition.result_type(tuple(types), attributes)
        self.nodes.append(Node(definition, operands, attributes, result))
        return NodeRef(len(self.nodes) - 1)

    def finish(self, *outputs: NodeRef) -> OpGraph:
        return OpGraph(self.inputs, tuple(self.nodes), outputs)


def _softmax() -> OpGraph:
    """Of the rows of x times a scalar; the product transposed besides."""
    graph = _Graph(TensorType(dt.float32, (4, 6)))
    rows = ReduceAttributes((1,), True, dt.float32)
    scaled = graph.node("multiply", InputRef(0), ScalarRef(0, dt.float32))
    most = graph.node("max", scaled, attributes=rows)
    shifted = graph.node("subtract", scaled, most)
    powers = graph.node("exp", shifted)
    total = graph.node("sum", powers, attributes=rows)
    result = graph.node("divide", powers, total)
    turned = graph.node("permute_dims", scaled, attributes=PermuteAttributes((1, 0)))
    return graph.finish(result, turned)


def test_a_graph_of_many_nodes(machine: Machine) -> None:
    values = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    graph = _softmax()
    for factor in (0.5, 3.0):
        result, turned = machine.execute(
            graph, [machine.upload(values)], [Scalar(factor, dt.float32)]
        )
        scaled = values * np.float32(factor)
        powers = np.exp(scaled.astype(np.float64))
        np.testing.assert_allclose(
            machine.download(result), powers / powers.sum(1, keepdims=True), rtol=1e-5
        )
        np.testing.assert_array_equal(machine.download(turned), scaled.T)


def test_tensors_share_memory_by_lifetime(machine: Machine) -> None:
    graph = _softmax()
    plan = plan_graph(
        graph,
        [((6, 1), 0)],
        KernelCache(),
        device_facts(machine.server.utilities().properties),
        fuse=False,
    )
    made = {step.slot for step in plan.steps if isinstance(step, AllocateStep)}
    # The scaled matrix is an output by way of its transpose. The result takes the place of the
    # shifted matrix, the row sums that of the maxima.
    assert len(made) == 4
    assert {output.slot for output in plan.outputs} < made


def test_an_input_may_be_an_operand_twice(machine: Machine) -> None:
    values = np.array([1.0, np.nan, np.inf], np.float32)
    got = machine.download(machine.apply("subtract", *[machine.upload(values)] * 2))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, values - values)


def test_nothing_is_bound_with_size_zero(machine: Machine) -> None:
    facts = device_facts(machine.server.utilities().properties)
    graph = _Graph(TensorType(dt.float32, (0, 3)), TensorType(dt.float32, (3, 0)))
    outputs = (
        graph.node("add", InputRef(0), ScalarRef(0, dt.float32)),
        graph.node("sum", InputRef(0), attributes=ReduceAttributes((0,), False, dt.float32)),
        graph.node("matmul", InputRef(1), InputRef(0)),
        graph.node("matmul", InputRef(0), InputRef(1)),
        graph.node("sin", graph.node("cast", InputRef(0), attributes=CastAttributes(dt.complex64))),
    )
    plan = plan_graph(graph.finish(*outputs), [((3, 1), 0), ((0, 1), 0)], KernelCache(), facts)
    assert not plan.waits
    for step in plan.steps:
        if isinstance(step, KernelStep):
            assert all(part.size > 0 for part in step.buffers)
            assert step.workgroups > 0
        if isinstance(step, AllocateStep):
            assert step.size > 0


def test_inputs_must_be_what_the_graph_takes(machine: Machine) -> None:
    wrong = machine.upload(np.zeros((4, 6), np.int32))
    with pytest.raises(ArgumentError, match="the graph takes"):
        machine.execute(_softmax(), [wrong], [Scalar(1.0, dt.float32)])
    with pytest.raises(ArgumentError, match="the graph takes"):
        machine.execute(_softmax(), [], [Scalar(1.0, dt.float32)])


def test_plans_are_kept_up_to_a_bound(machine: Machine) -> None:
    lowering = Lowering(machine.server, max_graphs=2, max_layouts=2)
    value = machine.upload(np.ones(8, np.float32))
    for name in ("negative", "square", "abs", "negative", "floor"):
        graph = _Graph(value.type)
        lowering.execute(graph.finish(graph.node(name, InputRef(0))), [value], [], 0)
        assert lowering.plan_count <= 2
    graph = _Graph(value.type)
    same = graph.finish(graph.node("floor", InputRef(0)))
    kernels = lowering.kernel_count
    lowering.execute(same, [value], [], 0)
    lowering.execute(_copy(same), [value], [], 0)
    assert lowering.kernel_count == kernels
    assert lowering.plan_count <= 2


def _copy(graph: OpGraph) -> OpGraph:
    return OpGraph(graph.inputs, graph.nodes, graph.outputs)
