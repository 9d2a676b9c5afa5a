"""Replies that are waited for, by request id.

How many may be in flight has no bound, and need none: each costs about 300 bytes here, and the
memory for a tensor's bytes is taken only when the server begins to send them.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gpuwire.client.transfers import Transfer
from gpuwire.errors import GpuwireError, MalformedMessage, UnexpectedMessage
from gpuwire.ids import RequestId
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import Answer, BulkHeader, Done, Failed, Progress, TensorData

HostArray = np.ndarray[Any, np.dtype[Any]]

_ENDED_KEPT = 256
"""Of those whose end a server may not have heard of there are at most 128, the bulk streams that it
may have open."""


class Completion(Protocol):
    """Who waits: an asyncio future, or a thread behind a lock. Completed once, unless `done()`
    says that it no longer cares."""

    def done(self) -> bool:
        """Whether it is completed, cancelled or abandoned."""

    def set_result(self, result: Any, /) -> None:
        """The host array of a read, None of a sync, the reply of another request."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Why there is no result."""


AnswerKind = type[Answer]


@dataclass(slots=True, eq=False)
class PendingReply:
    """One reply that is to come. A read whose bytes travel on a bulk stream is complete when both
    that stream and the reply have come, in whichever order."""

    completion: Completion
    type: TensorType | None
    """Of the tensor that is read; None where the answer is `Done`."""
    array: HostArray | None = None
    is_filled: bool = False
    """A bulk stream is being taken into the array."""
    taken: int = 0
    """Bytes of the array that came over links that are gone."""
    bulk_ended: bool = False
    data_replied: bool = False
    answer: AnswerKind = Done
    """What answers it, where that is no tensor."""
    transfer: Transfer | None = None
    """Told how far a bulk stream is, where someone may look."""


