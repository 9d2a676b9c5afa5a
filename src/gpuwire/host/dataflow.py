"""Runs one session's work in dataflow order.

A tensor never changes once it is there: every operation makes a new one. So the order of arrival
matters only through the tensors themselves, and work whose inputs exist runs at once while work
that reads an upload still on its way, or the result of a host step, waits for just that tensor. A
tensor that fails carries the first cause; whatever reads it is not run and carries the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from gpuwire.compute.handles import Binding
from gpuwire.errors import ExecutionError, GpuwireError, UnknownTensor
from gpuwire.host.device import Device
from gpuwire.host.tensors import Failure, Lease, MemoryAccount, Tensor, TensorTable
from gpuwire.ids import StreamId, TensorId
from gpuwire.ir.graphs import OpGraph
from gpuwire.ir.operations import OpClass, Operation
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.lowering import Value
from gpuwire.wire.fields import breached

MAX_STREAMS = 1024
"""Of one session: one for each thread of the client."""
MAX_UNREPORTED = 1024
"""First causes kept for a sync to report; later ones are still found by reading their tensors."""


@dataclass(slots=True, eq=False)
class Stream:
    """One of the session's streams."""

    number: int
    """Its number on the compute server."""
    unsettled: dict[Tensor, None] = field(default_factory=dict)
    """What its tasks so far will have made, in order of arrival."""


@dataclass(slots=True, eq=False)
class _Work:
    """An operation on its way to be run."""

    operation: Operation
    place: int
    stream: Stream
    inputs: tuple[Tensor, ...]
    output: Tensor
    graph: OpGraph
    scalars: tuple[Scalar, ...]
    missing: int = 0
    """Inputs that are not settled."""


