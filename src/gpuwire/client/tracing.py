"""What a session tells OpenTelemetry: which span each frame is sent for, and how long waits take.

A program records inside its own spans, and a frame goes out later, for several of them at once: it
belongs to the span in which its last work was recorded, and is linked to the others. Without
`remote.tracing` nothing of this exists; the recorder's sink is then the bare one, and the device of
the plain class.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from gpuwire.client.batch import FrameOrigin, Upload
from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.client.recorder import TaskSink
from gpuwire.client.signatures import Signature
from gpuwire.ids import GraphId, LocationId, StreamId, TensorId
from gpuwire.ir.operations import Operand
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.telemetry.otel import PRODUCER, Span, Tracer
from gpuwire.telemetry.trace_context import TraceContext
from gpuwire.wire.messages import Task

MAX_LINKS = 16
"""Spans of the program for which one frame is sent, besides the last."""


class Tracing:
    """The spans of one session. `noted` and `origin` are called under the recorder's lock."""

    def __init__(self, tracer: Tracer, session: str, device: str) -> None:
        """`session` and `device` are what spans call them."""
        self._tracer = tracer
        self._facts = {"session": session, "device": device}
        self._noted: dict[TraceContext, None] = {}
        self._last: TraceContext | None = None

    def waiting(self, what: str, type_: TensorType | None = None) -> AbstractContextManager[None]:
        """A span around a wait of the program's: read, sync, upload."""
        facts: dict[str, str | int] = dict(self._facts)
        if type_ is not None:
            facts |= {"tensor": str(type_), "bytes": type_.nbytes}
        return self._tracer.during(f"gpuwire.{what}", facts)

    def sink(self, sink: TaskSink) -> TracedSink:
        """The recorder's sink, with a note of each caller's span."""
        return TracedSink(sink, self)

    def noted(self) -> None:
        """Something is about to be recorded, in the caller's span."""
        self._last = context = self._tracer.current()
        if context is None:
            return
        # The last comes last, however often it came before.
        self._noted.pop(context, None)
        self._noted[context] = None
        if len(self._noted) > MAX_LINKS + 1:
            del self._noted[next(iter(self._noted))]

    def origin(self) -> FrameOrigin | None:
        """The origin of a batch that closes; None where nothing of it was recorded in a span. What
        was held back for an op-graph, and goes out with nothing new, is its recorder's still."""
        noted, self._noted = tuple(self._noted), {}
        parent = noted[-1] if noted else self._last
        return None if parent is None else FrameOrigin(parent, noted[:-1], time.time_ns())

    def begin_frame(self, origin: FrameOrigin, number: int, tasks: int) -> Span:
        """The span of a frame that is about to be encoded."""
        return self._tracer.begin(
            "gpuwire.frame",
            origin.parent,
            {**self._facts, "frame": number, "tasks": tasks},
            kind=PRODUCER,
            at_ns=origin.closed_ns,
            links=origin.links,
        )

    def close(self) -> None:
        """Hands over what is left. Blocks for a moment."""
        self._tracer.close()


class TracedSink:
    """The recorder's sink, with a note of each caller's span."""

    def __init__(self, sink: TaskSink, tracing: Tracing) -> None:
        self._sink = sink
        self._tracing = tracing

    def operation(
        self,
        stream: StreamId,
        signature: Signature,
        operands: tuple[Operand, ...],
        output: TensorId,
        location: LocationId,
    ) -> bool:
        self._tracing.noted()
        return self._sink.operation(stream, signature, operands, output, location)

    def run(
        self,
        stream: StreamId,
        graph: RecordedGraph,
        inputs: tuple[TensorId, ...],
        scalars: tuple[Scalar, ...],
        ids: Iterator[TensorId],
    ) -> tuple[tuple[TensorId, ...], bool]:
        self._tracing.noted()
        return self._sink.run(stream, graph, inputs, scalars, ids)

    def add(self, task: Task, upload: Upload | None = None) -> bool:
        self._tracing.noted()
        return self._sink.add(task, upload)

    def add_urgent(self, task: Task) -> None:
        self._tracing.noted()
        self._sink.add_urgent(task)

    def close(self) -> bool:
        return self._sink.close()

    def idle(self, now: float) -> float | None:
        return self._sink.idle(now)

    def graph_missing(self, graph: GraphId) -> None:
        self._sink.graph_missing(graph)

    def interrupted(self) -> None:
        self._sink.interrupted()
