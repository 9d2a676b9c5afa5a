"""One operation as a graph."""

from __future__ import annotations

import pytest

from gpuwire.errors import ShapeError
from gpuwire.ids import LocationId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.graphs import InputRef, NodeRef, ScalarRef, single_node_graph
from gpuwire.ir.operations import OPERATIONS, Operation
from gpuwire.ir.tensors import Scalar, TensorType


def test_scalars_are_bindings_and_no_part_of_the_graph() -> None:
    x = TensorType(dt.float32, (3,))
    graphs = []
    for value, number in ((0.5, 7), (0.25, 8)):
        inputs = (Scalar(value, dt.float32), TensorId(number))
        operation = Operation(
            OPERATIONS["multiply"], inputs, TensorId(9), NO_ATTRIBUTES, LocationId(number)
        )
        graph, scalars = single_node_graph(operation, (x,))
        assert scalars == (Scalar(value, dt.float32),)
        graphs.append(graph)
    assert graphs[0] == graphs[1]
    assert hash(graphs[0]) == hash(graphs[1])
    node = graphs[0].nodes[0]
    assert node.operands == (ScalarRef(0, dt.float32), InputRef(0))
    assert node.type == x
    assert graphs[0].outputs == (NodeRef(0),)


def test_a_graph_that_cannot_be_typed_is_refused() -> None:
    inputs = (TensorId(1), TensorId(2))
    operation = Operation(OPERATIONS["add"], inputs, TensorId(3), NO_ATTRIBUTES, LocationId(0))
    types = (TensorType(dt.int8, (2,)), TensorType(dt.int8, (3,)))
    with pytest.raises(ShapeError):
        single_node_graph(operation, types)
