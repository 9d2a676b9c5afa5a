"""Graphs that a program recorded as a whole, to run them by name again and again."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.errors import ArgumentError
from gpuwire.ids import LocationId
from gpuwire.ir.graphs import NodeSource, OpGraph
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.codec import encode_definition
from gpuwire.wire.definitions import GraphDefinition
from gpuwire.wire.limits import DEFAULT_LIMITS


@dataclass(frozen=True, slots=True, eq=False)
class RecordedGraph:
    """A graph of one session, for `Recorder.run`. Make it with `Recorder.recorded`."""

    number: int
    """Its own among the session's recorded graphs."""
    graph: OpGraph
    locations: tuple[LocationId, ...]
    """One for each node."""
    definition: bytes
    """Encoded."""
    outputs: tuple[TensorType, ...]
    """The types of the tensors that a run makes."""


def recorded_graph(number: int, graph: OpGraph, locations: tuple[LocationId, ...]) -> RecordedGraph:
    """The graph, encoded. `ArgumentError` if it is larger than a server takes."""
    most, most_bytes = DEFAULT_LIMITS.max_graph_nodes, DEFAULT_LIMITS.max_graph_bytes
    for count, what in ((len(graph.nodes), "operations"), (len(graph.inputs), "arrays to take")):
        if count > most:
            raise ArgumentError(f"a graph of {count} {what}; the most is {most}: split it")
    sources = [NodeSource(node.definition, node.operands, node.attributes) for node in graph.nodes]
    outputs = tuple([output.index for output in graph.outputs])
    encoded = encode_definition(GraphDefinition(graph.inputs, tuple(sources), outputs, locations))
    if len(encoded) > most_bytes:
        raise ArgumentError(
            f"a graph of {len(graph.nodes)} operations takes {len(encoded)} bytes to tell; "
            f"the most is {most_bytes}: split it"
        )
    types = tuple([graph.nodes[output].type for output in outputs])
    return RecordedGraph(number, graph, locations, encoded, types)
