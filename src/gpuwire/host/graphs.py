"""The op-graphs that a session has registered, and running them.

When one that was given up (`graph_table`) is to be run again after all, the client is asked for its
definition: meanwhile its runs wait as work waits for an upload, with their inputs held and their
outputs on their way, so that nothing is lost and nothing runs twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import sub

from gpuwire.errors import GpuwireError, MalformedMessage, UnknownGraph
from gpuwire.host.dataflow import Dataflow
from gpuwire.host.graph_table import (
    GraphBounds,
    GraphTable,
    KeptGraph,
    WaitingRun,
    check_types,
    misfit,
)
from gpuwire.host.work import KnownGraph, Stream, Work
from gpuwire.ids import GraphId, TensorId
from gpuwire.lowering.counting import OperationCounts
from gpuwire.telemetry.logs import Logger
from gpuwire.telemetry.savings import Savings, op_classes
from gpuwire.telemetry.snapshots import CacheCounts
from gpuwire.wire.bindings import Bindings, bindings_of
from gpuwire.wire.fields import I64_HIGHEST, breached
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import DefineGraph, GraphMissing, RunGraph

MAX_WAITING_RUNS = 65_536
"""Runs that wait for a definition; a client that goes on above this is broken."""


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
        self._waiting = 0
        self._savings = Savings(logger)
        self._table = GraphTable(limits, bounds, self._savings)
        self._found = [0, 0]
        """Misses and hits."""

    def run(self, task: RunGraph) -> None:
        """Registers the graph if its definition came along, and runs it now, or when its inputs and
        its definition are there. `ProtocolError` for what is no run of a graph; a definition that
        is none, and what does not fit the graph, fail the run's outputs."""
        dataflow = self._dataflow
        stream = dataflow.stream(task.stream)
        if task.definition is not None:
            if self._table.find(task.graph) is not None:
                raise MalformedMessage(f"graph {task.graph} is registered already", what="graph id")
            try:
                self._table.register(task.graph, task.definition)
            except GpuwireError as error:
                self._fail_unbound(task, stream, error)
                return
        graph = self._table.find(task.graph)
        if graph is None:
            unknown = UnknownGraph(
                f"graph {task.graph} was never registered in this session", graph=task.graph
            )
            self._fail_unbound(task, stream, unknown)
            return
        bindings, last = bindings_of(task, graph.last)
        self._table.remember(task.graph, graph, last)
        graph.runs += 1
        if task.definition is None:
            self._found[graph.runnable is not None] += 1
        tells = self._savings.logger.wants_full
        counts = dataflow.operations.counts if tells else None  # Adding them up costs 3 µs.
        self._run_bound(task.graph, graph, bindings, stream)
        self._note_run(task, graph, counts)
        for tensor_id in bindings.dropped:
            dataflow.tensors.drop(tensor_id)
        self._table.forget_oldest()

    def define(self, task: DefineGraph) -> None:
        """Takes a definition that was asked for, and runs what waits for it."""
        graph = self._table.find(task.graph)
        if graph is None or graph.runnable is not None:
            return
        waiting, graph.waiting = graph.waiting, []
        self._waiting -= len(waiting)
        try:
            if task.definition is None:
                raise UnknownGraph(
                    f"graph {task.graph} was given up on both sides", graph=task.graph
                )
            self._table.restore(task.graph, graph, task.definition)
        except GpuwireError as error:
            for run in waiting:
                self._dataflow.fail_all(run.outputs, run.stream, error)
            return
        for run in waiting:
            self._start(graph, run)
        self._table.give_up_oldest()

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
        for graph_id, graph in self._table.latest():
            yield KnownGraph(
                graph_id, graph.ops, graph.runs, graph.definition_bytes, graph.runnable
            )

    # --- Runs ---

    def _run_bound(
        self, graph_id: GraphId, graph: KeptGraph, bindings: Bindings, stream: Stream
    ) -> None:
        dataflow = self._dataflow
        place = dataflow.take_places(graph.ops)
        error = None if graph.fits else misfit(graph_id, graph, bindings)
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
            check_types(graph_id, graph, inputs)
        except GpuwireError as why:
            dataflow.fail_all(outputs, stream, why)
            return
        run = WaitingRun(bindings, inputs, outputs, stream, place)
        if graph.runnable is not None:
            self._table.use(graph_id)
            self._start(graph, run)
            return
        if self._waiting >= MAX_WAITING_RUNS:
            raise breached("runs of missing graphs", self._waiting + 1, MAX_WAITING_RUNS)
        self._waiting += 1
        graph.waiting.append(run)
        if len(graph.waiting) == 1:
            self._savings.missed(graph_id, "its client is asked for it")
            self._reply(GraphMissing(graph_id))

    def _start(self, graph: KeptGraph, run: WaitingRun) -> None:
        assert graph.runnable is not None
        scalars = run.bindings.scalars
        work = Work(graph.runnable, run.place, run.stream, run.inputs, scalars, run.outputs)
        self._dataflow.start(work)

    def _note_run(self, task: RunGraph, graph: KeptGraph, before: OperationCounts | None) -> None:
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


def _said_bytes(task: RunGraph) -> int:
    """About how many bytes the bindings of a run took on the wire."""
    said = 12 + len(task.scalars) + 10 * len({id(scalar) for _, scalar in task.scalars})
    for numbers in (task.inputs, task.outputs, task.dropped):
        said += 2 * len(numbers) if numbers else 1
    return said
