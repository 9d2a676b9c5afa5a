"""Graphs of one node, kept: the same operation over the same types is the same object again.

Making such a graph takes 10 µs, and finding its plan by equality 15 more; by identity it is 2. A
program repeats a few operations many times.
"""

from __future__ import annotations

from gpuwire.ir.attributes import Attributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import OpGraph, single_node_graph
from gpuwire.ir.operations import OpDef, Operation
from gpuwire.ir.tensors import Scalar, TensorType

MAX_GRAPHS = 4096
"""Then all are forgotten; lowering still knows the plans of equal ones."""

_Key = tuple[OpDef, Attributes, tuple[TensorType, ...], tuple[DType | None, ...]]


class NodeGraphs:
    """`single_node_graph`, remembered."""

    def __init__(self) -> None:
        self._graphs: dict[_Key, OpGraph] = {}

    def graph(
        self, operation: Operation, input_types: tuple[TensorType, ...]
    ) -> tuple[OpGraph, tuple[Scalar, ...]]:
        """The operation's graph and its scalars. Raises what the operation's rule raises."""
        scalars = tuple(o for o in operation.inputs if isinstance(o, Scalar))
        form = tuple(o.dtype if isinstance(o, Scalar) else None for o in operation.inputs)
        key = (operation.definition, operation.attributes, input_types, form)
        graph = self._graphs.get(key)
        if graph is None:
            graph, _ = single_node_graph(operation, input_types)
            if len(self._graphs) >= MAX_GRAPHS:
                self._graphs.clear()
            self._graphs[key] = graph
        return graph, scalars
