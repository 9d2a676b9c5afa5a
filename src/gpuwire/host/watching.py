"""What a device host tells whoever watches, and what it costs.

The front asks, a few times a second, for as long as somebody watches; every question is also a
lease for two seconds or so. Without one, the host counts failures and graph runs and does nothing
else: an operation pays one attribute test. While watched, an operation pays a count (0.3 µs) and,
as long as there is room, an event (1.5 µs); a kernel launch pays a count, and a few are timed.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Iterable

from gpuwire.compute.memory.report import PoolReport
from gpuwire.compute.server import WgpuServer
from gpuwire.host.kernel_times import KernelTimes
from gpuwire.host.work import KnownGraph, Work
from gpuwire.ir.graphs import InputRef, Node, NodeRef, OpGraph, ValueRef
from gpuwire.telemetry.probe import Probe
from gpuwire.telemetry.snapshots import (
    CacheCounts,
    Count,
    GraphDrawing,
    GraphSnapshot,
    HostSessionSnapshot,
    HostSnapshot,
    NodeSnapshot,
    OpEvent,
    PoolSnapshot,
)
from gpuwire.wire.messages import ReadTensor, RegisterTensor, SyncStream, Task

EVENTS_PER_SNAPSHOT = 256
TOLD_GRAPHS = 40
"""Of one session, the most recently run."""
DRAWN_NODES = 400
KEPT_SUMMARIES = 4096
KEPT_ERRORS = 64
ERROR_LETTERS = 300


class HostWatch:
    """What is told of one device host. `Device` holds it; sessions get a `SessionWatch` each."""

    def __init__(self, server: WgpuServer) -> None:
        self.probe: Probe[OpEvent] = Probe(EVENTS_PER_SNAPSHOT)
        self.failures = 0
        self._server = server
        self._kernels = KernelTimes(server)
        self._counts: Counter[str] = Counter()
        self._summaries: dict[int, GraphSummary] = {}
        self._ended = CacheCounts()
        """Of sessions that are over."""

    def session(self, number: int) -> SessionWatch:
        """The part of a session."""
        return SessionWatch(self, number)

    def session_ended(self, counts: CacheCounts) -> None:
        """Keeps what a session that ends has counted."""
        self._ended = _sum((self._ended, counts))

    def summary(self, graph: OpGraph) -> GraphSummary:
        """What is said of a graph, made once for each while somebody watches."""
        summary = self._summaries.get(id(graph))
        if summary is None:
            if len(self._summaries) >= KEPT_SUMMARIES:
                self._summaries.clear()
            summary = self._summaries[id(graph)] = GraphSummary(graph)
        return summary

    # --- Called while watched ---

    def ran(self, session: int, work: Work) -> None:
        """Work was run, or has been queued to run."""
        summary = self.summary(work.runnable.graph)
        for kind, count in summary.counts:
            self._counts[kind] += count
        if self.probe.has_room():
            kind, name, shape, nbytes = summary.told
            self.probe.add(OpEvent(time.time(), session, kind, name, shape, nbytes))

    def task(self, session: int, task: Task) -> None:
        """A task that is no operation came; those that nobody wants to see are left out."""
        shape, nbytes = "", 0
        match task:
            case RegisterTensor():
                kind, shape, nbytes = "upload", str(task.type), task.type.nbytes
            case ReadTensor():
                kind = "read"
            case SyncStream():
                kind = "sync"
            case _:
                return
        self._counts[kind] += 1
        if self.probe.has_room():
            self.probe.add(OpEvent(time.time(), session, kind, kind, shape, nbytes))

    # --- Asked by the front ---

    def watch(self, seconds: float) -> None:
        """Somebody watches for so long from now, at least."""
        if not self.probe.watched:
            self._server.observe_launches(self._kernels)
        self.probe.watch(time.monotonic(), seconds)

    def expire(self) -> None:
        """Ends the watch if nobody has renewed it."""
        if self.probe.expire(time.monotonic()):
            self._server.observe_launches(None)
            self._kernels.forget()
            self._counts.clear()
            self._summaries.clear()

    def snapshot(self, sessions: Iterable[SessionFacts]) -> HostSnapshot:
        """All of it now; operations and events since the call before."""
        report = self._server.memory_overview()
        events, dropped = self.probe.take()
        counts, self._counts = self._counts, Counter()
        told = tuple(sessions)
        return HostSnapshot(
            time.time(),
            self._server.timing_method.value,
            report.bytes_in_use,
            report.bytes_reserved,
            self.failures,
            tuple(_pool(pool) for pool in report.pools),
            tuple(facts.snapshot for facts in told),
            _sum((self._ended, *(facts.cache for facts in told))),
            tuple(Count(kind, count) for kind, count in counts.items()),
            events,
            dropped,
            self._kernels.snapshots(),
            tuple(graph for facts in told for graph in facts.graphs),
            time.process_time(),
        )


class SessionWatch:
    """What is told of one session. The caller asks `probe.watched` first."""

    __slots__ = ("_errors", "_host", "number", "probe")

    def __init__(self, host: HostWatch, number: int) -> None:
        self.probe = host.probe
        self.number = number
        self._host = host
        self._errors: OrderedDict[int, str] = OrderedDict()
        """The last failure at each place of the program."""

    def ran(self, work: Work) -> None:
        """Work was run. Only while watched."""
        self._host.ran(self.number, work)

    def task(self, task: Task) -> None:
        """Another task came. Only while watched."""
        self._host.task(self.number, task)

    def failed(self, location: int, error: BaseException) -> None:
        """An operation that was recorded there has failed. Always: it is rare, and whoever comes
        to watch wants to know."""
        self._host.failures += 1
        self._errors[location] = str(error)[:ERROR_LETTERS]
        self._errors.move_to_end(location)
        if len(self._errors) > KEPT_ERRORS:
            self._errors.popitem(last=False)

    def ended(self, counts: CacheCounts) -> None:
        """The session is over."""
        self._host.session_ended(counts)

    def graph(self, known: KnownGraph) -> GraphSnapshot:
        """A graph in a few words."""
        runnable = known.runnable
        error = ""
        if runnable is not None and self._errors:
            found = [self._errors.get(place) for place in runnable.locations]
            error = next((text for text in found if text), "")
        counts = self._host.summary(runnable.graph).counts if runnable is not None else ()
        return GraphSnapshot(
            0,
            self.number,
            known.id,
            known.ops,
            tuple(Count(kind, count) for kind, count in counts),
            known.runs,
            known.definition_bytes,
            runnable is not None,
            error,
        )

    def drawing(self, known: KnownGraph) -> GraphDrawing | None:
        """A graph with its nodes; None where it was given up."""
        runnable = known.runnable
        if runnable is None:
            return None
        graph = runnable.graph
        places = zip(graph.nodes, runnable.locations, strict=True)
        nodes = tuple(
            _node(node, self._errors.get(place, ""))
            for _, (node, place) in zip(range(DRAWN_NODES), places, strict=False)
        )
        return GraphDrawing(
            len(graph.nodes),
            tuple(str(type_) for type_ in graph.inputs),
            tuple(output.index for output in graph.outputs),
            nodes,
        )


class SessionFacts:
    """One session's part of a snapshot."""

    __slots__ = ("cache", "graphs", "snapshot")

    def __init__(
        self,
        snapshot: HostSessionSnapshot,
        cache: CacheCounts,
        graphs: tuple[GraphSnapshot, ...],
    ) -> None:
        self.snapshot = snapshot
        self.cache = cache
        self.graphs = graphs


