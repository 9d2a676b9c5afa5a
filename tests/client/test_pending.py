"""Pending replies: each caller gets its own answer, or why there is none."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from gpuwire.client.pending import PendingReplies
from gpuwire.errors import (
    ExecutionError,
    GpuwireError,
    LinkLost,
    MalformedMessage,
    UnexpectedMessage,
)
from gpuwire.ids import RequestId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.messages import BulkHeader, Done, Failed, TensorData
from gpuwire.wire.records import from_record, to_record

ONE, TWO = RequestId(1), RequestId(2)
TYPE = TensorType(dt.float32, (2, 3))
VALUES = np.arange(6, dtype="<f4").reshape(2, 3)


def replies() -> PendingReplies:
    return PendingReplies(lambda failed: from_record(failed.error))


def test_a_short_tensor_comes_in_its_reply_and_belongs_to_the_caller() -> None:
    pending = replies()
    future: Future[Any] = Future()
    pending.expect(ONE, TYPE, future)
    pending.take(TensorData(ONE, TYPE, VALUES.tobytes()))
    array = future.result(timeout=0)
    assert np.array_equal(array, VALUES)
    array[0, 0] = 7  # It has memory of its own.
    assert len(pending) == 0


@pytest.mark.parametrize("reply_first", [True, False])
def test_a_long_tensor_is_whole_when_stream_and_reply_have_come(reply_first: bool) -> None:
    pending = replies()
    future: Future[Any] = Future()
    pending.expect(ONE, TYPE, future)
    if reply_first:
        pending.take(TensorData(ONE, TYPE, None))
    target = pending.bulk_begins(BulkHeader(ONE, TYPE.nbytes))
    assert target is not None
    target[:] = VALUES.tobytes()
    assert not future.done()
    pending.bulk_ended(ONE)
    if not reply_first:
        assert not future.done()
        pending.take(TensorData(ONE, TYPE, None))
    array = future.result(timeout=0)
    assert np.array_equal(array, VALUES)
    assert np.shares_memory(array, np.frombuffer(target, np.uint8))  # Received in place.


def test_a_long_tensor_goes_on_over_another_link_in_the_same_memory() -> None:
    pending = replies()
    future: Future[Any] = Future()
    pending.expect(ONE, TYPE, future)
    header, octets = BulkHeader(ONE, TYPE.nbytes), VALUES.tobytes()
    assert pending.progress() == ()
    for start, end in ((0, 5), (5, 5), (5, TYPE.nbytes)):
        target = pending.bulk_begins(header)
        assert target is not None and len(target) == TYPE.nbytes - start
        target[: end - start] = octets[start:end]
        if end < TYPE.nbytes:
            pending.bulk_interrupted(ONE, end - start)
            assert pending.progress() == ((ONE, end),)
    pending.bulk_ended(ONE)
    pending.take(TensorData(ONE, TYPE, None))
    assert np.array_equal(future.result(timeout=0), VALUES)


def test_a_server_that_did_not_hear_of_an_end_is_told_and_its_stream_not_wanted() -> None:
    pending = replies()
    for number in range(1, 400):
        request = RequestId(number)
        pending.expect(request, TYPE, Future())
        pending.bulk_begins(BulkHeader(request, TYPE.nbytes))
        pending.bulk_ended(request)
        pending.take(TensorData(request, TYPE, None))
    assert pending.progress()[-1] == (399, TYPE.nbytes)
    assert 128 <= len(pending.progress()) <= 256
    assert pending.bulk_begins(BulkHeader(RequestId(399), TYPE.nbytes)) is None


def test_done_answers_a_sync() -> None:
    pending = replies()
    future: Future[Any] = Future()
    pending.expect(ONE, None, future)
    pending.take(Done(ONE))
    assert future.result(timeout=0) is None


def test_a_failure_reaches_its_caller_alone() -> None:
    pending = replies()
    failing: Future[Any] = Future()
    other: Future[Any] = Future()
    pending.expect(ONE, TYPE, failing)
    pending.expect(TWO, TYPE, other)
    record = to_record(ExecutionError("add failed", operation="add"))
    pending.take(Failed(ONE, record, location=0))
    assert isinstance(failing.exception(timeout=0), ExecutionError)
    assert not other.done()


def test_a_lost_link_fails_all_and_whatever_is_asked_later() -> None:
    pending = replies()
    futures: list[Future[Any]] = [Future() for _ in range(100)]
    for number, future in enumerate(futures, start=1):
        pending.expect(RequestId(number), TYPE, future)
    pending.fail_all(LinkLost("gone", seconds=3.0))
    late: Future[Any] = Future()
    pending.expect(RequestId(101), TYPE, late)
    errors = [future.exception(timeout=0) for future in (*futures, late)]
    assert all(isinstance(error, LinkLost) and error.seconds == 3.0 for error in errors)
    assert len(set(map(id, errors))) == len(errors)  # Each raises an object of its own.
    assert len(pending) == 0


def test_who_has_left_is_not_written_to() -> None:
    pending = replies()
    future: Future[Any] = Future()
    pending.expect(ONE, TYPE, future)
    future.cancel()
    assert pending.bulk_begins(BulkHeader(ONE, TYPE.nbytes)) is None
    pending.take(TensorData(ONE, TYPE, None))
    assert len(pending) == 0


def test_a_read_whose_bytes_cannot_be_taken_fails_by_itself() -> None:
    pending = replies()
    future: Future[Any] = Future()
    pending.expect(ONE, TYPE, future)
    pending.fail(ONE, GpuwireError("no memory"))
    pending.take(TensorData(ONE, TYPE, None))
    assert isinstance(future.exception(timeout=0), GpuwireError)
    assert len(pending) == 0


@pytest.mark.parametrize(
    "reply",
    [
        TensorData(ONE, TensorType(dt.float32, (6,)), VALUES.tobytes()),
        TensorData(ONE, TYPE, VALUES.tobytes()[:-1]),
        Done(ONE),
    ],
)
def test_an_answer_that_does_not_fit_is_the_servers_fault(reply: TensorData | Done) -> None:
    pending = replies()
    pending.expect(ONE, TYPE, Future())
    with pytest.raises(MalformedMessage):
        pending.take(reply)


@pytest.mark.parametrize("header", [BulkHeader(ONE, 23), BulkHeader(TWO, 24)])
def test_a_bulk_stream_that_does_not_fit_is_refused_before_memory_is_taken(
    header: BulkHeader,
) -> None:
    pending = replies()
    pending.expect(ONE, TYPE, Future())
    with pytest.raises(MalformedMessage):
        pending.bulk_begins(header)


def test_a_second_bulk_stream_for_one_read_is_refused() -> None:
    pending = replies()
    pending.expect(ONE, TYPE, Future())
    pending.bulk_begins(BulkHeader(ONE, TYPE.nbytes))
    with pytest.raises(MalformedMessage):
        pending.bulk_begins(BulkHeader(ONE, TYPE.nbytes))


def test_an_answer_to_nothing_is_refused() -> None:
    with pytest.raises(UnexpectedMessage):
        replies().take(Done(ONE))