class PendingReplies:
    """The replies that one session waits for.

    `expect` on any thread; the others on the event loop's alone. What does not fit what was asked
    for is the peer's fault and raises a `ProtocolError`.
    """

    def __init__(self, explain: Callable[[Failed], GpuwireError]) -> None:
        """`explain` turns a failure into the error that the caller gets."""
        self._explain = explain
        self._waiting: dict[RequestId, PendingReply] = {}
        self._bulk_ended: OrderedDict[RequestId, int] = OrderedDict()
        """Bulk streams that ended last, and their lengths."""
        self._ended: GpuwireError | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(
        self,
        request: RequestId,
        type: TensorType | None,
        completion: Completion,
        transfer: Transfer | None = None,
    ) -> None:
        """Completes `completion` when the answer to `request` comes; at once with the cause if the
        link is gone. `type` is that of the tensor asked for, None for a sync."""
        self._waiting[request] = PendingReply(completion, type, transfer=transfer)
        # After the entry is in: fail_all may run on another thread between the two.
        if self._ended is not None and self._waiting.pop(request, None) is not None:
            completion.set_exception(fresh(self._ended))

    def expect_answer(
        self, request: RequestId, answer: type[Answer], completion: Completion
    ) -> None:
        """As `expect`, for an answer of another kind, which `completion` gets; None for `Done`."""
        self._waiting[request] = PendingReply(completion, None, answer=answer)
        if self._ended is not None and self._waiting.pop(request, None) is not None:
            completion.set_exception(fresh(self._ended))

    def take(self, reply: Answer) -> None:
        """Takes a reply in."""
        pending = self._waiting.get(reply.request)
        if pending is None:
            raise UnexpectedMessage(
                f"the server answered request {reply.request}, which is not waiting",
                kind=type(reply).__name__,
            )
        match reply:
            case Failed():
                self._complete(reply.request, pending, error=self._explain(reply))
            case Done():
                _refuse_unless(
                    pending.type is None and pending.answer is Done, "Done in answer to a question"
                )
                self._complete(reply.request, pending)
            case TensorData(data=None):
                self._check_type(pending, reply)
                pending.data_replied = True
                self._complete_if_whole(reply.request, pending)
            case TensorData(data=data):
                self._check_type(pending, reply)
                assert data is not None
                pending.array = _array_of(reply.type, data)
                self._complete(reply.request, pending)
            case _:
                kind = type(reply)
                _refuse_unless(pending.answer is kind, f"{kind.__name__}, which was not asked for")
                self._complete(reply.request, pending, answer=reply)

    def bulk_begins(self, header: BulkHeader) -> memoryview | None:
        """Where a bulk stream's bytes go: the very memory of the array that the caller gets, from
        where an earlier link left off. None where nobody cares any more, or all of it is here.
        Raises MemoryError if there is no room."""
        if header.request in self._bulk_ended:
            return None
        pending = self._waiting.get(header.request)
        _refuse_unless(
            pending is not None and pending.type is not None and not pending.is_filled,
            f"bulk stream for request {header.request}, which awaits none",
        )
        assert pending is not None and pending.type is not None
        _refuse_unless(
            header.length == pending.type.nbytes,
            f"bulk stream of {header.length} bytes for a tensor of {pending.type.nbytes}",
        )
        if pending.completion.done():
            self.bulk_ended(header.request)
            return None
        if pending.array is None:
            pending.array = np.empty(pending.type.shape, little_endian(pending.type))
        pending.is_filled = True
        return pending.array.reshape(-1).view(np.uint8).data[pending.taken :]

    def bulk_moved(self, request: RequestId, count: int) -> None:
        """So many bytes of it have come."""
        pending = self._waiting.get(request)
        if pending is not None and pending.transfer is not None:
            pending.transfer.moved(count)

    def bulk_ended(self, request: RequestId) -> None:
        """The memory that `bulk_begins` gave is filled, or needs not be."""
        pending = self._waiting.get(request)
        if pending is None or pending.type is None:
            return
        self._bulk_ended[request] = pending.type.nbytes
        if len(self._bulk_ended) > _ENDED_KEPT:
            self._bulk_ended.popitem(last=False)
        pending.bulk_ended = True
        self._complete_if_whole(request, pending)

    def bulk_interrupted(self, request: RequestId, taken: int) -> None:
        """The stream broke off after so many further bytes: the rest comes over another link, or a
        failure in its place."""
        pending = self._waiting.get(request)
        if pending is not None:
            pending.is_filled = False
            pending.taken += taken

    def progress(self) -> Progress:
        """How much came of the bulk streams that the next link goes on with. Named besides are
        those that ended last: the server may not know it."""
        begun = [
            (request, pending.taken)
            for request, pending in tuple(self._waiting.items())
            if pending.array is not None and not pending.bulk_ended
        ]
        return (*begun, *self._bulk_ended.items())[: DEFAULT_LIMITS.max_resumed_transfers]

    def fail(self, request: RequestId, error: GpuwireError) -> None:
        """Fails a read whose bulk stream could not be taken in."""
        pending = self._waiting.get(request)
        if pending is None:
            return
        if not pending.completion.done():
            pending.completion.set_exception(error)
        self.bulk_ended(request)

    def forget(self, request: RequestId) -> None:
        """The request was not recorded after all."""
        self._waiting.pop(request, None)

    def fail_all(self, cause: GpuwireError) -> None:
        """Fails whatever waits now and whatever is expected from now on."""
        self._ended = cause
        while self._waiting:
            try:
                _, pending = self._waiting.popitem()
            except KeyError:  # `expect` on another thread failed it itself.
                break
            if not pending.completion.done():
                pending.completion.set_exception(fresh(cause))

    def _check_type(self, pending: PendingReply, reply: TensorData) -> None:
        _refuse_unless(
            pending.type == reply.type, f"{reply.type} in answer to a request for {pending.type}"
        )
        if reply.data is not None:
            _refuse_unless(
                len(reply.data) == reply.type.nbytes,
                f"{len(reply.data)} bytes for {reply.type}, which has {reply.type.nbytes}",
            )

    def _complete_if_whole(self, request: RequestId, pending: PendingReply) -> None:
        if pending.bulk_ended and pending.data_replied:
            self._complete(request, pending)

    def _complete(
        self,
        request: RequestId,
        pending: PendingReply,
        *,
        answer: object = None,
        error: GpuwireError | None = None,
    ) -> None:
        self._waiting.pop(request, None)
        if pending.completion.done():
            return
        if error is not None:
            pending.completion.set_exception(error)
        else:
            pending.completion.set_result(pending.array if answer is None else answer)


def fresh(error: GpuwireError) -> GpuwireError:
    """A copy to raise: one error object raised in several threads would mix their tracebacks."""
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def little_endian(type: TensorType) -> np.dtype[Any]:
    """The NumPy type of a tensor's bytes as they travel."""
    return type.dtype.numpy.newbyteorder("<")


def _array_of(type: TensorType, data: bytes | memoryview) -> HostArray:
    """A host array with memory of its own, so that it may be written to."""
    return np.frombuffer(data, little_endian(type)).reshape(type.shape).copy()


def _refuse_unless(fits: bool, what: str) -> None:
    if not fits:
        raise MalformedMessage(f"the server sent {what}", what="reply")
