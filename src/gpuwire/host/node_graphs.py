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
"""Those that were not asked for for long are forgotten; lowering still knows the plans of equal
ones."""

_Key = tuple[OpDef, Attributes, tuple[TensorType, ...], tuple[DType | None, ...]]


class _Known:
    """A graph, and how often it was asked for."""

    __slots__ = ("graph", "runs")

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.runs = 0


class NodeGraphs:
    """`single_node_graph`, remembered.

    In two generations: what is asked for moves into the young one, and when that is full the old
    one is forgotten and the young one is old. That keeps what was used last without another look-up
    at each use, since a key takes a microsecond to hash.
    """

    def __init__(self) -> None:
        self._young: dict[_Key, _Known] = {}
        self._old: dict[_Key, _Known] = {}
        self._forgotten: Counter[str] = Counter()

    def graph(
        self, operation: Operation, input_types: tuple[TensorType, ...]
    ) -> tuple[OpGraph, tuple[Scalar, ...]]:
        """The operation's graph and its scalars. Raises what the operation's rule raises."""
        scalars = tuple(o for o in operation.inputs if isinstance(o, Scalar))
        form = tuple(o.dtype if isinstance(o, Scalar) else None for o in operation.inputs)
        key = (operation.definition, operation.attributes, input_types, form)
        known = self._young.get(key)
        if known is None:
            known = self._old.pop(key, None)
            if known is None:
                known = _Known(single_node_graph(operation, input_types)[0])
            if len(self._young) >= MAX_GRAPHS // 2:
                self._forgotten += _counts(self._old)
                self._young, self._old = {}, self._young
            self._young[key] = known
        known.runs += 1
        return known.graph, scalars

    def counts(self) -> Counter[str]:
        """How many operations of each class there have been."""
        return self._forgotten + _counts(self._young) + _counts(self._old)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


def _counts(graphs: dict[_Key, _Known]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for known in graphs.values():
        counts[known.graph.nodes[0].definition.op_class.value] += known.runs
    return counts
