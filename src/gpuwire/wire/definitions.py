"""Graph definitions as plain values: an op-graph in relative form, and the line of every op.

A definition is a row of plain arrays: `(inputs, nodes, outputs)`, the first two counts and the
last packed, and behind them `true` if the graph is known to run more than once; a type for each
input; `(code, location, operands, …attributes)` for each node. An operand is an integer: its lowest
two bits say which kind, the others which. The types of the nodes do not travel: the operations'
rules give them again (`ir.graphs.typed_graph`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuwire.errors import MalformedMessage
from gpuwire.ids import LocationId
from gpuwire.ir.graphs import InputRef, NodeRef, NodeSource, ScalarRef, ValueRef
from gpuwire.ir.operations import operation_by_code
from gpuwire.ir.tensors import TensorType
from gpuwire.wire import fields as check
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.operations import (
    Plain,
    checked_attributes,
    checked_dtype,
    checked_type,
    plain_attributes,
)
from gpuwire.wire.packing import pack_integers, unpack_integers

_NODE, _INPUT, _SCALAR = 0, 1, 2
"""Kinds of operands. A node is told by how many nodes back it is, an input by its number, a scalar
by its data type's code: its number follows from its place."""


@dataclass(frozen=True, slots=True)
class GraphDefinition:
    """What is registered: the parts of an op-graph that its rules do not give, and for each node
    the location that recorded it."""

    inputs: tuple[TensorType, ...]
    nodes: tuple[NodeSource, ...]
    outputs: tuple[int, ...]
    locations: tuple[LocationId, ...]
    recurs: bool = False
    """Whether it was recorded to be run again and again, as a compiled function is. Else the server
    may do with less than its best plan the first time."""


def plain_definition(definition: GraphDefinition) -> Iterator[Plain]:
    """The rows of a definition."""
    head = (len(definition.inputs), len(definition.nodes), pack_integers(definition.outputs))
    yield (*head, True) if definition.recurs else head
    for type_ in definition.inputs:
        yield (type_.dtype.code, type_.shape)
    for place, (node, location) in enumerate(
        zip(definition.nodes, definition.locations, strict=True)
    ):
        operands = [_plain_operand(operand, place) for operand in node.operands]
        attributes = plain_attributes(node.attributes)
        yield (node.definition.code, location, operands, *attributes)


def checked_definition(rows: Iterator[Plain], limits: WireLimits) -> GraphDefinition:
    """The definition of plain rows, of which it takes exactly its own. `MalformedMessage` or
    `LimitBreached`; a cycle cannot be said, since nodes name only nodes before them."""
    head = next(rows)
    recurs = len(head) == 4
    check.exactly(head, 4 if recurs else 3, "graph")
    if recurs and head[3] is not True:
        raise check.malformed("graph", "true or nothing at its head's end", head[3])
    most = limits.max_graph_nodes
    inputs, nodes = check.integer(head[0], "graph inputs"), check.integer(head[1], "graph nodes")
    for count, what in ((inputs, "graph inputs"), (nodes, "graph nodes")):
        if count > most:
            raise check.breached(what, count, most)
    outputs = unpack_integers(head[2], "graph outputs", most)
    if not nodes or not outputs:
        raise MalformedMessage("graph: wanted at least one node and one output", what="graph")
    if len(set(outputs)) < len(outputs) or not (min(outputs) >= 0 and max(outputs) < nodes):
        raise MalformedMessage("graph outputs: wanted nodes, each once", what="graph outputs")
    types = tuple([_checked_type(next(rows)) for _ in range(inputs)])
    reader = _NodeReader(inputs, limits)
    sources = tuple([reader.read(next(rows)) for _ in range(nodes)])
    return GraphDefinition(types, sources, outputs, tuple(reader.locations), recurs)


def _plain_operand(operand: ValueRef, place: int) -> int:
    match operand:
        case NodeRef(index):
            return (place - index) << 2 | _NODE
        case InputRef(index):
            return index << 2 | _INPUT
        case ScalarRef(_, dtype):
            return dtype.code << 2 | _SCALAR


def _checked_type(row: Plain) -> TensorType:
    check.exactly(row, 2, "graph input")
    return checked_type(row[0], row[1])


class _NodeReader:
    """Takes the nodes of one definition in order."""

    def __init__(self, inputs: int, limits: WireLimits) -> None:
        self.locations: list[LocationId] = []
        self._inputs = inputs
        self._limits = limits
        self._scalars = 0

    def read(self, row: Plain) -> NodeSource:
        if len(row) < 3:
            raise MalformedMessage("graph node: wanted 3 fields or more", what="graph node")
        code = check.integer(row[0], "operation code")
        definition = operation_by_code(code)
        if definition is None:
            raise check.malformed("operation code", "one of the table", code)
        refs = check.integers(row[2], "graph operands", self._limits.max_array_length)
        if definition.arity is not None and len(refs) != definition.arity:
            raise MalformedMessage(
                f"{definition.name} takes {definition.arity} inputs, not {len(refs)}",
                what="graph operands",
            )
        operands = tuple([self._operand(ref) for ref in refs])
        attributes = checked_attributes(definition.attributes, row[3:], self._limits)
        self.locations.append(LocationId(check.integer(row[1], "location")))
        return NodeSource(definition, operands, attributes)

    def _operand(self, ref: int) -> ValueRef:
        kind, number = ref & 3, ref >> 2
        place = len(self.locations)
        if kind == _NODE and 1 <= number <= place:
            return NodeRef(place - number)
        if kind == _INPUT and number < self._inputs:
            return InputRef(number)
        if kind == _SCALAR:
            self._scalars += 1
            return ScalarRef(self._scalars - 1, checked_dtype(number))
        raise check.malformed("graph operand", "an input, a scalar or an earlier node", ref)
