"""Batches: when they close, what they hold, and that nothing is lost or reordered."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.client.batch import Batches, TaskBatch, Upload
from gpuwire.ids import RequestId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.codec import decode_tasks
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import DropTensors, ReadTensor, RegisterTensor, Task

MIB = 1024 * 1024
STREAM = StreamId(0)


def batches(
    *, tasks: int = 4, tensor_bytes: int = MIB, frame_bytes: int = MIB
) -> tuple[Batches, deque[TensorId]]:
    dropped: deque[TensorId] = deque()
    made = Batches(
        dropped,
        flush_threshold=tasks,
        flush_bytes_threshold=tensor_bytes,
        frame_bytes=frame_bytes,
    )
    return made, dropped


def read(number: int) -> ReadTensor:
    return ReadTensor(STREAM, RequestId(number), TensorId(number))


def registered(number: int, size: int) -> tuple[RegisterTensor, Upload]:
    """A tensor of `size` bytes whose bytes travel apart."""
    request = RequestId(number)
    type_ = TensorType(dt.uint8, (size,))
    upload = Upload(request, memoryview(bytes(size)), is_snapshot=True, completion=None)
    return RegisterTensor(STREAM, request, TensorId(number), type_, None), upload


def tasks_of(batch: TaskBatch | None) -> list[Task]:
    assert batch is not None
    encoded = batch.frame_tasks()
    return decode_tasks(b"".join(encoded), len(encoded), DEFAULT_LIMITS)


def test_a_batch_closes_at_the_fourth_task() -> None:
    queue, _ = batches()
    assert [queue.add(read(number)) for number in (1, 2, 3, 4, 5)] == [
        False,
        False,
        False,
        True,
        False,
    ]
    assert tasks_of(queue.take()) == [read(1), read(2), read(3), read(4)]
    assert queue.take() is None


def test_a_batch_closes_at_a_mebibyte_of_tensors_whatever_the_count() -> None:
    queue, _ = batches(tasks=100)
    assert not queue.add(*registered(1, MIB // 2))
    assert not queue.add(*registered(2, MIB // 2 - 1))
    assert queue.add(*registered(3, 1))


def test_only_tensor_bytes_count_and_taking_starts_the_sum_anew() -> None:
    queue, _ = batches(tasks=100, tensor_bytes=1000)
    for number in range(1, 50):  # Some 300 bytes of encoded reads.
        assert not queue.add(read(number))
    assert not queue.add(*registered(50, 999))
    assert queue.close()
    assert queue.take() is not None
    assert not queue.add(*registered(51, 999))
    assert queue.add(*registered(52, 1))


def test_a_batch_closes_before_its_frame_grows_too_long() -> None:
    queue, _ = batches(tasks=10_000, frame_bytes=100)
    closed = [queue.add(read(number)) for number in range(1, 60)]
    assert True in closed
    batch = queue.take()
    assert batch is not None
    assert 100 <= sum(map(len, batch.frame_tasks())) < 120


def test_dead_tensors_travel_last_in_the_batch_that_was_open() -> None:
    queue, dropped = batches()
    queue.add(read(1))
    dropped.extend((TensorId(1), TensorId(2)))
    assert queue.has_open
    assert queue.close()
    assert tasks_of(queue.take()) == [read(1), DropTensors((TensorId(1), TensorId(2)))]
    assert not dropped


def test_dead_tensors_alone_make_a_batch() -> None:
    queue, dropped = batches()
    dropped.append(TensorId(7))
    assert queue.close()
    assert tasks_of(queue.take()) == [DropTensors((TensorId(7),))]


def test_many_dead_tensors_stay_within_the_limit_of_one_task() -> None:
    queue, dropped = batches()
    count = DEFAULT_LIMITS.max_dropped_tensors * 2 + 1
    dropped.extend(TensorId(number) for number in range(1, count + 1))
    queue.close()
    found = [
        tensor
        for task in tasks_of(queue.take())
        if isinstance(task, DropTensors)
        for tensor in task.tensors
    ]
    assert found == list(range(1, count + 1))


def test_closing_nothing_makes_no_batch() -> None:
    queue, _ = batches()
    assert not queue.close()
    assert queue.is_drained
    assert queue.take() is None


def test_an_upload_stays_with_the_batch_of_its_task() -> None:
    queue, _ = batches()
    task, upload = registered(1, MIB)
    assert queue.add(task, upload)
    batch = queue.take()
    assert tasks_of(batch) == [task]
    assert batch is not None and batch.uploads() == [upload]


def test_the_backlog_counts_closed_batches_until_they_are_taken() -> None:
    queue, _ = batches(tasks=1)
    task, upload = registered(1, 5000)
    queue.add(task, upload)
    assert queue.backlog_bytes > 5000
    queue.take()
    assert queue.backlog_bytes == 0


ACTIONS = st.one_of(
    st.tuples(st.just("read"), st.just(0)),
    st.tuples(st.just("register"), st.integers(0, 600)),
    st.tuples(st.just("drop"), st.integers(1, 10**6)),
    st.tuples(st.just("close"), st.just(0)),
    st.tuples(st.just("take"), st.just(0)),
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    actions=st.lists(ACTIONS, max_size=60),
    tasks=st.integers(1, 6),
    tensor_bytes=st.integers(1, 1000),
)
def test_every_task_goes_out_once_in_order_within_the_thresholds(
    actions: list[tuple[str, int]], tasks: int, tensor_bytes: int
) -> None:
    queue, dropped = batches(tasks=tasks, tensor_bytes=tensor_bytes)
    added: list[Task] = []
    taken: list[TaskBatch] = []
    for number, (action, value) in enumerate(actions, start=1):
        if action == "read":
            added.append(read(number))
            queue.add(read(number))
        elif action == "register":
            task, upload = registered(number, value)
            added.append(task)
            queue.add(task, upload)
        elif action == "drop":
            dropped.append(TensorId(value))
        elif action == "close":
            queue.close()
        elif batch := queue.take():
            taken.append(batch)
    queue.close()
    while batch := queue.take():
        taken.append(batch)

    sent = [task for batch in taken for task in tasks_of(batch)]
    assert [task for task in sent if not isinstance(task, DropTensors)] == added
    drops = [tensor for task in sent if isinstance(task, DropTensors) for tensor in task.tensors]
    assert drops == [value for action, value in actions if action == "drop"]
    assert queue.backlog_bytes == 0
    for batch in taken:
        sizes = [
            task.type.nbytes if isinstance(task, RegisterTensor) else 0 for task in tasks_of(batch)
        ]
        assert sizes
        assert len(batch.tasks) <= tasks
        # Only its last task may have brought it to the threshold.
        assert sum(sizes) - (sizes[len(batch.tasks) - 1] if batch.tasks else 0) < tensor_bytes


@pytest.mark.parametrize("size", [1, MIB])
def test_memory_for_snapshots_is_part_of_the_backlog(size: int) -> None:
    queue, _ = batches(tasks=1)
    queue.add(*registered(1, size))
    assert size <= queue.backlog_bytes < size + 1000
