"""Graphs that a program recorded as a whole, to run them by name again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuwire.client.graph_parts import GraphPart, parted
from gpuwire.ids import LocationId
from gpuwire.ir.graphs import OpGraph
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits


@dataclass(frozen=True, slots=True, eq=False)
class RecordedGraph:
    """A graph of one session, for `Recorder.run`. Make it with `Recorder.recorded`."""

    number: int
    """Its own among the session's recorded graphs."""
    graph: OpGraph
    locations: tuple[LocationId, ...]
    """One for each node."""
    parts: tuple[GraphPart, ...]
    """What is run, one after the other: one, unless it is too large for that."""
    results: tuple[int, ...]
    """Where its outputs are found after a run, in order: numbers among the values of its parts."""
    outputs: tuple[TensorType, ...]
    """The types of the tensors that a run makes."""

    def described(self, plans: Sequence[str]) -> str:
        """The plans of all parts as one text."""
        if len(self.parts) == 1:
            return plans[0]
        return "\n\n".join(
            f"{self.part_title(number)}\n{plan}" for number, plan in enumerate(plans)
        )

    def part_title(self, number: int) -> str:
        """A part in a few words."""
        part = self.parts[number]
        return f"part {number + 1} of {len(self.parts)}: %{part.start} to %{part.end - 1}"


def recorded_graph(
    number: int,
    graph: OpGraph,
    locations: tuple[LocationId, ...],
    limits: WireLimits = DEFAULT_LIMITS,
) -> RecordedGraph:
    """The graph, encoded, in as many parts as `limits` ask for. Each of its nodes must be an output
    or read by another one. `ArgumentError` for an operation that is too large by itself."""
    parts, results = parted(graph, locations, limits)
    types = tuple([graph.nodes[output.index].type for output in graph.outputs])
    return RecordedGraph(number, graph, locations, parts, results, types)
