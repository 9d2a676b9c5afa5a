"""Recording: from calls of the program to tasks in order.

A call is typed by its operation's rule in the caller's thread, so that what cannot be right is
raised at the line that wrote it; then it is one task, encoded at once into the open batch. The
tasks of all threads go through one lock: a tensor can be handed to another thread only after its
producer was recorded, so its producer is also sent first.

Cost of one small operation: 5 µs, of which 1 is encoding and 0.4 the user's line
(`tests/bench/bench_recording.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Protocol

from gpuwire.client.batch import Upload
from gpuwire.client.capture_windows import CaptureWindows
from gpuwire.client.kernel_launches import DeviceArray
from gpuwire.client.locations import LocationTable
from gpuwire.client.pending import fresh
from gpuwire.client.recorded_graphs import RecordedGraph, recorded_graph
from gpuwire.client.signatures import Signature
from gpuwire.client.tensor import Tensor
from gpuwire.errors import ArgumentError, DeviceMismatch, GpuwireError, UnsupportedDType
from gpuwire.ids import CaptureId, GraphId, KernelId, LocationId, RequestId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import Attributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import OpGraph
from gpuwire.ir.operations import OpDef, Operand
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.references import sole_holders
from gpuwire.wire.device_tasks import Grid, LaunchKernel, ReplayCapture
from gpuwire.wire.messages import (
    ReadTensor,
    RegisterTensor,
    SyncStream,
    Task,
)

_SIGNATURES_MAX = 8192


class TaskSink(Protocol):
    """Where recorded tasks go, in order: the op-graph cache, or straight to the batches."""

    def operation(
        self,
        stream: StreamId,
        signature: Signature,
        operands: tuple[Operand, ...],
        output: TensorId,
        location: LocationId,
    ) -> bool:
        """Takes an operation; True if something is now ready to be sent."""

    def run(
        self,
        stream: StreamId,
        graph: RecordedGraph,
        inputs: tuple[TensorId, ...],
        scalars: tuple[Scalar, ...],
        ids: Iterator[TensorId],
    ) -> tuple[tuple[TensorId, ...], bool]:
        """Takes a run of a graph; the tensors that it makes, with ids taken from `ids`, and whether
        something is now ready to be sent."""

    def add(self, task: Task, upload: Upload | None = None) -> bool:
        """Takes another task, with the upload that it names; True if something is now ready to be
        sent."""

    def add_urgent(self, task: Task) -> None:
        """Takes a task whose reply someone waits for: it is ready to be sent at once, with all that
        it needs."""

    def close(self) -> bool:
        """Makes all that was taken ready to be sent; False if there is nothing."""

    def idle(self, now: float) -> float | None:
        """Makes ready what should wait no longer at `now`, in seconds; in how many it wants to be
        asked again, None if nothing waits."""

    def graph_missing(self, graph: GraphId) -> None:
        """The server wants a graph told again, at once."""

    def interrupted(self) -> None:
        """A call of the others raised, wherever it was: becomes whole again."""


class Recorder:
    """Records the tasks of one session. Every method may be called on any thread.

    It owns the session's tensors: it hands out their ids and hears of their end.
    """

    def __init__(
        self,
        sink: TaskSink,
        dropped: deque[TensorId],
        *,
        lock: AbstractContextManager[object],
        wake: Callable[[bool], None],
        locations: LocationTable,
        dtypes: frozenset[DType],
        device: str,
    ) -> None:
        """`wake(True)` is called when a batch can be sent, `wake(False)` when something was
        recorded that must not wait long: from any thread, and from the garbage collector, so it
        must take no lock. `device` is what errors call the device."""
        self.windows = CaptureWindows()
        """Streams whose kernel launches are captured; everything else on them is refused."""
        self._sink = self._own_sink = sink
        self._dropped = dropped
        self._lock = lock
        self._wake = wake
        self._locations = locations
        self._dtypes = dtypes
        self._device = device
        self._signatures: dict[tuple[object, ...], Signature] = {}
        self._signature_numbers = count(1)
        self._tensor_ids = count(1)
        self._graph_numbers = count(1)
        self._request_ids = count(1)
        self._ended: GpuwireError | None = None

    def time_recording(self, timed: Callable[[TaskSink], TaskSink] | None) -> None:
        """Has all that is recorded from now on pass through what `timed` makes of the sink; None
        ends that."""
        with self._lock:
            self._sink = self._own_sink if timed is None else timed(self._own_sink)

    def operation(
        self,
        stream: StreamId,
        definition: OpDef,
        inputs: Sequence[Tensor | Scalar],
        attributes: Attributes,
    ) -> Tensor:
        """Records one operation; its result is a tensor at once.

        Raises `ShapeError`, `DTypeError`, `UnsupportedDType`, `DeviceMismatch`, or why the session
        ended.
        """
        if self.windows.open:
            self.windows.refuse(stream, definition.name)
        operands: list[Operand] = []
        key: list[object] = [definition, attributes]
        for operand in inputs:
            if isinstance(operand, Tensor):
                if operand.session is not self:
                    raise self._mismatch(definition.name, operand)
                operands.append(operand.id)
                key.append(operand.type)
            else:
                operands.append(operand)
                key.append(operand.dtype)
        signature = self._signatures.get(tuple(key))
        if signature is None:
            signature = self._new_signature(definition, inputs, attributes)
        self._refuse_if_ended()
        with self._lock:
            self._refuse_if_ended()
            tensor = TensorId(next(self._tensor_ids))
            location = self._locations.here(2)
            try:
                ready = self._sink.operation(stream, signature, tuple(operands), tensor, location)
            except BaseException:
                self._sink.interrupted()
                raise
        self._wake(ready)
        return Tensor(tensor, signature.result, self)

    def recorded(self, graph: OpGraph, locations: tuple[LocationId, ...]) -> RecordedGraph:
        """A graph for `run`, its nodes recorded at `locations`. `ArgumentError` for a node that is
        larger than a server takes."""
        return recorded_graph(next(self._graph_numbers), graph, locations)

    def run(
        self,
        stream: StreamId,
        graph: RecordedGraph,
        inputs: Sequence[Tensor],
        scalars: tuple[Scalar, ...],
    ) -> list[Tensor]:
        """Records a run of a graph over tensors and scalars of its types; its outputs are tensors
        at once. Raises `DeviceMismatch`, or why the session ended."""
        self.windows.refuse(stream, "a compiled function")
        ids = []
        for tensor in inputs:
            if tensor.session is not self:
                raise self._mismatch("a compiled function", tensor)
            ids.append(tensor.id)
        self._refuse_if_ended()
        with self._lock:
            self._refuse_if_ended()
            with self._whole():
                made, ready = self._sink.run(
                    stream, graph, tuple(ids), scalars, map(TensorId, self._tensor_ids)
                )
        self._wake(ready)
        return [Tensor(id, type_, self) for id, type_ in zip(made, graph.outputs, strict=True)]

    def launch(
        self,
        stream: StreamId,
        kernel: KernelId,
        grid: Grid,
        arrays: Sequence[DeviceArray],
        written: Sequence[bool],
        params: bytes,
    ) -> None:
        """Records a launch of a kernel; the arrays that it writes are given new tensors at once, of
        the same types. Old ones that nobody else holds go with the launch."""
        targets = [array for array, writes in zip(arrays, written, strict=True) if writes]
        with self._recording():
            given = tuple([array._tensor.id for array in arrays])
            old = tuple([array._tensor for array in targets])
            ids = tuple([TensorId(next(self._tensor_ids)) for _ in targets])
            made = [Tensor(id, tensor.type, self) for id, tensor in zip(ids, old, strict=True)]
            _rename(targets, made)  # From here on nobody can come by an old one.
            spent = sum(1 << number for number, alone in enumerate(sole_holders(old)) if alone)
            try:
                here = self._locations.here(2)
                self._add(LaunchKernel(stream, kernel, grid, given, ids, params, here, spent))
            except BaseException:
                _rename(targets, old)
                raise

    def replay(
        self,
        stream: StreamId,
        graph: CaptureId,
        inputs: Sequence[tuple[int, Tensor]],
        written: Sequence[int],
        types: Sequence[TensorType],
    ) -> list[Tensor]:
        """Records a replay of a captured graph, with what is to be brought into its memory; what
        it leaves in the memory of the numbers `written`, of those types, are tensors at once."""
        with self._recording():
            ids = [TensorId(next(self._tensor_ids)) for _ in written]
            bound = tuple([(slot, tensor.id) for slot, tensor in inputs])
            results = tuple(zip(written, ids, strict=True))
            here = self._locations.here(2)
            self._add(ReplayCapture(stream, graph, bound, results, here))
        return [Tensor(id, type_, self) for id, type_ in zip(ids, types, strict=True)]

    def new_id(self) -> int:
        """An id out of the row of tensors, for a kernel or a captured graph; `drop` takes it."""
        return next(self._tensor_ids)

    def add(self, task: Task) -> None:
        """Records another task."""
        with self._recording():
            self._add(task)

    def ask(self, task: Task) -> None:
        """Records a task whose reply is waited for and makes it go at once."""
        self._add_at_once(task)

    def location(self) -> LocationId:
        """The line of the innermost caller outside the package."""
        with self._lock:
            return self._locations.here(2)

    def line(self, location: LocationId) -> str | None:
        """`file:line` of a location."""
        return self._locations.text(location)

    def register(
        self, stream: StreamId, request: RequestId, type: TensorType, data: bytes | Upload
    ) -> Tensor:
        """Records a tensor made of bytes from here, which travel inside the task or apart."""
        self.windows.refuse(stream, "an upload")
        inline, upload = (None, data) if isinstance(data, Upload) else (data, None)
        self._refuse_if_ended()
        with self._lock:
            tensor = TensorId(next(self._tensor_ids))
            self._add(RegisterTensor(stream, request, tensor, type, inline), upload)
        return Tensor(tensor, type, self)

    def read(self, stream: StreamId, request: RequestId, tensor: Tensor) -> None:
        """Records a read and makes it go at once: someone waits for the reply."""
        self.windows.refuse(stream, "a read")
        self._add_at_once(ReadTensor(stream, request, tensor.id))

    def sync(self, request: RequestId) -> None:
        """Records a sync of every stream and makes it go at once."""
        self._add_at_once(SyncStream(None, request))

    def request(self) -> RequestId:
        """A new request id."""
        return RequestId(next(self._request_ids))

    def flush(self) -> None:
        """Makes everything recorded so far go; nothing once the session has ended."""
        if self._ended is not None:
            return
        with self._lock, self._whole():
            closed = self._sink.close()
        if closed:
            self._wake(True)

    def idle(self, now: float) -> float | None:
        """Lets go what should wait no longer at `now`; in how many seconds to be asked again, None
        if nothing waits."""
        with self._lock, self._whole():
            return self._sink.idle(now)

    def graph_missing(self, graph: GraphId) -> None:
        """The server asks for a graph that it has given up."""
        with self._lock, self._whole():
            self._sink.graph_missing(graph)
        self._wake(True)

    def drop(self, tensor: TensorId) -> None:
        """Takes note that a tensor died; see `TensorOwner.drop`. It is told to the server with the
        batch that is open then, or within the idle flush."""
        if self._ended is None:
            self._dropped.append(tensor)
            self._wake(False)

    @property
    def ended(self) -> GpuwireError | None:
        """Why nothing more is recorded; None while it is."""
        return self._ended

    def end(self, cause: GpuwireError) -> None:
        """Closes what is recorded and refuses everything from now on with a copy of `cause`. The
        first cause stands."""
        with self._lock, self._whole():
            if self._ended is None:
                self._sink.close()
                self._ended = cause

    def abandon(self, cause: GpuwireError) -> None:
        """As `end`, in a forked child, without the lock."""
        self._ended = cause

    def check_owner(self, operation: str, tensor: Tensor) -> None:
        """`DeviceMismatch` for a tensor of another session."""
        if tensor.session is not self:
            raise self._mismatch(operation, tensor)

    def check_dtype(self, dtype: DType, operation: str) -> None:
        """`UnsupportedDType` if the device lacks it, with what to use instead."""
        if dtype in self._dtypes:
            return
        instead = next((other for other in _INSTEAD[dtype] if other in self._dtypes), None)
        advice = f"use {instead}" if instead else f"it has {_names(self._dtypes)}"
        raise UnsupportedDType(
            f"{operation}: {self._device} has no {dtype}; {advice}",
            operation=operation,
            dtype=dtype.name,
            instead=instead.name if instead else None,
        )

    @contextmanager
    def _recording(self) -> Iterator[None]:
        self._refuse_if_ended()
        with self._lock:
            self._refuse_if_ended()
            yield

    def _add(self, task: Task, upload: Upload | None = None) -> None:
        """Under the lock."""
        self._refuse_if_ended()
        with self._whole():
            ready = self._sink.add(task, upload)
        self._wake(ready)

    def _add_at_once(self, task: Task) -> None:
        self._refuse_if_ended()
        with self._lock:
            self._refuse_if_ended()
            with self._whole():
                self._sink.add_urgent(task)
        self._wake(True)

    def _refuse_if_ended(self) -> None:
        """Asked before the lock is taken too: in a forked child an absent thread may hold it."""
        if self._ended is not None:
            raise fresh(self._ended)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Whatever ends the block early, KeyboardInterrupt too, leaves the sink whole."""
        try:
            yield
        except BaseException:
            self._sink.interrupted()
            raise

    def _new_signature(
        self, definition: OpDef, inputs: Sequence[Tensor | Scalar], attributes: Attributes
    ) -> Signature:
        """By the operation's rule, and noted: looking it up again costs a fifth of the rule, and
        makes equal types one object, whose comparison then is free."""
        types = tuple(operand.type for operand in inputs)
        if len(types) > INPUTS_MAX:
            raise ArgumentError(
                f"{definition.name} over {len(types)} arrays; the most at once is {INPUTS_MAX}"
            )
        result = definition.result_type(types, attributes)
        for dtype in {result.dtype, *(operand.dtype for operand in types)}:
            self.check_dtype(dtype, definition.name)
        if len(self._signatures) >= _SIGNATURES_MAX:
            self._signatures.clear()
        key = (
            definition,
            attributes,
            *(operand.type if isinstance(operand, Tensor) else operand.dtype for operand in inputs),
        )
        number = next(self._signature_numbers)
        signature = Signature(number, definition, attributes, types, result)
        return self._signatures.setdefault(key, signature)

    def _mismatch(self, operation: str, tensor: Tensor) -> DeviceMismatch:
        owner = tensor.session
        other = owner._device if isinstance(owner, Recorder) else "another device"
        if other == self._device:
            other = f"another session with {other}"
        return DeviceMismatch(
            f"{operation}: an array of {other} cannot be used on {self._device}; "
            "move it with asarray(np.asarray(x), device=…)"
        )


INPUTS_MAX = 1000
"""The most inputs of one operation; the wire's limit on arrays is a little above."""

_INSTEAD: dict[DType, tuple[DType, ...]] = {
    dt.bool_: (dt.uint8, dt.int32),
    dt.int8: (dt.int16, dt.int32),
    dt.int16: (dt.int32,),
    dt.int32: (dt.int64,),
    dt.int64: (dt.int32,),
    dt.uint8: (dt.uint16, dt.uint32),
    dt.uint16: (dt.uint32,),
    dt.uint32: (dt.uint64,),
    dt.uint64: (dt.uint32,),
    dt.float16: (dt.float32,),
    dt.float32: (dt.float64,),
    dt.float64: (dt.float32,),
    dt.complex64: (dt.complex128,),
    dt.complex128: (dt.complex64,),
}


def _names(dtypes: frozenset[DType]) -> str:
    return ", ".join(dtype.name for dtype in dt.ALL_DTYPES if dtype in dtypes)


def _rename(arrays: Sequence[DeviceArray], tensors: Sequence[Tensor]) -> None:
    for array, tensor in zip(arrays, tensors, strict=True):
        array._tensor = tensor
