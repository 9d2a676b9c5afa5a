"""A recorder over the op-graph cache, and a server of integers that runs what comes out of it.

The server does what a real one must: it takes tasks in order and knows nothing else. An op's value
is a number made of its operation and its operands' values, so that an op run over anything but what
the program meant, or not at all, is noticed by whoever reads downstream of it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gpuwire.client.batch import Batches
from gpuwire.client.graph_cache import GraphCache
from gpuwire.client.graph_cache.known import KnownGraphs
from gpuwire.client.op_by_op import OpByOp
from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.client.recorder import Recorder
from gpuwire.client.tensor import Tensor
from gpuwire.ids import GraphId, LocationId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.graphs import InputRef, NodeRef, NodeSource, ScalarRef, typed_graph
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.telemetry.logs import disabled_logger
from gpuwire.telemetry.savings import Savings
from gpuwire.wire.bindings import Bindings, LastRun, bindings_of
from gpuwire.wire.codec import decode_definition, decode_tasks
from gpuwire.wire.definitions import GraphDefinition
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import (
    DefineGraph,
    DropTensors,
    ReadTensor,
    RegisterTensor,
    RunGraph,
    RunOperation,
    SyncStream,
    Task,
)

VECTOR = TensorType(dt.int32, (2,))
OTHER = TensorType(dt.int32, (3,))


def value_of(name: str, operands: tuple[int, ...]) -> int:
    return hash((name, operands)) & 0xFFFF_FFFF_FFFF


def scalar_value(scalar: Scalar) -> int:
    return hash((repr(scalar.value), scalar.dtype.code)) & 0xFFFF_FFFF_FFFF


class IntegerServer:
    """Runs tasks. It keeps at most `graphs` definitions, the least recently run goes first."""

    def __init__(self, graphs: int = 1 << 30) -> None:
        self.values: dict[TensorId, int] = {}
        self.tasks: list[Task] = []
        self.read: list[int] = []
        self.asks: list[GraphId] = []
        """Graphs that it has given up and asks for again."""
        self.held: deque[Task] = deque()
        """Tasks behind the run of a graph that it has asked for."""
        self.runs: list[tuple[int, int]] = []
        """Of each run of a graph: the first tensor of its ops and how many ops it had."""
        self._most_graphs = graphs
        self._definitions: dict[GraphId, GraphDefinition] = {}
        self._last: dict[GraphId, LastRun] = {}
        self._waiting: tuple[GraphId, Bindings] | None = None

    def take(self, task: Task) -> None:
        """Runs a task, or holds it back behind one whose graph is missing."""
        self.tasks.append(task)
        if isinstance(task, DefineGraph):
            assert task.definition is not None
            assert self._waiting is not None and self._waiting[0] == task.graph
            self._define(task.graph, task.definition)
            _, bindings = self._waiting
            self._waiting = None
            self._run_bound(self._definitions[task.graph], bindings)
            while self.held and self._waiting is None:
                self._run(self.held.popleft())
        elif self._waiting is None:
            self._run(task)
        else:
            self.held.append(task)

    def _run(self, task: Task) -> None:
        match task:
            case RunOperation(_, operation):
                operands = tuple(
                    scalar_value(x) if isinstance(x, Scalar) else self.values[x]
                    for x in operation.inputs
                )
                self._make(operation.output, value_of(operation.definition.name, operands))
            case RegisterTensor():
                assert task.data is not None
                self._make(task.tensor, int.from_bytes(task.data, "little"))
            case RunGraph():
                self._run_graph(task)
            case ReadTensor(_, _, tensor):
                self.read.append(self.values[tensor])
            case DropTensors(tensors):
                for tensor in tensors:
                    del self.values[tensor]
            case SyncStream():
                pass

    def _run_graph(self, task: RunGraph) -> None:
        if task.definition is not None:
            self._define(task.graph, task.definition)
        last = None if task.definition is not None else self._last[task.graph]
        bindings, self._last[task.graph] = bindings_of(task, last)
        definition = self._definitions.pop(task.graph, None)
        if definition is None:
            self.asks.append(task.graph)
            self._waiting = task.graph, bindings
            return
        self._definitions[task.graph] = definition
        self._run_bound(definition, bindings)

    def _define(self, graph: GraphId, encoded: bytes | memoryview) -> None:
        self._definitions[graph] = decode_definition(encoded, DEFAULT_LIMITS)
        while len(self._definitions) > self._most_graphs:
            del self._definitions[next(iter(self._definitions))]

    def _run_bound(self, definition: GraphDefinition, bindings: Bindings) -> None:
        typed_graph(definition.inputs, definition.nodes, definition.outputs)
        assert len(bindings.inputs) == len(definition.inputs)
        assert len(bindings.outputs) == len(definition.outputs)
        inputs = [self.values[tensor] for tensor in bindings.inputs]
        made: list[int] = []
        for node in definition.nodes:
            operands = []
            for ref in node.operands:
                match ref:
                    case InputRef(index):
                        operands.append(inputs[index])
                    case NodeRef(index):
                        operands.append(made[index])
                    case _:
                        operands.append(scalar_value(bindings.scalars[ref.index]))
            made.append(value_of(node.definition.name, tuple(operands)))
        for output, tensor in zip(definition.outputs, bindings.outputs, strict=True):
            self._make(tensor, made[output])
        for tensor in bindings.dropped:
            del self.values[tensor]
        self.runs.append((bindings.base, len(definition.nodes)))

    def _make(self, tensor: TensorId, value: int) -> None:
        assert tensor not in self.values
        self.values[tensor] = value


class Lines:
    """Stands for the table of locations: the test says which line is running."""

    def __init__(self) -> None:
        self.line = 1

    def here(self, depth: int = 0) -> LocationId:
        return LocationId(self.line)


@dataclass
class Program:
    """A recorded program, what each of its tensors must be, and the server that it runs on."""

    server: IntegerServer = field(default_factory=IntegerServer)
    known: KnownGraphs | None = None
    now: float = 0.0
    cached: bool = True

    def __post_init__(self) -> None:
        dropped: deque[TensorId] = deque()
        told: deque[TensorId] = deque()
        self.lines = Lines()
        self.batches = Batches(
            told, flush_threshold=4, flush_bytes_threshold=1 << 20, frame_bytes=1 << 20
        )
        self.savings = Savings(disabled_logger("client"))
        self.cache = GraphCache(
            self.batches,
            dropped,
            told,
            clock=lambda: self.now,
            savings=self.savings,
            known=self.known,
        )
        self.recorded: dict[tuple[str, TensorType, TensorType], RecordedGraph] = {}
        self.recorder = Recorder(
            self.cache if self.cached else OpByOp(self.batches),
            dropped if self.cached else told,
            lock=threading.RLock(),
            wake=lambda urgent: None,
            locations=self.lines,  # type: ignore[arg-type]
            dtypes=frozenset({dt.int32, dt.float32}),
            device="integers",
        )
        self.meant: dict[TensorId, int] = {}
        """The value of every tensor, were each op run by itself."""
        self.read_meant: list[int] = []
        self.uploads = 0

    def op(self, name: str, *operands: Tensor | Scalar, stream: int = 0, line: int = 1) -> Tensor:
        self.lines.line = line
        definition = OPERATIONS[name]
        tensor = self.recorder.operation(StreamId(stream), definition, operands, NO_ATTRIBUTES)
        values = tuple(
            scalar_value(x) if isinstance(x, Scalar) else self.meant[x.id] for x in operands
        )
        self.meant[tensor.id] = value_of(name, values)
        return tensor

    def run(
        self, name: str, x: Tensor, y: Tensor, scalar: Scalar, *, stream: int = 0
    ) -> tuple[Tensor, Tensor]:
        """A run of a recorded graph: -x y combined with a number, and -x y, which is made before
        it."""
        key = (name, x.type, y.type)
        if key not in self.recorded:
            sources = (
                NodeSource(OPERATIONS["negative"], (InputRef(0),), NO_ATTRIBUTES),
                NodeSource(OPERATIONS["multiply"], (NodeRef(0), InputRef(1)), NO_ATTRIBUTES),
                NodeSource(OPERATIONS[name], (NodeRef(1), ScalarRef(0, dt.int32)), NO_ATTRIBUTES),
            )
            graph = typed_graph((x.type, y.type), sources, (2, 1))
            self.recorded[key] = self.recorder.recorded(graph, (LocationId(1),) * 3)
        last, middle = self.recorder.run(StreamId(stream), self.recorded[key], (x, y), (scalar,))
        negative = value_of("negative", (self.meant[x.id],))
        self.meant[middle.id] = value_of("multiply", (negative, self.meant[y.id]))
        values = (self.meant[middle.id], scalar_value(scalar))
        self.meant[last.id] = value_of(name, values)
        return last, middle

    def upload(self, *, stream: int = 0, type: TensorType = VECTOR) -> Tensor:
        self.uploads += 1
        data = self.uploads.to_bytes(type.nbytes, "little")
        tensor = self.recorder.register(StreamId(stream), self.recorder.request(), type, data)
        self.meant[tensor.id] = self.uploads
        return tensor

    def read(self, tensor: Tensor, *, stream: int = 0) -> None:
        """A read, which comes back at once with the right value."""
        self.recorder.read(StreamId(stream), self.recorder.request(), tensor)
        self.read_meant.append(self.meant[tensor.id])
        self.serve()
        assert self.server.read == self.read_meant

    def idle(self, seconds: float) -> None:
        """Time passes without an op; the session asks as often as it is told to."""
        end = self.now + seconds
        wait: float | None = 0.0
        while wait is not None and self.now + wait <= end:
            self.now += wait
            wait = self.recorder.idle(self.now)
            assert wait is None or wait > 0
        self.now = end
        self.serve()

    def flush(self) -> None:
        self.recorder.flush()
        self.serve()

    def serve(self) -> None:
        """The server takes what is ready to be sent."""
        while batch := self.batches.take():
            encoded = batch.frame_tasks()
            for task in decode_tasks(b"".join(encoded), len(encoded), DEFAULT_LIMITS):
                self.server.take(task)
            while self.server.asks:
                self.recorder.graph_missing(self.server.asks.pop())

    def run_count(self) -> int:
        """How many graphs ran of the segments closed so far; closes none."""
        self.batches.close()
        self.serve()
        return len(self.server.runs)

    def check_end(self, alive: list[Tensor]) -> None:
        """Everything is sent: the server has what the program has, no less, no more, no other."""
        self.flush()
        self.flush()
        assert not self.server.held
        assert self.server.values == {tensor.id: self.meant[tensor.id] for tensor in alive}

    def graph_tasks(self) -> list[RunGraph]:
        return [task for task in self.server.tasks if isinstance(task, RunGraph)]


def counted(program: Program, work: Callable[[], object]) -> int:
    """How many tasks that make tensors came of some work and a flush."""
    before = len(program.server.tasks)
    work()
    program.flush()
    tasks = program.server.tasks[before:]
    return len([task for task in tasks if isinstance(task, RunGraph | RunOperation)])
