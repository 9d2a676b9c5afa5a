"""Cutting a recorded graph into parts that each fit into one task.

The parts run one after the other. What one makes and a later one reads stays on the server in
between and is dropped along with its last reader; so a part ends where least is to be kept, among
the last quarter of the places where it could. Nothing is reordered: part k is the nodes from where
part k − 1 ended.

A graph whose parts are more than either side keeps, 2.5 MiB or some 250,000 operations, is told
anew at each run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from gpuwire.errors import ArgumentError
from gpuwire.ids import LocationId
from gpuwire.ir.graphs import InputRef, Node, NodeRef, NodeSource, OpGraph, ScalarRef, ValueRef
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.bindings import most_run_bytes
from gpuwire.wire.codec import encode_definition
from gpuwire.wire.definitions import GraphDefinition
from gpuwire.wire.limits import WireLimits


@dataclass(frozen=True, slots=True, eq=False)
class GraphPart:
    """Some nodes of a graph in a row, as a graph of their own.

    A run's values are numbered: first the inputs of the whole graph, then the outputs of its parts
    as they come.
    """

    start: int
    end: int
    """Of its nodes, among those of the whole graph."""
    definition: bytes
    """Encoded."""
    nodes: tuple[int, ...]
    """Its outputs, among its own nodes."""
    inputs: tuple[int, ...]
    """The values that it takes."""
    scalars: tuple[int, int]
    """From which of the graph's scalars on it takes, and up to which."""
    dropped: tuple[int, ...]
    """Values of earlier parts that nothing reads after it."""


def parted(
    graph: OpGraph, locations: tuple[LocationId, ...], limits: WireLimits
) -> tuple[tuple[GraphPart, ...], tuple[int, ...]]:
    """The parts of a graph in order, and the values that are its outputs. `ArgumentError` for a
    node that no part can hold."""
    cutter = _Cutter(graph, locations, limits)
    parts = tuple(cutter.parts())
    return parts, tuple([cutter.values[output.index] for output in graph.outputs])


class _Cutter:
    """Cuts one graph."""

    def __init__(
        self, graph: OpGraph, locations: tuple[LocationId, ...], limits: WireLimits
    ) -> None:
        self.values: dict[int, int] = {}
        """By node that outlives its part, the number of its value."""
        self._graph = graph
        self._locations = locations
        self._limits = limits
        self._kept = {output.index for output in graph.outputs}
        self._last_uses = _last_uses(graph)
        self._scalars = list(accumulate(map(_scalar_count, graph.nodes), initial=0))

    def parts(self) -> Iterator[GraphPart]:
        """Largest first, as far as the limits go."""
        count, most = len(self._graph.nodes), self._limits.max_graph_nodes
        waiting: list[int] | None = None
        start = 0
        while start < count:
            end = min(start + most, count)
            part = self._part(start, end)
            while part is None:
                # 95 % of a definition that is a little too long; the next try is likely to do.
                end = start + max((end - start) * 19 // 20, 1)
                part = self._part(start, end)
            if end < count:
                if waiting is None:
                    waiting = self._waiting_bytes()
                quarter = range(max(end - (end - start) // 4, start + 1), end + 1)
                quietest = min(reversed(quarter), key=waiting.__getitem__)
                part = self._part(start, quietest) or part
            self._number(part)
            yield part
            start = part.end

    def _part(self, start: int, end: int) -> GraphPart | None:
        """These nodes as a part; None if they are too many for one."""
        inputs: dict[int, TensorType] = {}
        places: dict[int, int] = {}
        nodes: list[NodeSource] = []
        for node in self._graph.nodes[start:end]:
            operands = tuple(
                [self._operand(operand, start, inputs, places) for operand in node.operands]
            )
            nodes.append(NodeSource(node.definition, operands, node.attributes))
        outputs = tuple(
            [
                number - start
                for number in range(start, end)
                if number in self._kept or self._last_uses[number] >= end
            ]
        )
        dropped = tuple(
            [
                value
                for node, value in self.values.items()
                if value in inputs and node not in self._kept and self._last_uses[node] < end
            ]
        )
        scalars = self._scalars[start], self._scalars[end]
        definition = GraphDefinition(
            tuple(inputs.values()), tuple(nodes), outputs, self._locations[start:end], recurs=True
        )
        encoded = encode_definition(definition)
        too_much = self._too_much(encoded, len(inputs), scalars[1] - scalars[0], len(outputs))
        if not too_much:
            return GraphPart(start, end, encoded, outputs, tuple(inputs), scalars, dropped)
        if end - start == 1:
            name = self._graph.nodes[start].definition.name
            raise ArgumentError(f"one {name} is {too_much}: give it fewer arrays at a time")
        return None

    def _operand(
        self,
        operand: ValueRef,
        start: int,
        inputs: dict[int, TensorType],
        places: dict[int, int],
    ) -> ValueRef:
        """The operand as the part that begins at `start` names it; `inputs` are the values that the
        part takes, with their types, and `places` their numbers there."""
        match operand:
            case ScalarRef(index, dtype):
                return ScalarRef(index - self._scalars[start], dtype)
            case NodeRef(index) if index >= start:
                return NodeRef(index - start)
            case NodeRef(index):
                value, type_ = self.values[index], self._graph.nodes[index].type
            case InputRef(index):
                value, type_ = index, self._graph.inputs[index]
        inputs.setdefault(value, type_)
        return InputRef(places.setdefault(value, len(places)))

    def _too_much(self, encoded: bytes, inputs: int, scalars: int, outputs: int) -> str:
        """Of what there is more than a task may hold, in words; nothing if all fits."""
        limits = self._limits
        run = most_run_bytes(inputs, outputs, scalars)
        room = min(limits.max_graph_bytes, limits.max_item_bytes - run)
        if len(encoded) > room:
            return f"{len(encoded)} bytes to tell; the most is {room}"
        if inputs > limits.max_graph_nodes:
            return f"over {inputs} arrays; the most is {limits.max_graph_nodes}"
        if scalars > limits.max_graph_nodes:
            return f"over {scalars} numbers; the most is {limits.max_graph_nodes}"
        return ""

    def _number(self, part: GraphPart) -> None:
        """Gives the outputs of the next part their numbers."""
        first = len(self._graph.inputs) + len(self.values)
        for number, node in enumerate(part.nodes, first):
            self.values[part.start + node] = number

    def _waiting_bytes(self) -> list[int]:
        """By place between nodes: the bytes made before it that are read after it and would not be
        kept else."""
        nodes = self._graph.nodes
        changes = [0] * (len(nodes) + 2)
        for number, last in enumerate(self._last_uses):
            if number not in self._kept and last > number:
                changes[number + 1] += nodes[number].type.nbytes
                changes[last + 1] -= nodes[number].type.nbytes
        return list(accumulate(changes))


def _last_uses(graph: OpGraph) -> list[int]:
    """By node: the last one that reads it; itself where none does."""
    last = list(range(len(graph.nodes)))
    for number, node in enumerate(graph.nodes):
        for operand in node.operands:
            if isinstance(operand, NodeRef):
                last[operand.index] = number
    return last


def _scalar_count(node: Node) -> int:
    return sum(isinstance(operand, ScalarRef) for operand in node.operands)
