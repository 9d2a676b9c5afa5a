"""Recording: types at the user's line, ids, ownership, drops and order over threads."""

from __future__ import annotations

import gc
import sys
import threading
from collections import deque
from dataclasses import dataclass, field

import pytest

from gpuwire.client.batch import Batches
from gpuwire.client.locations import LocationTable
from gpuwire.client.op_by_op import OpByOp
from gpuwire.client.recorder import INPUTS_MAX, Recorder
from gpuwire.client.tensor import Tensor
from gpuwire.errors import (
    ArgumentError,
    DeviceClosed,
    DeviceMismatch,
    DTypeError,
    ShapeError,
    UnsupportedDType,
)
from gpuwire.ids import StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, AxisAttributes, CastAttributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.wire.codec import decode_tasks
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import DropTensors, RegisterTensor, RunOperation, Task

STREAM = StreamId(0)
ADD, CAST, CONCAT = OPERATIONS["add"], OPERATIONS["cast"], OPERATIONS["concat"]
MATRIX = TensorType(dt.float32, (2, 3))


@dataclass
class Recording:
    """A recorder and what comes out of it."""

    dtypes: frozenset[DType] = frozenset({dt.bool_, dt.int32, dt.float32})
    wakes: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        dropped: deque[TensorId] = deque()
        self.locations = LocationTable()
        self.batches = Batches(
            dropped, flush_threshold=4, flush_bytes_threshold=1 << 20, frame_bytes=1 << 20
        )
        self.recorder = Recorder(
            OpByOp(self.batches),
            dropped,
            lock=threading.RLock(),
            wake=self.wakes.append,
            locations=self.locations,
            dtypes=self.dtypes,
            device="llvmpipe at box:4433",
        )

    def tensor(self, type: TensorType = MATRIX) -> Tensor:
        return self.recorder.register(STREAM, self.recorder.request(), type, bytes(type.nbytes))

    def sent(self) -> list[Task]:
        self.recorder.flush()
        tasks: list[Task] = []
        while batch := self.batches.take():
            encoded = batch.frame_tasks()
            tasks += decode_tasks(b"".join(encoded), len(encoded), DEFAULT_LIMITS)
        return tasks


@pytest.fixture
def recording() -> Recording:
    return Recording()


def test_an_operation_is_a_task_over_ids_and_its_result_has_a_type(recording: Recording) -> None:
    x = recording.tensor()
    y = recording.recorder.operation(STREAM, ADD, (x, Scalar(1.0, dt.float32)), NO_ATTRIBUTES)
    assert y.type == MATRIX
    register, run = recording.sent()
    assert isinstance(register, RegisterTensor) and register.tensor == x.id
    assert isinstance(run, RunOperation)
    assert run.operation.inputs == (x.id, Scalar(1.0, dt.float32))
    assert run.operation.output == y.id != x.id


def test_the_task_carries_the_line_of_the_program(recording: Recording) -> None:
    x = recording.tensor()
    line = sys._getframe().f_lineno + 1
    recording.recorder.operation(STREAM, ADD, (x, x), NO_ATTRIBUTES)
    run = recording.sent()[1]
    assert isinstance(run, RunOperation)
    assert recording.locations.text(run.operation.location) == f"{__file__}:{line}"


def test_what_cannot_be_right_is_raised_here_and_sends_nothing(recording: Recording) -> None:
    x, wide = recording.tensor(), recording.tensor(TensorType(dt.float32, (2, 4)))
    recording.sent()
    for _ in range(2):  # A refusal is no less one for having been met before.
        with pytest.raises(ShapeError, match=r"\(2, 3\) and \(2, 4\)"):
            recording.recorder.operation(STREAM, ADD, (x, wide), NO_ATTRIBUTES)
        with pytest.raises(DTypeError):
            flags = recording.tensor(TensorType(dt.bool_, (2, 3)))
            recording.recorder.operation(STREAM, ADD, (flags, flags), NO_ATTRIBUTES)
    assert not [task for task in recording.sent() if isinstance(task, RunOperation)]


