"""Op-graphs written down in tests and benchmarks."""

from __future__ import annotations

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, Attributes, ReduceAttributes
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
from gpuwire.ir.tensors import TensorType

ROWS = ReduceAttributes((1,), True, dt.float32)
"""Along the rows of a matrix, the axis kept."""


def matrix(*shape: int) -> TensorType:
    """A float32 tensor's type."""
    return TensorType(dt.float32, shape)


def scalar(number: int) -> ScalarRef:
    """The float32 scalar of that number."""
    return ScalarRef(number, dt.float32)


class GraphBuilder:
    """Nodes by name, one after the other."""

    def __init__(self, *inputs: TensorType) -> None:
        self._inputs = inputs
        self._sources: list[NodeSource] = []

    def op(self, name: str, *operands: ValueRef, by: Attributes = NO_ATTRIBUTES) -> NodeRef:
        """Add a node."""
        self._sources.append(NodeSource(OPERATIONS[name], operands, by))
        return NodeRef(len(self._sources) - 1)

    def graph(self, *outputs: NodeRef) -> OpGraph:
        """The graph with these outputs."""
        return typed_graph(self._inputs, self._sources, [output.index for output in outputs])


def softmax(rows: int, columns: int) -> OpGraph:
    """Of each row of a matrix."""
    make = GraphBuilder(matrix(rows, columns))
    most = make.op("max", InputRef(0), by=ROWS)
    powers = make.op("exp", make.op("subtract", InputRef(0), most))
    return make.graph(make.op("divide", powers, make.op("sum", powers, by=ROWS)))


def layer_norm(rows: int, columns: int) -> OpGraph:
    """Of each row of a matrix, with a factor and a summand for each column; scalar 0 is epsilon."""
    make = GraphBuilder(matrix(rows, columns), matrix(columns), matrix(columns))
    centred = make.op("subtract", InputRef(0), make.op("mean", InputRef(0), by=ROWS))
    variance = make.op("mean", make.op("square", centred), by=ROWS)
    deviation = make.op("sqrt", make.op("add", variance, scalar(0)))
    scaled = make.op("multiply", make.op("divide", centred, deviation), InputRef(1))
    return make.graph(make.op("add", scaled, InputRef(2)))


def residual_layers(size: int, layers: int) -> OpGraph:
    """h = relu(h @ w) + h, some times."""
    make = GraphBuilder(*[matrix(size, size)] * (1 + layers))
    h: ValueRef = InputRef(0)
    for layer in range(layers):
        product = make.op("matmul", h, InputRef(1 + layer))
        h = make.op("add", make.op("maximum", product, scalar(0)), h)
    assert isinstance(h, NodeRef)
    return make.graph(h)
