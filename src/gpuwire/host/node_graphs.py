"""Graphs of one node, kept: the same operation over the same types is the same object again.

Making such a graph takes 10 µs, and finding its plan by equality 15 more; by identity it is 2. A
program repeats a few operations many times.
"""

from __future__ import annotations

from collections import Counter

from gpuwire.ir.attributes import Attributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import OpGraph, single_node_graph
from gpuwire.ir.operations import OpDef, Operation
from gpuwire.ir.tensors import Scalar, TensorType

MAX_GRAPHS = 4096
"""Then all are forgotten; lowering still knows the plans of equal ones."""

_Key = tuple[OpDef, Attributes, tuple[TensorType, ...], tuple[DType | None, ...]]


class _Known:
    """A graph, and how often it was asked for."""

    __slots__ = ("graph", "runs")

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.runs = 0


class NodeGraphs:
    """`single_node_graph`, remembered."""

    def __init__(self) -> None:
        self._graphs: dict[_Key, _Known] = {}
        self._forgotten: Counter[str] = Counter()

    def graph(
        self, operation: Operation, input_types: tuple[TensorType, ...]
    ) -> tuple[OpGraph, tuple[Scalar, ...]]:
        """The operation's graph and its scalars. Raises what the operation's rule raises."""
        scalars = tuple(o for o in operation.inputs if isinstance(o, Scalar))
        form = tuple(o.dtype if isinstance(o, Scalar) else None for o in operation.inputs)
        key = (operation.definition, operation.attributes, input_types, form)
        known = self._graphs.get(key)
        if known is None:
            graph, _ = single_node_graph(operation, input_types)
            if len(self._graphs) >= MAX_GRAPHS:
                self._forgotten = self.counts()
                self._graphs.clear()
            known = self._graphs[key] = _Known(graph)
        known.runs += 1
        return known.graph, scalars

    def counts(self) -> Counter[str]:
        """How many operations of each class there have been."""
        counts = self._forgotten.copy()
        for known in self._graphs.values():
            counts[known.graph.nodes[0].definition.op_class.value] += known.runs
        return counts
