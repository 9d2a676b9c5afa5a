"""What the client did when, while a profile is taken: recording, encoding, waiting.

Times are seconds since 1970 by this machine's clock. Without a profile nothing here exists: the
recorder's sink is wrapped for its duration, and the writer and the waits look for a timeline once
for each frame and wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from gpuwire.client.batch import Upload
from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.client.recorder import TaskSink
from gpuwire.client.signatures import Signature
from gpuwire.ids import GraphId, LocationId, StreamId, TensorId
from gpuwire.ir.operations import Operand
from gpuwire.ir.tensors import Scalar
from gpuwire.wire.messages import Task

MAX_SPANS = 200_000
GAP_SECONDS = 100e-6
"""Operations recorded within so long of each other are one span."""


@dataclass(slots=True)
class Span:
    """Something that took a while."""

    track: str
    name: str
    began: float
    ended: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class SentFrame:
    """A frame on its way."""

    number: int
    tasks: int
    nbytes: int
    began: float
    """Its encoding."""
    sent: float


class Timeline:
    """Collects spans. From any thread."""

    def __init__(self) -> None:
        self.began = time.time()
        self.spans: list[Span] = []
        self.frames: list[SentFrame] = []
        self.left_out = 0
        self._lock = threading.Lock()
        self._recording: dict[int, Span] = {}
        """Each thread's latest span of recording."""

    def recorded(self, began: float) -> None:
        """This thread recorded something from `began` until now."""
        now, thread = time.time(), threading.get_ident()
        with self._lock:
            span = self._recording.get(thread)
            if span is not None and began - span.ended < GAP_SECONDS:
                span.ended = now
                span.count += 1
                return
            track = f"recording: {threading.current_thread().name}"
            span = self._recording[thread] = Span(track, "record", began, now)
            self._add(span)

    def waited(self, what: str, began: float) -> None:
        """This thread waited from `began` until now."""
        track = f"waiting: {threading.current_thread().name}"
        with self._lock:
            self._add(Span(track, what, began, time.time()))

    def sent(self, number: int, tasks: int, nbytes: int, began: float) -> None:
        """A frame was put together from `began` until now, and goes out."""
        with self._lock:
            if len(self.frames) < MAX_SPANS:
                self.frames.append(SentFrame(number, tasks, nbytes, began, time.time()))
            else:
                self.left_out += 1

    def _add(self, span: Span) -> None:
        if len(self.spans) < MAX_SPANS:
            self.spans.append(span)
        else:
            self.left_out += 1


class TimedSink:
    """A recorder's sink that notes how long recording takes."""

    def __init__(self, sink: TaskSink, timeline: Timeline) -> None:
        self.sink = sink
        self._timeline = timeline

    def operation(
        self,
        stream: StreamId,
        signature: Signature,
        operands: tuple[Operand, ...],
        output: TensorId,
        location: LocationId,
    ) -> bool:
        began = time.time()
        ready = self.sink.operation(stream, signature, operands, output, location)
        self._timeline.recorded(began)
        return ready

    def run(
        self,
        stream: StreamId,
        graph: RecordedGraph,
        inputs: tuple[TensorId, ...],
        scalars: tuple[Scalar, ...],
        ids: Iterator[TensorId],
    ) -> tuple[tuple[TensorId, ...], bool]:
        began = time.time()
        made = self.sink.run(stream, graph, inputs, scalars, ids)
        self._timeline.recorded(began)
        return made

    def add(self, task: Task, upload: Upload | None = None) -> bool:
        began = time.time()
        ready = self.sink.add(task, upload)
        self._timeline.recorded(began)
        return ready

    def add_urgent(self, task: Task) -> None:
        began = time.time()
        self.sink.add_urgent(task)
        self._timeline.recorded(began)

    def close(self) -> bool:
        return self.sink.close()

    def idle(self, now: float) -> float | None:
        return self.sink.idle(now)

    def graph_missing(self, graph: GraphId) -> None:
        self.sink.graph_missing(graph)

    def interrupted(self) -> None:
        self.sink.interrupted()
