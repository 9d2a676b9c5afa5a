"""Work: graphs of one op or of many, bound to the tensors of a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from gpuwire.errors import GpuwireError
from gpuwire.host.node_graphs import NodeGraphs
from gpuwire.host.tensors import Failure, Tensor
from gpuwire.ids import GraphId, LocationId, TensorId
from gpuwire.ir.graphs import InputRef, Node, NodeRef, OpGraph, ScalarRef
from gpuwire.ir.operations import OpClass, Operand, Operation
from gpuwire.ir.tensors import Scalar, TensorType


@dataclass(slots=True, eq=False)
class Window:
    """A window on a stream's time."""

    cause: GpuwireError | None = None
    """What failed within it first."""


@dataclass(slots=True, eq=False)
class Stream:
    """One of the session's streams."""

    number: int
    """Its number on the compute server."""
    unsettled: dict[Tensor, None] = field(default_factory=dict)
    """What its tasks so far will have made, in order of arrival."""
    persistent: bool = False
    """Whether its memory is kept in buckets of exact sizes."""
    windows: list[Window] = field(default_factory=list)
    """Those that are open."""


@dataclass(frozen=True, slots=True)
class RunnableGraph:
    """A typed graph and what the host keeps of it besides."""

    graph: OpGraph
    locations: tuple[LocationId, ...]
    """Where each of its ops was recorded."""
    charges: tuple[int, ...]
    """Bytes that each output may need; 0 for a view of an input."""
    recurs: bool = True
    """Whether it is known to run more than once."""


@dataclass(frozen=True, slots=True)
class KnownGraph:
    """A graph as it is told to whoever watches."""

    id: GraphId
    ops: int
    runs: int
    definition_bytes: int
    runnable: RunnableGraph | None


class FrameTrace(Protocol):
    """A frame whose client traces."""

    def working(self, work: Work) -> AbstractContextManager[None]:
        """Around the running of a piece of its work."""


@dataclass(slots=True, eq=False)
class Work:
    """A graph on its way to be run."""

    runnable: RunnableGraph
    place: int
    """The number of its first op in the session."""
    stream: Stream
    inputs: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...]
    outputs: tuple[Tensor, ...]
    trace: FrameTrace | None = None
    """Where it is told, if its client traces."""

    @property
    def failed_input(self) -> Failure | None:
        """The failure of the first input that has one."""
        for tensor in self.inputs:
            if tensor.failure is not None:
                return tensor.failure
        return None

    @property
    def is_single(self) -> bool:
        return len(self.runnable.graph.nodes) == 1


def runnable_graph(
    graph: OpGraph, locations: tuple[LocationId, ...], *, recurs: bool
) -> RunnableGraph:
    """The graph with its charges. A view of a value that is no output keeps that value's memory."""
    charges = tuple([_charge(graph, output.index) for output in graph.outputs])
    return RunnableGraph(graph, locations, charges, recurs)


def split(work: Work, graphs: NodeGraphs) -> Iterator[Work]:
    """The work op by op: what one op does is then its own affair, and no other op's."""
    runnable = work.runnable
    graph = runnable.graph
    arrival = work.outputs[0].arrival
    kept = {ref.index: tensor for ref, tensor in zip(graph.outputs, work.outputs, strict=True)}
    last_uses = _last_uses(graph)
    made: dict[int, Tensor] = {}
    for number, (node, location) in enumerate(zip(graph.nodes, runnable.locations, strict=True)):
        operands: list[Operand] = []
        inputs: list[Tensor] = []
        types: list[TensorType] = []
        for ref in node.operands:
            match ref:
                case InputRef(index):
                    inputs.append(work.inputs[index])
                    types.append(graph.inputs[index])
                case NodeRef(index):
                    inputs.append(made[index])
                    types.append(graph.nodes[index].type)
                case ScalarRef(index):
                    operands.append(work.scalars[index])
                    continue
            operands.append(TensorId(0))
        output = kept.get(number) or Tensor(node.type, arrival)
        made[number] = output
        operation = Operation(
            node.definition, tuple(operands), TensorId(0), node.attributes, location
        )
        single, scalars = graphs.graph(operation, tuple(types))
        yield Work(
            RunnableGraph(single, (location,), (node.type.nbytes,)),
            work.place + number,
            work.stream,
            tuple(inputs),
            scalars,
            (output,),
        )
        for index in last_uses.get(number, ()):
            del made[index]  # What no later op reads is not kept either.


def _last_uses(graph: OpGraph) -> dict[int, list[int]]:
    """By op: the earlier ops whose results it is the last to read."""
    last: dict[int, int] = {number: number for number in range(len(graph.nodes))}
    for number, node in enumerate(graph.nodes):
        for ref in node.operands:
            if isinstance(ref, NodeRef):
                last[ref.index] = number
    ends: dict[int, list[int]] = {}
    for index, number in last.items():
        ends.setdefault(number, []).append(index)
    return ends


def _charge(graph: OpGraph, index: int) -> int:
    node = graph.nodes[index]
    while is_view(node):
        match node.operands[0]:
            case NodeRef(before):
                node = graph.nodes[before]
            case InputRef():
                return 0
            case _:
                break
    return node.type.nbytes


def is_view(node: Node) -> bool:
    """Whether the result lies in the operand's memory, as a rule: reshape makes a copy where the
    operand is not contiguous."""
    return node.definition.op_class is OpClass.SHAPE and node.definition.name != "concat"
