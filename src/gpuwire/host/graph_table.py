"""The table of a session's op-graphs.

A bounded number of them, of bounded size, is kept; the one that was not run for longest is given up
first: its definition goes, and what of it every run is checked by stays. What a graph's next run
leaves unsaid (see `wire.bindings`) is remembered for longer than the graph.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuwire.errors import GraphBindingError
from gpuwire.host.tensors import Tensor
from gpuwire.host.work import RunnableGraph, Stream, runnable_graph
from gpuwire.ids import GraphId
from gpuwire.ir.graphs import ScalarRef, typed_graph
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.telemetry.savings import Savings
from gpuwire.wire.bindings import Bindings, LastRun
from gpuwire.wire.codec import decode_definition
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import Buffer

HELD_PER_DEFINITION_BYTE = 50
"""Memory that a graph takes for each byte of its definition: 40 to 48 by tracemalloc, for 20, 200
and 2,000 ops."""
MAX_REMEMBERED = 8192
"""Graphs whose last run is remembered, those that were given up included …"""
MAX_REMEMBERED_IDS = 1 << 20
"""… and the ids and scalars in those runs. A client that keeps more graphs than this in use loses
the oldest, and is told so by `UnknownGraph`."""


@dataclass(frozen=True, slots=True)
class GraphBounds:
    """What one session may keep: `max_bytes` of memory."""

    max_graphs: int
    max_bytes: int


@dataclass(slots=True, eq=False)
class WaitingRun:
    """A run that arrived: its tensors are settled later."""

    bindings: Bindings
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    stream: Stream
    place: int


@dataclass(slots=True, eq=False)
class KeptGraph:
    """A graph that was registered."""

    inputs: tuple[TensorType, ...]
    scalars: tuple[ScalarRef, ...]
    outputs: tuple[TensorType, ...]
    ops: int
    runnable: RunnableGraph | None
    """None while it is given up."""
    held_bytes: int
    bound_bytes: int = 0
    """What its first run took on the wire besides the definition."""
    last: LastRun | None = None
    fits: bool = False
    """Whether what the last run bound fits the graph, as far as it is not in the tensors."""
    runs: int = 0
    waiting: list[WaitingRun] = field(default_factory=list)

    @property
    def definition_bytes(self) -> int:
        return self.held_bytes // HELD_PER_DEFINITION_BYTE

    @property
    def remembered_ids(self) -> int:
        last = self.last
        if last is None:
            return 0
        return len(last.inputs) + len(last.outputs) + len(last.dropped) + len(last.scalars)


class GraphTable:
    """The graphs that were registered, by id."""

    def __init__(self, limits: WireLimits, bounds: GraphBounds, savings: Savings) -> None:
        """`savings` is told of definitions that come again, and counts those given up."""
        self._limits = limits
        self._bounds = bounds
        self._savings = savings
        self._graphs: OrderedDict[GraphId, KeptGraph] = OrderedDict()
        self._kept: OrderedDict[GraphId, None] = OrderedDict()
        """Those whose definition is here, the least recently run first."""
        self._held_bytes = 0
        self._remembered_ids = 0

    def find(self, graph_id: GraphId) -> KeptGraph | None:
        """The graph of that id, if it was registered and not forgotten."""
        return self._graphs.get(graph_id)

    def latest(self) -> Iterator[tuple[GraphId, KeptGraph]]:
        """All of them, the most recently run first."""
        return reversed(self._graphs.items())

    def register(self, graph_id: GraphId, definition: Buffer) -> None:
        """Takes a definition under a new id; the oldest are given up for it. Raises what decoding
        and the operations' rules raise."""
        runnable = self._runnable(definition)
        op_graph = runnable.graph
        scalars = [
            ref for node in op_graph.nodes for ref in node.operands if isinstance(ref, ScalarRef)
        ]
        self._graphs[graph_id] = KeptGraph(
            op_graph.inputs,
            tuple(scalars),
            tuple([op_graph.nodes[output.index].type for output in op_graph.outputs]),
            len(op_graph.nodes),
            runnable,
            len(definition) * HELD_PER_DEFINITION_BYTE,
        )
        self._keep(graph_id)
        self.give_up_oldest()

    def restore(self, graph_id: GraphId, graph: KeptGraph, definition: Buffer) -> None:
        """Takes the definition of a graph that had been given up. `GraphBindingError` for another
        one than it had."""
        runnable = self._runnable(definition)
        found = tuple([runnable.graph.nodes[ref.index].type for ref in runnable.graph.outputs])
        if (
            found != graph.outputs
            or runnable.graph.inputs != graph.inputs
            or len(runnable.graph.nodes) != graph.ops
        ):
            raise GraphBindingError(
                f"graph {graph_id} was defined again as another graph", graph=graph_id
            )
        graph.runnable = runnable
        self._savings.told_again(definition)
        self._keep(graph_id)

    def remember(self, graph_id: GraphId, graph: KeptGraph, last: LastRun) -> None:
        """What a graph's last run bound; and that it was the last to run."""
        binds_as_before = last.binds_as(graph.last)
        before = 0 if binds_as_before else graph.remembered_ids
        graph.last = last
        if not binds_as_before:
            self._remembered_ids += graph.remembered_ids - before
            graph.fits = False
        self._graphs.move_to_end(graph_id)

    def use(self, graph_id: GraphId) -> None:
        """A graph whose definition is here is run."""
        self._kept.move_to_end(graph_id)

    def give_up_oldest(self) -> None:
        """Let definitions go until what is left is within bounds."""
        bounds = self._bounds
        while len(self._kept) > bounds.max_graphs or self._held_bytes > bounds.max_bytes:
            if len(self._kept) == 1:
                break  # The one that is to be run now.
            oldest, _ = self._kept.popitem(last=False)
            self._graphs[oldest].runnable = None
            self._savings.evictions += 1
            self._held_bytes -= self._graphs[oldest].held_bytes

    def forget_oldest(self) -> None:
        """Let graphs go of which not even the last run can be remembered."""
        while len(self._graphs) > MAX_REMEMBERED or self._remembered_ids > MAX_REMEMBERED_IDS:
            oldest, graph = next(iter(self._graphs.items()))
            if graph.waiting or len(self._graphs) == 1:
                break
            del self._graphs[oldest]
            self._remembered_ids -= graph.remembered_ids
            if self._kept.pop(oldest, graph) is None:
                self._held_bytes -= graph.held_bytes

    def _runnable(self, definition: Buffer) -> RunnableGraph:
        decoded = decode_definition(definition, self._limits)
        graph = typed_graph(decoded.inputs, decoded.nodes, decoded.outputs)
        return runnable_graph(graph, decoded.locations, recurs=decoded.recurs)

    def _keep(self, graph_id: GraphId) -> None:
        self._kept[graph_id] = None
        self._held_bytes += self._graphs[graph_id].held_bytes


