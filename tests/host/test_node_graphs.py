"""Kept graphs are the graphs that would be made anew."""

from __future__ import annotations

import pytest

from gpuwire.errors import ShapeError
from gpuwire.host import node_graphs
from gpuwire.host.node_graphs import NodeGraphs
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import ReduceAttributes
from gpuwire.ir.graphs import single_node_graph
from gpuwire.ir.tensors import TensorType
from host_tasks import F4, add, operation

OTHER = TensorType(dt.float32, (2, 4))


def test_equal_operations_share_a_graph_and_keep_their_scalars() -> None:
    graphs = NodeGraphs()
    first, one = graphs.graph(add(1, 1.0, 2).operation, (F4,))
    second, two = graphs.graph(add(7, 2.0, 9, location=5).operation, (F4,))
    assert first is second
    assert (one[0].value, two[0].value) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("task", "types"),
    [
        (add(1, 1.0, 2), (F4,)),
        (add(1, 2, 3), (F4, OTHER)),
        (add(1, 2, 3), (OTHER, F4)),
        (operation("add", (1.0, 2), 3), (F4,)),
        (operation("sum", (1,), 2, ReduceAttributes((0,), False, dt.float32)), (OTHER,)),
        (operation("sum", (1,), 2, ReduceAttributes((1,), False, dt.float32)), (OTHER,)),
        (operation("subtract", (1, 2), 3), (F4, OTHER)),
    ],
)
def test_what_differs_has_a_graph_of_its_own(task, types) -> None:
    graphs = NodeGraphs()
    for other in (add(1, 1.0, 2), operation("add", (1.0, 2), 3)):
        graphs.graph(other.operation, (OTHER,))
    for _ in range(2):
        assert graphs.graph(task.operation, types) == single_node_graph(task.operation, types)


def test_an_operation_without_a_type_is_refused_each_time() -> None:
    graphs = NodeGraphs()
    for _ in range(2):
        with pytest.raises(ShapeError):
            graphs.graph(add(1, 2, 3).operation, (F4, TensorType(dt.float32, (3,))))


def test_what_is_kept_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(node_graphs, "MAX_GRAPHS", 8)
    graphs = NodeGraphs()
    used, _ = graphs.graph(add(1, 1.0, 2).operation, (F4,))
    for length in range(10, 50):
        graphs.graph(add(1, 1.0, 2).operation, (TensorType(dt.float32, (length,)),))
        again, _ = graphs.graph(add(1, 1.0, 2).operation, (F4,))
        assert again is used, "what is in use stays"
        assert len(graphs) <= 8
    assert graphs.counts() == {"elementwise": 81}
