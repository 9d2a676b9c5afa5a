"""What a device host tells whoever watches, and what it costs.

The front asks, a few times a second, for as long as somebody watches; every question is also a
lease for two seconds or so. Operations are counted where they pass anyway, and a snapshot takes the
counts together; so while somebody watches, an operation pays for an event (1 µs) as long as there
is room for one, 1,024 times a second at most, and otherwise, as without a viewer, one attribute
test. What changes slowly and is long, kernels and graphs, is told once a second.
`tests/bench/bench_watching.py` measures it.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Iterable

from gpuwire.compute.memory.report import PoolReport
from gpuwire.compute.server import WgpuServer
from gpuwire.host.kernel_times import KernelTimes
from gpuwire.host.node_graphs import NodeGraphs
from gpuwire.host.work import KnownGraph, Work
from gpuwire.ir.graphs import InputRef, Node, NodeRef, OpGraph, ValueRef
from gpuwire.ir.operations import OpClass
from gpuwire.ir.tensors import TensorType
from gpuwire.lowering.counting import Tally
from gpuwire.telemetry.probe import Probe
from gpuwire.telemetry.snapshots import (
    CacheCounts,
    Count,
    EventName,
    GraphDrawing,
    GraphSnapshot,
    HostSessionSnapshot,
    HostSnapshot,
    NodeSnapshot,
    PoolSnapshot,
)

EVENTS_PER_SNAPSHOT = 256
TOLD_GRAPHS = 40
"""Of one session, the most recently run."""
DRAWN_NODES = 400
KEPT_SUMMARIES = 4096
KEPT_ERRORS = 64
DETAIL_SECONDS = 0.9
"""Kernels and graphs are told at every fourth question, or when nobody watches."""
ERROR_LETTERS = 300


class HostWatch:
    """What is told of one device host. `Device` holds it; sessions get a `SessionWatch` each."""

    def __init__(self, server: WgpuServer, graphs: NodeGraphs, operations: Tally) -> None:
        """`operations` counts those of all sessions."""
        self.probe = Probe(EVENTS_PER_SNAPSHOT)
        self.failures = 0
        self._server = server
        self._graphs = graphs
        self._operations = operations
        self.kernels = KernelTimes(server)
        self._other: Counter[str] = Counter()
        """Uploads, reads and syncs."""
        self._summaries: dict[int, GraphSummary] = {}
        self._ended = CacheCounts()
        self._ended_ops: Counter[str] = Counter()
        """Of sessions that are over."""
        self._told_ops: Counter[str] | None = None
        """As of the snapshot before; None where nobody watched then."""
        self._told_pieces = 0
        self._detail_due = 0.0

    def session(self, number: int) -> SessionWatch:
        """The part of a session."""
        return SessionWatch(self, number)

    def session_ended(self, counts: CacheCounts, ops: Counter[str]) -> None:
        """Keeps what a session that ends has counted."""
        self._ended = _sum((self._ended, counts))
        self._ended_ops += ops
        self._forget_unwatched()

    def summary(self, graph: OpGraph) -> GraphSummary:
        """What is said of a graph, made once for each."""
        summary = self._summaries.get(id(graph))
        if summary is None:
            if len(self._summaries) >= KEPT_SUMMARIES:
                self._summaries.clear()
            summary = self._summaries[id(graph)] = GraphSummary(graph)
        return summary

    # --- Called while there is room for an event ---

    def begin(self, session: int) -> float:
        """Work of a session is about to be run; the time, for `ran`."""
        self.kernels.session = session
        return time.time()

    def ran(self, session: SessionWatch, work: Work, began: float) -> None:
        """Work was run, or has been queued to run."""
        now = time.time()
        summary = self._summaries.get(id(work.runnable.graph)) or self.summary(work.runnable.graph)
        waited = now - session.arrived if session.arrived else -1.0
        seconds = max(now - began, 0.0)
        self.probe.add(now, waited, seconds, session.frame, session.number, summary.name)

    def came(self, session: SessionWatch, kind: str, type_: TensorType | None) -> None:
        """A task came that is no operation. While watched."""
        self._other[kind] += 1
        if self.probe.is_open:
            shape, nbytes = ("", 0) if type_ is None else (str(type_), type_.nbytes)
            now = time.time()
            waited = now - session.arrived if session.arrived else -1.0
            name = EventName(kind, kind, shape, nbytes)
            self.probe.add(now, waited, 0.0, session.frame, session.number, name)

    # --- Asked by the front ---

    def watch(self, seconds: float, *, closely: bool = False) -> None:
        """Somebody watches for so long from now, at least; `closely`, as a profile does, has more
        launches timed, for which the work may pay."""
        if not self.probe.watched:
            self.kernels.start()
        self.kernels.is_close = closely
        self.probe.watch(time.monotonic(), seconds)

    def expire(self) -> None:
        """Ends the watch if nobody has renewed it."""
        if self.probe.expire(time.monotonic()):
            self.kernels.stop()
            self._other.clear()
            self._summaries.clear()
            self._told_ops = None

    def tell_all(self) -> None:
        """The next snapshot is to tell of kernels and graphs too."""
        self._detail_due = 0.0

    @property
    def is_detail_due(self) -> bool:
        """Whether the next snapshot tells of kernels and graphs."""
        return not self.probe.watched or time.monotonic() >= self._detail_due

    def snapshot(self, sessions: Iterable[SessionFacts]) -> HostSnapshot:
        """All of it now; operations and events since the call before."""
        is_detailed = self.is_detail_due
        if is_detailed:
            self._detail_due = time.monotonic() + DETAIL_SECONDS
        report = self._server.memory_overview()
        told = tuple(sessions)
        cache = _sum((self._ended, *(facts.cache for facts in told)))
        counts, pieces = self._counts_since(told, cache.runs)
        events, dropped = self.probe.take(pieces)
        self._forget_unwatched()
        return HostSnapshot(
            time.time(),
            self._server.timing_method.value,
            report.bytes_in_use,
            report.bytes_reserved,
            self.failures,
            tuple(_pool(pool) for pool in report.pools),
            tuple(facts.snapshot for facts in told),
            cache,
            tuple(Count(kind, count) for kind, count in counts.items()),
            events,
            dropped,
            self.kernels.samples(),
            self.kernels.snapshots() if is_detailed else None,
            tuple(graph for facts in told for graph in facts.graphs) if is_detailed else None,
            time.process_time(),
            _by_class(self._operations.fused()),
            _by_class(self._operations.unfused()),
        )

    def _forget_unwatched(self) -> None:
        """A summary keeps its graph, which is worth it only while somebody asks again."""
        if not self.probe.watched:
            self._summaries.clear()

    def _counts_since(
        self, sessions: Iterable[SessionFacts], graph_runs: int
    ) -> tuple[Counter[str], int]:
        """What has happened since the snapshot before, by kind, and in how many pieces, of which
        each could be an event; nothing in the first."""
        single = self._graphs.counts()
        pieces = sum(single.values()) + graph_runs
        ops = single + self._ended_ops
        for facts in sessions:
            ops += facts.ops
        before, self._told_ops = self._told_ops, ops if self.probe.watched else None
        pieces_before, self._told_pieces = self._told_pieces, pieces
        other, self._other = self._other, Counter()
        if before is None:
            return other, other.total()
        # Of graphs that were given up nothing is known any more: less than before is none.
        return ops - before + other, pieces - pieces_before + other.total()


class SessionWatch:
    """What is told of one session. The caller asks `probe.is_open` first, or `probe.watched`."""

    __slots__ = ("_errors", "_host", "arrived", "frame", "number", "probe")

    def __init__(self, host: HostWatch, number: int) -> None:
        self.probe = host.probe
        self.number = number
        self._host = host
        self.frame = 0
        """The number of the frame that is being run."""
        self.arrived = 0.0
        """When it came; 0 where nobody watched then."""
        self._errors: OrderedDict[int, str] = OrderedDict()
        """The last failure at each place of the program."""

    def begin(self) -> float:
        """Work is about to be run; what `ran` is given, never 0."""
        return self._host.begin(self.number)

    def ran(self, work: Work, began: float) -> None:
        """Work was run."""
        self._host.ran(self, work, began)

    def came(self, kind: str, type_: TensorType | None = None) -> None:
        """An upload, read or sync came."""
        self._host.came(self, kind, type_)

    def failed(self, location: int, error: BaseException) -> None:
        """An operation that was recorded there has failed. Always: it is rare, and whoever comes
        to watch wants to know."""
        self._host.failures += 1
        self._errors[location] = str(error)[:ERROR_LETTERS]
        self._errors.move_to_end(location)
        if len(self._errors) > KEPT_ERRORS:
            self._errors.popitem(last=False)

    def ended(self, facts: SessionFacts) -> None:
        """The session is over."""
        self._host.session_ended(facts.cache, facts.ops)

    def facts(
        self, snapshot: HostSessionSnapshot, cache: CacheCounts, graphs: Iterable[KnownGraph]
    ) -> SessionFacts:
        """The session's part of a snapshot."""
        told: list[GraphSnapshot] = []
        ops: Counter[str] = Counter()
        most = TOLD_GRAPHS if self._host.is_detail_due else 0
        for known in graphs:
            if len(told) < most:
                told.append(self.graph(known))
            if known.runnable is not None:
                for kind, count in self._host.summary(known.runnable.graph).counts:
                    ops[kind] += count * known.runs
        return SessionFacts(snapshot, cache, tuple(told), ops)

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

    __slots__ = ("cache", "graphs", "ops", "snapshot")

    def __init__(
        self,
        snapshot: HostSessionSnapshot,
        cache: CacheCounts,
        graphs: tuple[GraphSnapshot, ...],
        ops: Counter[str],
    ) -> None:
        self.snapshot = snapshot
        self.cache = cache
        self.graphs = graphs
        self.ops = ops
        """Operations in runs of its graphs, by class."""


class GraphSummary:
    """What an event says of a graph, made once."""

    __slots__ = ("counts", "graph", "name")

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        """Kept, so that its identity is not another's meanwhile."""
        self.counts = tuple(Counter(_kind(node) for node in graph.nodes).items())
        node = graph.nodes[-1]
        if len(graph.nodes) == 1:
            self.name = EventName(
                _kind(node), node.definition.name, str(node.type), node.type.nbytes
            )
        else:
            types = [graph.nodes[output.index].type for output in graph.outputs]
            nbytes = sum(type_.nbytes for type_ in types)
            shape = str(types[0]) if types else ""
            self.name = EventName("graph", f"{len(graph.nodes)} operations", shape, nbytes)


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


def _by_class(counts: dict[OpClass, int]) -> tuple[Count, ...]:
    return tuple([Count(op_class.value, count) for op_class, count in counts.items()])


def _sum(counts: Iterable[CacheCounts]) -> CacheCounts:
    told = tuple(counts)
    return CacheCounts(
        sum(count.runs for count in told),
        sum(count.registrations for count in told),
        sum(count.misses for count in told),
        sum(count.baseline_bytes for count in told),
        sum(count.actual_bytes for count in told),
        sum(count.evictions for count in told),
    )
