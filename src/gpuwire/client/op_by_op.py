"""Without the op-graph cache: every op is a task of its own, sent as it is recorded."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwire.client.batch import DROPS_PER_TASK, Batches, BatchMark, Upload
from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.client.signatures import Signature
from gpuwire.errors import UnexpectedMessage
from gpuwire.ids import GraphId, LocationId, StreamId, TensorId
from gpuwire.ir.graphs import InputRef, NodeRef, ScalarRef, ValueRef
from gpuwire.ir.operations import Operand, Operation
from gpuwire.ir.tensors import Scalar
from gpuwire.wire.messages import DropTensors, RunOperation, Task

IDLE_SECONDS = 0.001
"""A batch is sent when it has been open for so long."""
TIMER_SLACK = 0.0002
"""A timer may come a little early."""


class BatchTimer:
    """Closes a batch that has been open for `IDLE_SECONDS`."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._opened: BatchMark | None = None
        self._since = 0.0

    def idle(self, now: float) -> float | None:
        """Closes the open batch if it is due; else in how many seconds it is, None if it is
        empty."""
        if not self._batches.has_open:
            return None
        mark = self._batches.mark()
        if not mark.is_same_batch(self._opened):
            self._opened, self._since = mark, now
        left = self._since + IDLE_SECONDS - now
        if left > TIMER_SLACK:
            return left
        self._batches.close()
        return None


class OpByOp:
    """A `TaskSink` that hands on what it takes."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._timer = BatchTimer(batches)

    @property
    def has_open(self) -> bool:
        return self._batches.has_open

    def operation(
        self,
        stream: StreamId,
        signature: Signature,
        operands: tuple[Operand, ...],
        output: TensorId,
        location: LocationId,
    ) -> bool:
        operation = Operation(
            signature.definition, operands, output, signature.attributes, location
        )
        return self._batches.add(RunOperation(stream, operation))

    def run(
        self,
        stream: StreamId,
        graph: RecordedGraph,
        inputs: tuple[TensorId, ...],
        scalars: tuple[Scalar, ...],
        ids: Iterator[TensorId],
    ) -> tuple[tuple[TensorId, ...], bool]:
        """A task for each node, and those that drop what is no output."""
        made: list[TensorId] = []
        ready = False

        def bound(operand: ValueRef) -> Operand:
            match operand:
                case NodeRef(index):
                    return made[index]
                case InputRef(index):
                    return inputs[index]
                case ScalarRef(index):
                    return scalars[index]

        for node, location in zip(graph.graph.nodes, graph.locations, strict=True):
            operands = tuple([bound(operand) for operand in node.operands])
            made.append(next(ids))
            operation = Operation(node.definition, operands, made[-1], node.attributes, location)
            ready |= self._batches.add(RunOperation(stream, operation))
        outputs = tuple([made[output.index] for output in graph.graph.outputs])
        temporaries = sorted(set(made).difference(outputs))
        for start in range(0, len(temporaries), DROPS_PER_TASK):
            dropped = tuple(temporaries[start : start + DROPS_PER_TASK])
            ready |= self._batches.add(DropTensors(dropped))
        return outputs, ready

    def add(self, task: Task, upload: Upload | None = None) -> bool:
        return self._batches.add(task, upload)

    def add_urgent(self, task: Task) -> None:
        self._batches.add(task)
        self._batches.close()

    def close(self) -> bool:
        return self._batches.close()

    def idle(self, now: float) -> float | None:
        return self._timer.idle(now)

    def graph_missing(self, graph: GraphId) -> None:
        raise UnexpectedMessage(
            f"the server wants graph {graph}, which it was never sent", kind="GraphMissing"
        )

    def interrupted(self) -> None:
        """Nothing here spans two steps."""
