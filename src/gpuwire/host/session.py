"""One session inside the device host: its frames, its tensors, its replies."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuwire.config.models import LogLevel
from gpuwire.errors import GpuwireError, UnknownTensor
from gpuwire.host.black_box import BlackBox
from gpuwire.host.channel_messages import OpenSession, Payload, Replies, TasksTaken, ToFront
from gpuwire.host.dataflow import Dataflow
from gpuwire.host.device import Device
from gpuwire.host.device_face import DeviceFace
from gpuwire.host.downloads import Outlets
from gpuwire.host.front_log import front_logger
from gpuwire.host.graph_table import GraphBounds
from gpuwire.host.graphs import Graphs
from gpuwire.host.reads import Reads
from gpuwire.host.slots import SlotMemory, SlotPool
from gpuwire.host.tensors import Failure, MemoryAccount, Tensor
from gpuwire.host.uploads import Uploads
from gpuwire.host.watching import HostWatch, SessionFacts
from gpuwire.host.work_counts import UntoldCounts
from gpuwire.ids import RequestId
from gpuwire.telemetry.snapshots import GraphDrawing, HostSessionSnapshot
from gpuwire.telemetry.trace_context import TraceContext
from gpuwire.wire.codec import decode_tasks, encode_reply
from gpuwire.wire.device_tasks import LaunchKernel
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import (
    DefineGraph,
    Done,
    DropTensors,
    Failed,
    ReadTensor,
    RegisterTensor,
    Reply,
    RunGraph,
    RunOperation,
    SyncStream,
    Task,
)
from gpuwire.wire.records import to_record

if TYPE_CHECKING:
    from gpuwire.host.tracing import HostTracing, OpenRequests, TracedFrame
    from gpuwire.telemetry.otel import Span

TURN_SECONDS = 0.002
"""How long one session works before the next has its turn."""
MAX_WAITING = 65_536
"""Tasks that wait for tensors or for the client to read; above it no further frame is begun, and
so, in the end, no further one is read from the client."""
REPLY_FRAME_BYTES = 1024 * 1024
"""One frame of replies; a smaller limit of the wire counts."""
TAKEN_STEP_BYTES = 256 * 1024
"""Frames are reported as taken in steps of this size, far below the front's high water: it only
needs to know roughly."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What a session is given: the way to the front, and when it has work."""

    send: Callable[[ToFront], None]
    wake: Callable[[], None]
    memory: SlotMemory
    slots: SlotPool
    limits: WireLimits
    graph_bounds: GraphBounds
    watch: HostWatch
    log_level: LogLevel
    """Of the server's log."""
    tracing: HostTracing | None = None