def misfit(graph_id: GraphId, graph: KeptGraph, bindings: Bindings) -> GraphBindingError | None:
    """What of a run does not fit its graph, as far as it is not in the tensors."""
    for found, wanted, what in (
        (len(bindings.inputs), len(graph.inputs), "inputs"),
        (len(bindings.outputs), len(graph.outputs), "outputs"),
        (len(bindings.scalars), len(graph.scalars), "scalars"),
    ):
        if found != wanted:
            return GraphBindingError(
                f"graph {graph_id} has {wanted} {what}, and {found} were bound", graph=graph_id
            )
    return _scalar_misfit(graph_id, graph.scalars, bindings.scalars)


def _scalar_misfit(
    graph_id: GraphId, wanted: tuple[ScalarRef, ...], found: tuple[Scalar, ...]
) -> GraphBindingError | None:
    for number, (ref, scalar) in enumerate(zip(wanted, found, strict=True)):
        if scalar.dtype is not ref.dtype:
            return GraphBindingError(
                f"scalar {number} of graph {graph_id} is {ref.dtype}, and {scalar.dtype} was bound",
                graph=graph_id,
            )
    return None


def check_types(graph_id: GraphId, graph: KeptGraph, inputs: tuple[Tensor, ...]) -> None:
    """`GraphBindingError` for a tensor of another type than the graph takes."""
    for number, (wanted, tensor) in enumerate(zip(graph.inputs, inputs, strict=True)):
        if tensor.type is wanted:
            continue
        # A tensor that failed early has no type.
        if tensor.type is not None and tensor.type != wanted:
            raise GraphBindingError(
                f"input {number} of graph {graph_id} is {wanted}, and {tensor.type} was bound",
                graph=graph_id,
            )
        if tensor.type is not None:
            tensor.type = wanted  # The same; and the next run sees at once that it is.