class GraphSummary:
    """What an event says of a graph, made once."""

    __slots__ = ("counts", "graph", "told")

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        """Kept, so that its identity is not another's meanwhile."""
        self.counts = tuple(Counter(_kind(node) for node in graph.nodes).items())
        node = graph.nodes[-1]
        if len(graph.nodes) == 1:
            self.told = (_kind(node), node.definition.name, str(node.type), node.type.nbytes)
        else:
            types = [graph.nodes[output.index].type for output in graph.outputs]
            nbytes = sum(type_.nbytes for type_ in types)
            shape = str(types[0]) if types else ""
            self.told = ("graph", f"{len(graph.nodes)} operations", shape, nbytes)


def _kind(node: Node) -> str:
    return node.definition.op_class.value


def _node(node: Node, error: str) -> NodeSnapshot:
    operands = tuple(_operand(operand) for operand in node.operands)
    return NodeSnapshot(
        node.definition.name, _kind(node), operands, str(node.type), node.type.nbytes, error
    )


def _operand(operand: ValueRef) -> str:
    letter = "n" if isinstance(operand, NodeRef) else "i" if isinstance(operand, InputRef) else "s"
    return f"{letter}{operand.index}"


def _pool(pool: PoolReport) -> PoolSnapshot:
    return PoolSnapshot(
        pool.name,
        pool.kind.value,
        pool.bytes_in_use,
        pool.bytes_reserved,
        pool.high_water_in_use,
        pool.high_water_reserved,
    )


def _sum(counts: Iterable[CacheCounts]) -> CacheCounts:
    told = tuple(counts)
    return CacheCounts(
        sum(count.runs for count in told),
        sum(count.registrations for count in told),
        sum(count.misses for count in told),
        sum(count.baseline_bytes for count in told),
        sum(count.actual_bytes for count in told),
    )