class HostSession:
    """One session. `take_turn` does its work; everything else only hands it something."""

    def __init__(self, opening: OpenSession, device: Device, ends: Ends) -> None:
        self.number = opening.session
        self.has_turn = False
        """Whether the worker has a turn coming for it."""
        self.account = MemoryAccount(opening.max_memory_bytes)
        self._device = device
        self._ends = ends
        self._watch = ends.watch.session(opening.session)
        self._dataflow = Dataflow(device, self.account, ends.wake, self._watch)
        outlets = Outlets(self._reply, ends.send, ends.wake, ends.memory, ends.slots)
        self.reads = Reads(self.number, device, self.account, outlets)
        self.uploads = Uploads(
            self.number, device, self._dataflow, opening.max_upload_bytes, ends.send
        )
        logger = front_logger(ends.log_level, self.number, ends.send)
        self._graphs = Graphs(self._dataflow, self._reply, ends.limits, ends.graph_bounds, logger)
        self._counts = UntoldCounts(self._dataflow.operations, self._graphs)
        self._box = BlackBox(ends.memory.black_box)
        self.face = DeviceFace(
            self.number, device, self._dataflow, self._box, self._reply, ends.limits
        )
        self._dataflow.tensors.drop_other = self.face.drop
        self._frames: deque[tuple[int, bytes, float, TracedFrame | None]] = deque()
        """Counts, bodies, when they came if somebody watches, spans if their client traces. A frame
        is decoded when its turn comes: tasks that wait as bytes take a tenth of the memory."""
        self._frames_added = 0
        self._span: TraceContext | None = None
        """That of the frame which comes next."""
        self._trace: TracedFrame | None = None
        """Of the frame that is being run."""
        self._requests: OpenRequests | None = None
        """Of those that are traced, and unanswered."""
        self._tasks: deque[Task] = deque()
        """Of the frame that is being run."""
        self._taken = 0
        self._replies: list[bytes] = []
        self._reply_bytes = 0
        self._most_reply_bytes = min(REPLY_FRAME_BYTES, ends.limits.max_frame_bytes * 3 // 4)
        self._syncs: set[asyncio.Task[None]] = set()
        self._waiting_replies = 0
        self._closed = False

    def add_frame(self, count: int, body: Payload) -> None:
        """Queues a frame's tasks."""
        arrived = time.time() if self._watch.probe.watched else 0.0
        self._frames_added += 1
        trace, span = None, self._span
        if span is not None and self._ends.tracing is not None:
            self._span = None
            trace = self._ends.tracing.frame(span, self._frames_added, count)
        self._frames.append((count, bytes(body), arrived, trace))

    def trace_next(self, span: TraceContext) -> None:
        """The frame that is added next belongs to a span."""
        self._span = span

    @property
    def has_work(self) -> bool:
        """Whether a turn would do anything."""
        if self._closed:
            return False
        if self._dataflow.has_ready:
            return True
        return (bool(self._tasks) or bool(self._frames)) and not self._is_full

    def take_turn(self) -> None:
        """Works for `TURN_SECONDS` or until there is nothing to do. `ProtocolError` for a frame
        that is malformed, or a task that no client may send."""
        end = time.monotonic() + TURN_SECONDS
        self._box.note(self.number)
        while self.has_work:
            if self._dataflow.has_ready:
                self._dataflow.run_ready()
            else:
                self._run_next_task()
            if time.monotonic() > end:
                break
        self._box.clear()
        self._report_taken()

    def launched_streams(self) -> tuple[int, ...]:
        """The compute streams that work was put on since the last call."""
        return self._dataflow.launched_streams()

    def owns_stream(self, number: int) -> bool:
        """Whether a compute stream is one of its own. From any thread."""
        return self._dataflow.owns_stream(number)

    def close(self) -> int:
        """Ends the session; returns how many bytes of device memory its tensors held."""
        self._closed = True
        freed = self.account.in_use
        self._frames.clear()
        self._tasks.clear()
        self._replies.clear()
        for sync in self._syncs:
            sync.cancel()
        self._watch.ended(self.facts())
        self.reads.close()
        self.uploads.close()
        self.face.close()
        self._dataflow.close()
        return freed

    def facts(self) -> SessionFacts:
        """What is told of it to whoever watches."""
        dataflow = self._dataflow
        snapshot = HostSessionSnapshot(
            self.number, len(dataflow.tensors), self.account.in_use, dataflow.waiting
        )
        return self._watch.facts(snapshot, self._graphs.counts, self._graphs.known())

    def drawing(self, graph: int) -> GraphDrawing | None:
        """One of its graphs; None if it has none of that number, or has given it up."""
        found = next((known for known in self._graphs.known() if known.id == graph), None)
        return None if found is None else self._watch.drawing(found)

    # --- Tasks ---

    @property
    def _is_full(self) -> bool:
        waiting = self._dataflow.waiting + self.reads.waiting + self._waiting_replies
        return waiting > MAX_WAITING

    def _run_next_task(self) -> None:
        if not self._tasks:
            count, body, self._watch.arrived, self._trace = self._frames.popleft()
            self._watch.frame += 1
            self._tasks.extend(decode_tasks(body, count, self._ends.limits))
            self._taken += len(body)
        if self._tasks:
            task = self._tasks.popleft()
            if self._trace is None:
                self._run(task)
            else:
                self._run_traced(task, self._trace)

    def _report_taken(self) -> None:
        if self._taken >= TAKEN_STEP_BYTES and not self._closed:
            self._ends.send(TasksTaken(self.number, self._taken))
            self._taken = 0

    def _run(self, task: Task) -> None:
        watched = self._watch.probe.watched
        match task:
            case RunOperation(stream, operation):
                self._dataflow.run_operation(operation, stream)
            case RunGraph():
                self._graphs.run(task)
            case DefineGraph():
                self._graphs.define(task)
            case RegisterTensor():
                if watched:
                    self._watch.came("upload", task.type)
                self.uploads.register(task)
            case ReadTensor():
                if watched:
                    self._watch.came("read")
                self._read(task)
            case SyncStream():
                if watched:
                    self._watch.came("sync")
                self._sync(task)
            case DropTensors(tensors):
                for tensor_id in tensors:
                    self._dataflow.tensors.drop(tensor_id)
            case _:
                self.face.run(task)

    def _run_traced(self, task: Task, trace: TracedFrame) -> None:
        from gpuwire.host.tracing import OpenRequests, until_settled

        self._requests = self._requests or OpenRequests()
        span: Span | None = None
        match task:
            case RegisterTensor():
                span = trace.task("upload", task.type)
            case ReadTensor():
                self._requests.begin(task.request, trace.task("read"))
            case SyncStream():
                self._requests.begin(task.request, trace.task("sync"))
        self._dataflow.trace = trace
        try:
            with trace.launching() if isinstance(task, LaunchKernel) else nullcontext():
                self._run(task)
        finally:
            self._dataflow.trace = None
            if not self._tasks:
                trace.ended()
        if isinstance(task, RegisterTensor) and span is not None:
            tensor = self._dataflow.tensors.find(task.tensor)
            if tensor is not None:
                until_settled(span, tensor)

    def _read(self, task: ReadTensor) -> None:
        tensor = self._dataflow.tensors.find(task.tensor)
        if tensor is None:
            error = UnknownTensor(
                f"there is no tensor {task.tensor} in this session", tensor=task.tensor
            )
            self._reply(Failed(task.request, to_record(error), 0))
            return
        if not tensor.settled:
            self._waiting_replies += 1
            tensor.when_settled(lambda: self._read_waited(task, tensor))
            return
        self._read_settled(task, tensor)

    def _read_waited(self, task: ReadTensor, tensor: Tensor) -> None:
        self._waiting_replies -= 1
        self._read_settled(task, tensor)

    def _read_settled(self, task: ReadTensor, tensor: Tensor) -> None:
        if tensor.failure is not None:
            self._reply_failure(task.request, tensor.failure)
        else:
            assert tensor.value is not None
            stream = self._dataflow.stream(task.stream)
            self.reads.read(task.request, tensor.value, stream.number)

    def _sync(self, task: SyncStream) -> None:
        before = self._dataflow.arrivals
        self._waiting_replies += 1

        def tasks_ended() -> None:
            sync = asyncio.ensure_future(self._sync_device(task, before))
            self._syncs.add(sync)
            sync.add_done_callback(self._syncs.discard)

        self._dataflow.when_all_settled(task.stream, tasks_ended)

    async def _sync_device(self, task: SyncStream, before: int) -> None:
        try:
            streams = [stream.number for stream in self._dataflow.streams(task.stream)]
            completions = [self._device.server.sync((), number) for number in streams]
            for completion in completions:
                await completion
        except GpuwireError as error:
            self._device.note(error)
            self._reply(Failed(task.request, to_record(error), 0))
        else:
            failure = self._dataflow.unreported_failure(task.stream, before)
            if failure is None:
                self._reply(Done(task.request))
            else:
                self._reply_failure(task.request, failure)
        finally:
            self._waiting_replies -= 1
            self._ends.wake()

    # --- Replies ---

    def _reply_failure(self, request: RequestId, failure: Failure) -> None:
        failure.reported = True
        self._reply(Failed(request, to_record(failure.error), failure.location))

    def _reply(self, reply: Reply) -> None:
        """Sends a reply with all others of this turn of the loop."""
        if self._closed:
            return
        if self._requests:
            failure = reply.error.message if isinstance(reply, Failed) else ""
            self._requests.answered(getattr(reply, "request", None), failure)
        data = encode_reply(reply)
        if self._reply_bytes + len(data) > self._most_reply_bytes:
            self._send_replies()
        if not self._replies:
            asyncio.get_running_loop().call_soon(self._send_replies)
        self._replies.append(data)
        self._reply_bytes += len(data)
        self.reads.replied(len(data))

    def _send_replies(self) -> None:
        if self._closed or not self._replies:
            return
        replies, self._replies, self._reply_bytes = self._replies, [], 0
        counts = self._counts.take()
        if counts is not None:
            replies.insert(0, encode_reply(counts))
            self.reads.replied(len(replies[0]))
        body = b"".join(replies)
        self._ends.send(Replies(self.number, len(replies), body))
