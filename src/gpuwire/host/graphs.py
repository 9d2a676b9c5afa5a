"""The op-graphs that a session has registered, and running them.

A bounded number of them, of bounded size, is kept; the one that was not run for longest is given
up first. When it is to be run again after all, the client is asked for its definition: meanwhile
its runs wait as work waits for an upload, with their inputs held and their outputs on their way,
so that nothing is lost and nothing runs twice. What a graph's next run leaves unsaid (see
`wire.bindings`) is remembered for longer than the graph.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import sub

from gpuwire.errors import GpuwireError, GraphBindingError, MalformedMessage, UnknownGraph
from gpuwire.host.dataflow import Dataflow
from gpuwire.host.tensors import Tensor
from gpuwire.host.work import KnownGraph, RunnableGraph, Stream, Work, runnable_graph
from gpuwire.ids import GraphId, TensorId
from gpuwire.ir.graphs import ScalarRef, typed_graph
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.lowering.counting import OperationCounts
from gpuwire.telemetry.logs import Logger
from gpuwire.telemetry.savings import Savings, op_classes
from gpuwire.telemetry.snapshots import CacheCounts
from gpuwire.wire.bindings import Bindings, LastRun, bindings_of
from gpuwire.wire.codec import decode_definition
from gpuwire.wire.fields import I64_HIGHEST, breached
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import Buffer, DefineGraph, GraphMissing, RunGraph

HELD_PER_DEFINITION_BYTE = 50
"""Memory that a graph takes for each byte of its definition: 40 to 48 by tracemalloc, for 20, 200
and 2,000 ops."""
MAX_REMEMBERED = 8192
"""Graphs whose last run is remembered, those that were given up included …"""
MAX_REMEMBERED_IDS = 1 << 20
"""… and the ids and scalars in those runs. A client that keeps more graphs than this in use loses
the oldest, and is told so by `UnknownGraph`."""
MAX_WAITING_RUNS = 65_536
"""Runs that wait for a definition; a client that goes on above this is broken."""


@dataclass(frozen=True, slots=True)
class GraphBounds:
    """What one session may keep: `max_bytes` of memory."""

    max_graphs: int
    max_bytes: int


@dataclass(slots=True, eq=False)
class _Run:
    """A run that arrived: its tensors are settled later."""

    bindings: Bindings
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    stream: Stream
    place: int


@dataclass(slots=True, eq=False)
class _Graph:
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
    waiting: list[_Run] = field(default_factory=list)

    @property
    def definition_bytes(self) -> int:
        return self.held_bytes // HELD_PER_DEFINITION_BYTE

    @property
    def remembered_ids(self) -> int:
        last = self.last
        if last is None:
            return 0
        return len(last.inputs) + len(last.outputs) + len(last.dropped) + len(last.scalars)


class Graphs:
    """The graphs of one session."""

    def __init__(
        self,
        dataflow: Dataflow,
        reply: Callable[[GraphMissing], None],
        limits: WireLimits,
        bounds: GraphBounds,
        logger: Logger,
    ) -> None:
        self._dataflow = dataflow
        self._reply = reply
        self._limits = limits
        self._bounds = bounds
        self._graphs: OrderedDict[GraphId, _Graph] = OrderedDict()
        self._kept: OrderedDict[GraphId, None] = OrderedDict()
        """Those whose definition is here, the least recently run first."""
        self._held_bytes = 0
        self._remembered_ids = 0
        self._waiting = 0
        self._savings = Savings(logger)
        self._found = [0, 0]
        """Misses and hits."""

    def run(self, task: RunGraph) -> None:
        """Registers the graph if its definition came along, and runs it now, or when its inputs and
        its definition are there. `ProtocolError` for what is no run of a graph; a definition that
        is none, and what does not fit the graph, fail the run's outputs."""
        dataflow = self._dataflow
        stream = dataflow.stream(task.stream)
        if task.definition is not None:
            if task.graph in self._graphs:
                raise MalformedMessage(f"graph {task.graph} is registered already", what="graph id")
            try:
                self._register(task.graph, task.definition)
            except GpuwireError as error:
                self._fail_unbound(task, stream, error)
                return
        graph = self._graphs.get(task.graph)
        if graph is None:
            unknown = UnknownGraph(
                f"graph {task.graph} was never registered in this session", graph=task.graph
            )
            self._fail_unbound(task, stream, unknown)
            return
        before, remembered = graph.last, graph.remembered_ids
        bindings, graph.last = bindings_of(task, before)
        if not graph.last.binds_as(before):
            self._remembered_ids += graph.remembered_ids - remembered
            graph.fits = False
        graph.runs += 1
        if task.definition is None:
            self._found[graph.runnable is not None] += 1
        self._graphs.move_to_end(task.graph)
        tells = self._savings.logger.wants_full
        counts = dataflow.operations.counts if tells else None  # Adding them up costs 3 µs.
        self._run_bound(task.graph, graph, bindings, stream)
        self._note_run(task, graph, counts)
        for tensor_id in bindings.dropped:
            dataflow.tensors.drop(tensor_id)
        self._forget_oldest()

    def define(self, task: DefineGraph) -> None:
        """Takes a definition that was asked for, and runs what waits for it."""
        graph = self._graphs.get(task.graph)
        if graph is None or graph.runnable is not None:
            return
        waiting, graph.waiting = graph.waiting, []
        self._waiting -= len(waiting)
        try:
            if task.definition is None:
                raise UnknownGraph(
                    f"graph {task.graph} was given up on both sides", graph=task.graph
                )
            self._restore(task.graph, graph, task.definition)
        except GpuwireError as error:
            for run in waiting:
                self._dataflow.fail_all(run.outputs, run.stream, error)
            return
        for run in waiting:
            self._start(graph, run)
        self._give_up_oldest()

    # --- What is told to whoever watches ---

    @property
    def cache_use(self) -> tuple[int, int, int]:
        """Hits, misses and evictions: runs of a graph that is kept, runs of one that had been given
        up, and how often one was. A run that registers its graph is neither of the first two."""
        misses, hits = self._found
        return hits, misses, self._savings.evictions

    @property
    def counts(self) -> CacheCounts:
        """Hits and misses, and the bytes that the cache has saved."""
        savings = self._savings
        return CacheCounts(
            savings.executions,
            savings.registered,
            savings.misses,
            savings.baseline_bytes,
            savings.actual_bytes,
            savings.evictions,
        )

    def known(self) -> Iterator[KnownGraph]:
        """The graphs, the most recently run first."""
        for graph_id, graph in reversed(self._graphs.items()):
            yield KnownGraph(
                graph_id, graph.ops, graph.runs, graph.definition_bytes, graph.runnable
            )

    # --- Runs ---

    def _run_bound(
        self, graph_id: GraphId, graph: _Graph, bindings: Bindings, stream: Stream
    ) -> None:
        dataflow = self._dataflow
        place = dataflow.take_places(graph.ops)
        error = None if graph.fits else _misfit(graph_id, graph, bindings)
        graph.fits = error is None
        types = graph.outputs
        if len(types) != len(bindings.outputs):
            types = (None,) * len(bindings.outputs)  # type: ignore[assignment]
        if not bindings.outputs:
            if error is not None:
                dataflow.report(stream, error)
            return
        outputs = dataflow.begin_outputs(bindings.outputs, types, stream)
        try:
            if error is not None:
                raise error
            inputs = dataflow.find_all(bindings.inputs)
            _check_types(graph_id, graph, inputs)
        except GpuwireError as misfit:
            dataflow.fail_all(outputs, stream, misfit)
            return
        run = _Run(bindings, inputs, outputs, stream, place)
        if graph.runnable is not None:
            self._kept.move_to_end(graph_id)
            self._start(graph, run)
            return
        if self._waiting >= MAX_WAITING_RUNS:
            raise breached("runs of missing graphs", self._waiting + 1, MAX_WAITING_RUNS)
        self._waiting += 1
        graph.waiting.append(run)
        if len(graph.waiting) == 1:
            self._savings.missed(graph_id, "its client is asked for it")
            self._reply(GraphMissing(graph_id))

    def _start(self, graph: _Graph, run: _Run) -> None:
        assert graph.runnable is not None
        scalars = run.bindings.scalars
        work = Work(graph.runnable, run.place, run.stream, run.inputs, scalars, run.outputs)
        self._dataflow.start(work)

    def _note_run(self, task: RunGraph, graph: _Graph, before: OperationCounts | None) -> None:
        """Counts a run, and tells of it if `before` are the session's operations before it. A run
        that still waits for its inputs has none to tell of yet."""
        said, is_new = _said_bytes(task), task.definition is not None
        if task.definition is not None:
            graph.bound_bytes = said
            said += len(task.definition)
        classes = ""
        if before is not None:
            now = self._dataflow.operations.counts
            classes = op_classes(
                tuple(map(sub, now.fused, before.fused)),
                tuple(map(sub, now.unfused, before.unfused)),
            )
        full = graph.definition_bytes + graph.bound_bytes
        self._savings.ran(task.graph, graph.ops, full, said, is_new=is_new, classes=classes)

    def _fail_unbound(self, task: RunGraph, stream: Stream, error: GpuwireError) -> None:
        """Fails the outputs of a run as far as it names them."""
        ids: tuple[TensorId, ...] = ()
        if task.base is not None and task.outputs is not None:
            ids = tuple([TensorId(task.base + distance) for distance in task.outputs])
        if not ids or not 1 <= min(ids) <= max(ids) <= I64_HIGHEST:
            self._dataflow.report(stream, error)
            return
        outputs = self._dataflow.begin_outputs(ids, (None,) * len(ids), stream)
        self._dataflow.fail_all(outputs, stream, error)

    # --- The table ---

    def _register(self, graph_id: GraphId, definition: Buffer) -> None:
        runnable = self._runnable(definition)
        op_graph = runnable.graph
        scalars = [
            ref for node in op_graph.nodes for ref in node.operands if isinstance(ref, ScalarRef)
        ]
        self._graphs[graph_id] = _Graph(
            op_graph.inputs,
            tuple(scalars),
            tuple([op_graph.nodes[output.index].type for output in op_graph.outputs]),
            len(op_graph.nodes),
            runnable,
            len(definition) * HELD_PER_DEFINITION_BYTE,
        )
        self._keep(graph_id)
        self._give_up_oldest()

    def _restore(self, graph_id: GraphId, graph: _Graph, definition: Buffer) -> None:
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

    def _runnable(self, definition: Buffer) -> RunnableGraph:
        decoded = decode_definition(definition, self._limits)
        graph = typed_graph(decoded.inputs, decoded.nodes, decoded.outputs)
        return runnable_graph(graph, decoded.locations, recurs=decoded.recurs)

    def _keep(self, graph_id: GraphId) -> None:
        self._kept[graph_id] = None
        self._held_bytes += self._graphs[graph_id].held_bytes

    def _give_up_oldest(self) -> None:
        bounds = self._bounds
        while len(self._kept) > bounds.max_graphs or self._held_bytes > bounds.max_bytes:
            if len(self._kept) == 1:
                break  # The one that is to be run now.
            oldest, _ = self._kept.popitem(last=False)
            self._graphs[oldest].runnable = None
            self._savings.evictions += 1
            self._held_bytes -= self._graphs[oldest].held_bytes

    def _forget_oldest(self) -> None:
        while len(self._graphs) > MAX_REMEMBERED or self._remembered_ids > MAX_REMEMBERED_IDS:
            oldest, graph = next(iter(self._graphs.items()))
            if graph.waiting or len(self._graphs) == 1:
                break
            del self._graphs[oldest]
            self._remembered_ids -= graph.remembered_ids
            if self._kept.pop(oldest, graph) is None:
                self._held_bytes -= graph.held_bytes


def _said_bytes(task: RunGraph) -> int:
    """About how many bytes the bindings of a run took on the wire."""
    said = 12 + len(task.scalars) + 10 * len({id(scalar) for _, scalar in task.scalars})
    for numbers in (task.inputs, task.outputs, task.dropped):
        said += 2 * len(numbers) if numbers else 1
    return said


def _misfit(graph_id: GraphId, graph: _Graph, bindings: Bindings) -> GraphBindingError | None:
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


def _check_types(graph_id: GraphId, graph: _Graph, inputs: tuple[Tensor, ...]) -> None:
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