class Dataflow:
    """The tensors of a session and the work that makes them.

    `wake` is called when `run_ready` has something to do.
    """

    def __init__(self, device: Device, account: MemoryAccount, wake: Callable[[], None]) -> None:
        self.tensors = TensorTable()
        self.account = account
        self.waiting = 0
        """Operations that wait for an input."""
        self._device = device
        self._wake = wake
        self._ready: deque[Callable[[], None]] = deque()
        self._streams: dict[StreamId, Stream] = {}
        self._launched: set[int] = set()
        self._unreported: list[Failure] = []
        self._arrivals = 0
        self._places = 0
        self._host_steps: set[asyncio.Task[None]] = set()

    # --- What tasks ask for ---

    def stream(self, stream_id: StreamId) -> Stream:
        """The session's stream of that id, made at its first use. `LimitBreached` above
        `MAX_STREAMS`."""
        stream = self._streams.get(stream_id)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                raise breached("streams of one session", len(self._streams) + 1, MAX_STREAMS)
            stream = self._streams[stream_id] = Stream(self._device.streams.take())
        return stream

    def run_operation(self, operation: Operation, stream_id: StreamId) -> None:
        """Runs an operation now, or as soon as its inputs are there."""
        self._arrivals += 1
        self._places += 1
        place, stream = self._places, self.stream(stream_id)
        output = Tensor(None, self._arrivals)
        self.tensors.add(operation.output, output)
        try:
            inputs = self._inputs(operation)
            failed = next((i.failure for i in inputs if i.failure is not None), None)
            if failed is not None:
                self._ready.extend(output.fail(failed))
                return
            types = tuple(tensor.type for tensor in inputs)
            graph, scalars = self._device.graphs.graph(operation, types)  # type: ignore[arg-type]
        except GpuwireError as error:
            self._fail_operation(output, operation, place, stream, error)
            return
        output.type = graph.nodes[0].type
        work = _Work(operation, place, stream, inputs, output, graph, scalars)
        missing = [tensor for tensor in inputs if not tensor.settled]
        if missing:
            self._wait(work, missing)
        else:
            self._execute(work)

    def begin(self, tensor_id: TensorId, type_: TensorType, stream: Stream) -> Tensor:
        """A tensor whose bytes will come from elsewhere; to be ended by `settle` or `fail`."""
        self._arrivals += 1
        tensor = Tensor(type_, self._arrivals)
        self.tensors.add(tensor_id, tensor)
        stream.unsettled[tensor] = None
        return tensor

    def settle(self, tensor: Tensor, stream: Stream, value: Value, lease: Lease) -> None:
        """The bytes of a tensor that `begin` made are in device memory."""
        stream.unsettled.pop(tensor, None)
        self._call(tensor.settle(value, lease))

    def fail(self, tensor: Tensor, stream: Stream, error: GpuwireError, location: int = 0) -> None:
        """A tensor will not be there, and this is the first cause."""
        stream.unsettled.pop(tensor, None)
        failure = Failure(error, location, stream.number, tensor.arrival)
        if len(self._unreported) < MAX_UNREPORTED:
            self._unreported.append(failure)
        self._call(tensor.fail(failure))

    def when_settled(self, tensor: Tensor, callback: Callable[[], None]) -> None:
        """Calls back once the tensor is there or has failed: now, or from `run_ready`."""
        if tensor.settled:
            callback()
        else:
            tensor.when_settled(callback)

    def when_all_settled(self, stream_id: StreamId | None, callback: Callable[[], None]) -> None:
        """Calls back once everything asked for so far on a stream, or on all, is settled."""
        unsettled = [tensor for stream in self.streams(stream_id) for tensor in stream.unsettled]
        left = len(unsettled)
        if not left:
            callback()
            return

        def one_settled() -> None:
            nonlocal left
            left -= 1
            if not left:
                callback()

        for tensor in unsettled:
            tensor.when_settled(one_settled)

    def streams(self, stream_id: StreamId | None) -> Iterable[Stream]:
        """That stream, or every stream of the session."""
        return tuple(self._streams.values()) if stream_id is None else (self.stream(stream_id),)

    def launched_streams(self) -> tuple[int, ...]:
        """The compute streams that operations ran on since the last call."""
        launched = tuple(self._launched)
        self._launched.clear()
        return launched

    @property
    def arrivals(self) -> int:
        """How much work has arrived; numbers failures, so that a sync reports earlier ones only."""
        return self._arrivals

    def unreported_failure(self, stream_id: StreamId | None, before: int) -> Failure | None:
        """The first failure of a stream, or of all, that no reply has told, among the first
        `before` arrivals. It counts as told from now on."""
        numbers = {stream.number for stream in self.streams(stream_id)}
        self._unreported = [failure for failure in self._unreported if not failure.reported]
        found = min(
            (f for f in self._unreported if f.stream in numbers and f.arrival <= before),
            key=lambda failure: failure.arrival,
            default=None,
        )
        if found is not None:
            found.reported = True
        return found

    # --- Turns ---

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def run_ready(self) -> None:
        """Does one piece of the work that a settled tensor has set free."""
        self._ready.popleft()()

    def close(self) -> None:
        """Forgets everything. Memory goes back as the device's work on it ends."""
        for step in self._host_steps:
            step.cancel()
        self.tensors.clear()
        self._ready.clear()
        for stream in self._streams.values():
            stream.unsettled.clear()
            self._device.streams.give_back(stream.number)
        self._streams.clear()

    # --- Running an operation ---

    def _inputs(self, operation: Operation) -> tuple[Tensor, ...]:
        inputs = []
        for operand in operation.inputs:
            if isinstance(operand, Scalar):
                continue
            tensor = self.tensors.find(operand)
            if tensor is None:
                raise UnknownTensor(f"there is no tensor {operand} in this session", tensor=operand)
            inputs.append(tensor)
        return tuple(inputs)

    def _wait(self, work: _Work, missing: list[Tensor]) -> None:
        self.waiting += 1
        work.missing = len(missing)
        work.stream.unsettled[work.output] = None

        def input_settled() -> None:
            work.missing -= 1
            if not work.missing:
                self.waiting -= 1
                self._run_waited(work)

        for tensor in missing:
            tensor.when_settled(input_settled)

    def _run_waited(self, work: _Work) -> None:
        failed = next((i.failure for i in work.inputs if i.failure is not None), None)
        if failed is not None:
            work.stream.unsettled.pop(work.output, None)
            self._call(work.output.fail(failed))
        else:
            self._execute(work)

    def _execute(self, work: _Work) -> None:
        values = [tensor.value for tensor in work.inputs]
        try:
            self._require_memory(work)
            self._launched.add(work.stream.number)
            result = self._device.lowering.execute(
                work.graph,
                values,  # type: ignore[arg-type]
                work.scalars,
                work.stream.number,
            )
        except Exception as error:  # noqa: BLE001 - whatever one operation does, the others go on
            self._fail_work(work, error)
            return
        if isinstance(result, tuple):
            self._finish(work, result[0])
        else:
            work.stream.unsettled[work.output] = None
            step = asyncio.ensure_future(self._finish_later(work, result))
            self._host_steps.add(step)
            step.add_done_callback(self._host_steps.discard)

    async def _finish_later(self, work: _Work, result: Awaitable[tuple[Value, ...]]) -> None:
        """The same after a step on the host."""
        try:
            (value,) = await result
        except Exception as error:  # noqa: BLE001 - as in `_execute`
            self._fail_work(work, error)
        else:
            self._finish(work, value)

    def _finish(self, work: _Work, value: Value) -> None:
        for tensor in work.inputs:
            assert tensor.value is not None
            if tensor.value.handle is value.handle:
                assert tensor.lease is not None
                self.settle(work.output, work.stream, value, tensor.lease)
                return
        size = value.type.nbytes
        try:
            if size:
                binding = Binding(value.handle, 0, size)
                self._device.server.check([binding], work.stream.number)
        except GpuwireError as error:
            self._fail_work(work, error)
        else:
            self.settle(work.output, work.stream, value, Lease(self.account, size))

    def _require_memory(self, work: _Work) -> None:
        """Refuses an operation whose result would pass the session's limit. A view costs nothing;
        reshape makes one of a contiguous value."""
        definition = work.operation.definition
        if definition.op_class is OpClass.SHAPE and definition.name != "concat":
            value = work.inputs[0].value if work.inputs else None
            if definition.name != "reshape" or value is None or value.is_contiguous:
                return
        assert work.output.type is not None
        self.account.require(work.output.type.nbytes)

    def _fail_work(self, work: _Work, error: BaseException) -> None:
        self._fail_operation(work.output, work.operation, work.place, work.stream, error)

    def _fail_operation(
        self,
        output: Tensor,
        operation: Operation,
        place: int,
        stream: Stream,
        error: BaseException,
    ) -> None:
        self._device.note(error)
        name = operation.definition.name
        failure = ExecutionError(f"{name} failed: {error}", operation=name, place=place)
        failure.__cause__ = error
        self.fail(output, stream, failure, operation.location)

    def _call(self, waiting: list[Callable[[], None]]) -> None:
        if waiting:
            self._ready.extend(waiting)
            self._wake()
