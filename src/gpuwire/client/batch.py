"""Batches of tasks: one open, the closed ones waiting to be sent.

A batch closes by count, by tensor bytes, by encoded length, or because it is told to. Batching
is about the wire alone: each task keeps its own stream and request id, and the order of tasks
over all batches is the order in which they were added, so that a tensor's producer always goes
out before its consumers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat, starmap

from gpuwire.client.pending import Completion
from gpuwire.client.transfers import Transfer
from gpuwire.ids import RequestId, TensorId
from gpuwire.telemetry.trace_context import TraceContext
from gpuwire.wire.codec import encode_task
from gpuwire.wire.messages import DropTensors, RegisterTensor, Task

BATCH_OVERHEAD_BYTES = 600
"""What a batch of four small tasks occupies in memory besides its encoded bytes."""

DROPS_PER_TASK = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """The bytes of a tensor too long to travel inside its task."""

    request: RequestId
    data: memoryview
    is_snapshot: bool
    """Whether `data` is a copy of ours; else it is the caller's own memory, and the caller waits
    for `completion`, which comes when that memory is no longer needed."""
    completion: Completion | None
    transfer: Transfer | None = None
    """Told how far it is, where someone may look."""
    item_bytes: int = 0
    """Of one element, which helps to compress; 0: it is sent as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class UploadTask:
    """The encoded task of an upload, together with it: they are queued in one step."""

    encoded: bytes
    upload: Upload


@dataclass(frozen=True, slots=True)
class FrameOrigin:
    """For which of the program's spans a batch is sent, where that is traced."""

    parent: TraceContext
    links: tuple[TraceContext, ...]
    closed_ns: int
    """When the batch closed, since 1970."""


@dataclass(slots=True, eq=False)
class TaskBatch:
    """Encoded tasks in order, and the tensors that died while it was open."""

    tasks: list[bytes | UploadTask] = field(default_factory=list)
    dropped: list[TensorId] = field(default_factory=list)
    tensor_bytes: int = 0
    """Of the tensors registered here, wherever their bytes travel."""
    encoded_bytes: int = 0
    snapshot_bytes: int = 0
    origin: FrameOrigin | None = None

    @property
    def held_bytes(self) -> int:
        """Memory that it occupies here while it waits."""
        return self.encoded_bytes + self.snapshot_bytes + BATCH_OVERHEAD_BYTES

    def frame_tasks(self) -> list[bytes]:
        """What a frame of this batch consists of. The drops go last: no use comes after them."""
        tasks = [task.encoded if isinstance(task, UploadTask) else task for task in self.tasks]
        for start in range(0, len(self.dropped), DROPS_PER_TASK):
            ids = tuple(self.dropped[start : start + DROPS_PER_TASK])
            tasks.append(encode_task(DropTensors(ids)))
        return tasks

    def uploads(self) -> list[Upload]:
        """The uploads that its tasks name."""
        return [task.upload for task in self.tasks if isinstance(task, UploadTask)]


@dataclass(frozen=True, slots=True, eq=False)
class BatchMark:
    """A batch and how many tasks it had."""

    batch: TaskBatch
    tasks: int

    def is_same_batch(self, other: BatchMark | None) -> bool:
        return other is not None and other.batch is self.batch


class Batches:
    """The queue of batches. Its last one is always the open one.

    `add` and `close` are called under the session's lock, `take` by the one thread that sends.
    Appending a fresh batch to the queue is what closes the batch before it: one step, so that a
    KeyboardInterrupt, which may come between any two, cannot lose or double a task.
    """

    def __init__(
        self,
        dropped: deque[TensorId],
        *,
        flush_threshold: int,
        flush_bytes_threshold: int,
        frame_bytes: int,
        origin: Callable[[], FrameOrigin | None] | None = None,
    ) -> None:
        """`dropped` is filled by dying tensors and emptied here. A batch closes at
        `flush_threshold` tasks, at `flush_bytes_threshold` bytes of tensors registered in it, or
        when its encoded tasks reach `frame_bytes`. `origin` is asked of each that closes."""
        self._dropped = dropped
        self._flush_threshold = flush_threshold
        self._flush_bytes_threshold = flush_bytes_threshold
        self._frame_bytes = frame_bytes
        self._origin = origin
        self._queue: deque[TaskBatch] = deque([TaskBatch()])
        self._closed_bytes = 0
        self._taken_bytes = 0

    @property
    def has_open(self) -> bool:
        """Whether a task or a dead tensor waits for the open batch to close."""
        return bool(self._queue[-1].tasks or self._dropped)

    @property
    def is_drained(self) -> bool:
        """Whether every closed batch was taken."""
        return len(self._queue) == 1

    @property
    def backlog_bytes(self) -> int:
        """Memory that the closed batches occupy until they are taken."""
        return self._closed_bytes - self._taken_bytes

    def add(self, task: Task, upload: Upload | None = None) -> bool:
        """Encodes a task into the open batch; True if that closed it. `upload` is the one that a
        `RegisterTensor` without data names."""
        encoded = encode_task(task)
        batch = self._queue[-1]
        batch.tasks.append(encoded if upload is None else UploadTask(encoded, upload))
        batch.encoded_bytes += len(encoded)
        if isinstance(task, RegisterTensor):
            batch.tensor_bytes += task.type.nbytes
            if upload is not None and upload.is_snapshot:
                batch.snapshot_bytes += len(upload.data)
        return self._close_if_full(batch)

    def add_encoded(self, encoded: bytes) -> bool:
        """Adds a task that is encoded already and brings no tensor data."""
        batch = self._queue[-1]
        batch.tasks.append(encoded)
        batch.encoded_bytes += len(encoded)
        return self._close_if_full(batch)

    def mark(self) -> BatchMark:
        """The open batch as it is now."""
        return BatchMark(self._queue[-1], len(self._queue[-1].tasks))

    def has_grown_since(self, mark: BatchMark) -> bool:
        """Whether a task was added to the batch that was open then."""
        return len(mark.batch.tasks) > mark.tasks

    def close(self) -> bool:
        """Closes the open batch, with the tensors that have died; False if there is nothing in
        it."""
        batch = self._queue[-1]
        if self._dropped:
            # One call into C: neither a signal nor another thread can come between a pop and its
            # append, so no drop is lost or doubled.
            pops = starmap(self._dropped.popleft, repeat((), len(self._dropped)))
            batch.dropped.extend(pops)
        if not batch.tasks and not batch.dropped:
            return False
        if self._origin is not None and batch.tasks:
            batch.origin = self._origin()
        self._queue.append(TaskBatch())
        self._closed_bytes += batch.held_bytes
        return True

    def _close_if_full(self, batch: TaskBatch) -> bool:
        if (
            len(batch.tasks) >= self._flush_threshold
            or batch.tensor_bytes >= self._flush_bytes_threshold
            or batch.encoded_bytes >= self._frame_bytes
        ):
            return self.close()
        return False

    def take(self) -> TaskBatch | None:
        """The oldest closed batch, or None. The caller sends it."""
        if len(self._queue) == 1:
            return None
        batch = self._queue.popleft()
        self._taken_bytes += batch.held_bytes
        return batch
