"""What recording one operation costs the calling thread, and where the time goes.

    python tests/bench/bench_recording.py [--json PATH]

Pure: no server and no event loop, so that nothing else runs meanwhile.
"""

from __future__ import annotations

import threading
import timeit
from collections import deque
from collections.abc import Callable

from report import Report

from gpuwire.client.batch import Batches
from gpuwire.client.locations import LocationTable
from gpuwire.client.op_by_op import OpByOp
from gpuwire.client.recorder import Recorder
from gpuwire.ids import LocationId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.operations import OPERATIONS, Operation
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.wire.codec import encode_task
from gpuwire.wire.messages import RunOperation

STREAM = StreamId(0)
ADD = OPERATIONS["add"]
COUNT = 10_000


def microseconds(function: Callable[[], object], after: Callable[[], None]) -> list[float]:
    """Per call, one value a round; `after` cleans up between rounds."""
    values = []
    for _ in range(15):
        values.append(timeit.timeit(function, number=COUNT) / COUNT * 1e6)
        after()
    return values


def deep(function: Callable[[], object], depth: int) -> object:
    """Calls `function` with that many frames of this file between."""
    return function() if depth == 0 else deep(function, depth - 1)


def main() -> None:
    dropped: deque[TensorId] = deque()
    batches = Batches(
        dropped, flush_threshold=4, flush_bytes_threshold=1 << 20, frame_bytes=1 << 20
    )
    recorder = Recorder(
        OpByOp(batches),
        dropped,
        lock=threading.RLock(),
        wake=lambda urgent: None,
        locations=LocationTable(),
        dtypes=frozenset(dt.ALL_DTYPES),
        device="no device",
    )

    def discard() -> None:
        batches.close()
        while batches.take():
            pass

    type_ = TensorType(dt.float32, (64, 64))
    x = recorder.register(STREAM, recorder.request(), type_, b"")
    one = Scalar(1.0, dt.float32)
    operation = Operation(ADD, (x.id, x.id), TensorId(2), NO_ATTRIBUTES, LocationId(1))
    task = RunOperation(STREAM, operation)
    inside = LocationTable(__file__)  # For it, this file's frames are not the user's.
    outside = LocationTable()
    report = Report("recording one operation, client side without a link")
    report.add(
        "x + y, recorded, sent to a batch, dropped",
        microseconds(lambda: recorder.operation(STREAM, ADD, (x, x), NO_ATTRIBUTES), discard),
        "µs",
        at_most=12,
    )
    report.add(
        "x + 1.0",
        microseconds(lambda: recorder.operation(STREAM, ADD, (x, one), NO_ATTRIBUTES), discard),
        "µs",
        at_most=12,
    )
    report.add("  of it: encoding", microseconds(lambda: encode_task(task), discard), "µs")
    report.add("  encoding and batch", microseconds(lambda: batches.add(task), discard), "µs")
    report.add("  the line, no frame between", microseconds(outside.here, discard), "µs")
    plain = microseconds(lambda: deep(int, 6), discard)
    walked = microseconds(lambda: deep(inside.here, 6), discard)
    report.add(
        "  the line, 8 frames between",
        [a - b for a, b in zip(walked, plain, strict=True)],
        "µs",
        at_most=1.5,
    )
    report.finish()


if __name__ == "__main__":
    main()