def test_a_type_that_the_device_lacks_is_refused_with_what_to_use(recording: Recording) -> None:
    x = recording.tensor()
    with pytest.raises(
        UnsupportedDType, match="llvmpipe at box:4433 has no float64; use float32"
    ) as e:
        recording.recorder.operation(STREAM, CAST, (x,), CastAttributes(dt.float64))
    assert (e.value.dtype, e.value.instead) == ("float64", "float32")
    with pytest.raises(UnsupportedDType, match="no int64; use int32"):
        recording.recorder.operation(STREAM, ADD, (x, Scalar(1, dt.int64)), NO_ATTRIBUTES)
    with pytest.raises(UnsupportedDType, match="no complex64; it has bool, int32, float32"):
        recording.recorder.check_dtype(dt.complex64, "upload")


def test_a_tensor_of_another_session_is_refused(recording: Recording) -> None:
    other = Recording()
    with pytest.raises(DeviceMismatch, match="another session with llvmpipe"):
        recording.recorder.operation(
            STREAM, ADD, (recording.tensor(), other.tensor()), NO_ATTRIBUTES
        )
    with pytest.raises(DeviceMismatch):
        recording.recorder.check_owner("read", other.tensor())


def test_more_inputs_than_the_wire_takes_are_refused_here(recording: Recording) -> None:
    x = recording.tensor()
    with pytest.raises(ArgumentError, match="1001 arrays"):
        recording.recorder.operation(STREAM, CONCAT, [x] * (INPUTS_MAX + 1), AxisAttributes(0))
    most = recording.recorder.operation(STREAM, CONCAT, [x] * INPUTS_MAX, AxisAttributes(0))
    assert most.type.shape == (2 * INPUTS_MAX, 3)
    assert len(recording.sent()) == 2  # And the wire does take that many.


def test_a_dead_tensor_is_dropped_after_its_last_use(recording: Recording) -> None:
    x = recording.tensor()
    y = recording.recorder.operation(STREAM, ADD, (x, x), NO_ATTRIBUTES)
    name = x.id
    del x
    gc.collect()
    *_, last = recording.sent()
    assert last == DropTensors((name,))
    del y


def test_a_tensor_may_die_while_the_lock_is_held(recording: Recording) -> None:
    lock = threading.RLock()
    held = Recorder(
        OpByOp(recording.batches),
        deque(),
        lock=lock,
        wake=lambda urgent: None,
        locations=recording.locations,
        dtypes=recording.dtypes,
        device="d",
    )
    tensor = held.register(STREAM, held.request(), MATRIX, bytes(24))
    died = threading.Event()

    def let_go() -> None:
        nonlocal tensor
        del tensor
        died.set()

    with lock:
        threading.Thread(target=let_go).start()
        assert died.wait(10)


def test_after_the_end_everything_raises_why(recording: Recording) -> None:
    x = recording.tensor()
    recording.recorder.end(DeviceClosed("closed"))
    recording.recorder.end(DeviceClosed("closed twice"))
    errors = []
    for _ in range(2):
        with pytest.raises(DeviceClosed, match=r"^closed$") as caught:
            recording.recorder.operation(STREAM, ADD, (x, x), NO_ATTRIBUTES)
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert len(recording.sent()) == 1  # What was recorded before still goes.


def test_a_wanted_reply_closes_the_batch_at_once(recording: Recording) -> None:
    x = recording.tensor()
    assert recording.batches.take() is None
    recording.recorder.read(STREAM, recording.recorder.request(), x)
    assert recording.wakes[-1]
    assert recording.batches.take() is not None


def test_a_producer_goes_out_before_its_consumers_whatever_the_thread(
    recording: Recording,
) -> None:
    newest = [recording.tensor()]
    start = threading.Barrier(4)

    def work(stream: StreamId) -> None:
        start.wait()
        for _ in range(300):
            newest.append(
                recording.recorder.operation(stream, ADD, (newest[-1], newest[0]), NO_ATTRIBUTES)
            )

    threads = [threading.Thread(target=work, args=(StreamId(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    made: set[TensorId] = set()
    for task in recording.sent():
        if isinstance(task, RegisterTensor):
            made.add(task.tensor)
        elif isinstance(task, RunOperation):
            assert made.issuperset(task.operation.inputs)  # type: ignore[arg-type]
            made.add(task.operation.output)
    assert len(made) == 1201
