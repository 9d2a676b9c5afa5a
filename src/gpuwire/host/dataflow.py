"""Runs one session's work in dataflow order.

A tensor never changes once it is there: every operation makes a new one. So the order of arrival
matters only through the tensors themselves, and work whose inputs exist runs at once while work
that reads an upload still on its way, or the result of a host step, waits for just that tensor. A
tensor that fails carries the first cause; whatever reads it is not run and carries the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

from gpuwire.compute.handles import Binding, Handle
from gpuwire.errors import ExecutionError, GpuwireError, UnknownTensor
from gpuwire.host.device import Device
from gpuwire.host.tensors import Failure, Lease, MemoryAccount, Tensor, TensorTable
from gpuwire.host.watching import SessionWatch
from gpuwire.host.work import FrameTrace, RunnableGraph, Stream, Work, is_view, split
from gpuwire.ids import StreamId, TensorId
from gpuwire.ir.operations import OpDef, Operation
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.lowering import Value
from gpuwire.lowering.counting import Tally
from gpuwire.wire.fields import breached

MAX_STREAMS = 1024
"""Of one session: one for each thread of the client."""
MAX_UNREPORTED = 1024
"""First causes kept for a sync to report; later ones are still found by reading their tensors."""


class Dataflow:
    """The tensors of a session and the work that makes them.

    `wake` is called when `run_ready` has something to do.
    """

    def __init__(
        self,
        device: Device,
        account: MemoryAccount,
        wake: Callable[[], None],
        watch: SessionWatch,
    ) -> None:
        self.tensors = TensorTable()
        self.account = account
        self.waiting = 0
        """Pieces of work that wait for an input."""
        self.trace: FrameTrace | None = None
        """Of the frame whose task is being run, if its client traces."""
        self.operations = Tally()
        """Those that were run for this session."""
        self._device = device
        self._wake = wake
        self._watch = watch
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
        stream = self.stream(stream_id)
        (output,) = self.begin_outputs((operation.output,), (None,), stream)
        place = self.take_places(1)
        ids = tuple(x for x in operation.inputs if not isinstance(x, Scalar))
        try:
            inputs = self.find_all(ids)
            types = tuple(tensor.type for tensor in inputs)
            failed = next((i.failure for i in inputs if i.failure is not None), None)
            if failed is not None:
                stream.unsettled.pop(output, None)
                self._ready.extend(output.fail(failed))
                return
            graph, scalars = self._device.graphs.graph(operation, types)  # type: ignore[arg-type]
        except GpuwireError as error:
            self._fail_op(output, operation.definition, operation.location, place, stream, error)
            return
        output.type = graph.nodes[0].type
        runnable = RunnableGraph(graph, (operation.location,), (output.type.nbytes,))
        self.start(Work(runnable, place, stream, inputs, scalars, (output,)))

    def take_places(self, count: int) -> int:
        """Numbers for so many ops of the session; the first of them."""
        first = self._places + 1
        self._places += count
        return first

    def begin_outputs(
        self, ids: Sequence[TensorId], types: Sequence[TensorType | None], stream: Stream
    ) -> tuple[Tensor, ...]:
        """Tensors that work arriving now will make. `MalformedMessage` if an id is taken."""
        self._arrivals += 1
        outputs = tuple([Tensor(type_, self._arrivals) for type_ in types])
        for tensor_id, output in zip(ids, outputs, strict=True):
            self.tensors.add(tensor_id, output)
            stream.unsettled[output] = None
        return outputs

    def find_all(self, ids: Sequence[TensorId]) -> tuple[Tensor, ...]:
        """The tensors of these ids; `UnknownTensor` if one is none of the session."""
        found = self.tensors.find_all(ids)
        if None in found:
            missing = ids[found.index(None)]
            raise UnknownTensor(f"there is no tensor {missing} in this session", tensor=missing)
        return cast("tuple[Tensor, ...]", found)

    def start(self, work: Work) -> None:
        """Runs work whose outputs have begun: now, or as soon as its inputs are there."""
        work.trace = work.trace or self.trace
        self.when_ready(work.inputs, lambda: self._execute(work))

    def when_ready(self, inputs: Sequence[Tensor], callback: Callable[[], None]) -> None:
        """Calls back once all of these are there or have failed: now, or from `run_ready`."""
        left = sum([tensor.value is None and tensor.failure is None for tensor in inputs])
        if not left:
            callback()
            return
        self.waiting += 1

        def input_settled() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.waiting -= 1
                callback()

        for tensor in inputs:
            if not tensor.settled:
                tensor.when_settled(input_settled)

    def note_launched(self, stream: Stream) -> None:
        """Work was put on a stream, to be flushed when nothing follows."""
        self._launched.add(stream.number)

    def pass_on(self, outputs: Sequence[Tensor], stream: Stream, failure: Failure) -> None:
        """These depend on what has failed, and fail for the same cause."""
        for output in outputs:
            stream.unsettled.pop(output, None)
            self._call(output.fail(failure))

    def fail_all(
        self, outputs: Sequence[Tensor], stream: Stream, error: GpuwireError, location: int = 0
    ) -> None:
        """None of these will be there, and this is the first cause; it is reported once."""
        failure = Failure(error, location, stream.number, outputs[0].arrival)
        self._note_failure(failure)
        for output in outputs:
            stream.unsettled.pop(output, None)
            self._call(output.fail(failure))

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

    def report(self, stream: Stream, error: GpuwireError) -> None:
        """Something failed that would have made no tensor that is known: the next sync tells."""
        self._note_failure(Failure(error, 0, stream.number, self._arrivals))

    def fail(self, tensor: Tensor, stream: Stream, error: GpuwireError, location: int = 0) -> None:
        """A tensor will not be there, and this is the first cause."""
        self.fail_all((tensor,), stream, error, location)

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

    def owns_stream(self, number: int) -> bool:
        """Whether a compute stream is one of the session's. From any thread."""
        return any(stream.number == number for stream in tuple(self._streams.values()))

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

    # --- Running work ---

    def _execute(self, work: Work) -> None:
        if work.trace is None:
            self._execute_now(work)
            return
        with work.trace.working(work):
            self._execute_now(work)

    def _execute_now(self, work: Work) -> None:
        failed = work.failed_input
        if failed is not None:
            self._pass_on(work, failed)
            return
        stream = work.stream
        began = self._watch.begin() if self._watch.probe.is_open else 0.0
        try:
            self._require_memory(work)
            self._launched.add(stream.number)
            values = [tensor.value for tensor in work.inputs]
            with self._device.allocating(stream):
                result = self._device.lowering.execute(
                    work.runnable.graph,
                    values,  # type: ignore[arg-type]
                    work.scalars,
                    stream.number,
                    self.operations,
                    recurs=work.runnable.recurs,
                )
        except Exception as error:  # noqa: BLE001 - whatever one piece of work does, others go on
            self._fail_work(work, error)
            return
        if began:
            self._watch.ran(work, began)
        if isinstance(result, tuple):
            self._finish(work, result)
        else:
            step = asyncio.ensure_future(self._finish_later(work, result))
            self._host_steps.add(step)
            step.add_done_callback(self._host_steps.discard)

    async def _finish_later(self, work: Work, result: Awaitable[tuple[Value, ...]]) -> None:
        """The same after a step on the host."""
        try:
            values = await result
        except Exception as error:  # noqa: BLE001 - as in `_execute`
            self._fail_work(work, error)
        else:
            self._finish(work, values)

    def _finish(self, work: Work, values: tuple[Value, ...]) -> None:
        """Settles the outputs, or none of them."""
        stream = work.stream
        # It has run, so its inputs have both; asserting that of each costs a long graph 1 µs.
        leases: dict[Handle, Lease] = {
            tensor.value.handle: tensor.lease  # type: ignore[union-attr, misc]
            for tensor in work.inputs
        }
        try:
            for value in values:
                if value.handle not in leases:
                    # All of the memory, whatever part of it the value is a view of.
                    memory = value.handle.slice
                    size = memory.size if memory is not None and value.type.nbytes else 0
                    if size:
                        self._device.server.check([Binding(value.handle, 0, size)], stream.number)
                    leases[value.handle] = Lease(self.account, size)
        except GpuwireError as error:
            self._fail_work(work, error)
            return
        for output, value in zip(work.outputs, values, strict=True):
            self.settle(output, stream, value, leases[value.handle])

    def _require_memory(self, work: Work) -> None:
        """Refuses work whose results would pass the session's limit. A view costs nothing; reshape
        makes one of a contiguous value."""
        if not self.account.limit:
            return
        needed = sum(work.runnable.charges)
        if work.is_single:
            node = work.runnable.graph.nodes[0]
            if is_view(node):
                value = work.inputs[0].value if work.inputs else None
                if node.definition.name != "reshape" or value is None or value.is_contiguous:
                    return
        self.account.require(needed)

    def _pass_on(self, work: Work, failed: Failure) -> None:
        """Work of which an input has failed: what depends on it fails too, the rest is run."""
        if not work.is_single:
            self._run_split(work)
            return
        self.pass_on(work.outputs, work.stream, failed)

    def _fail_work(self, work: Work, error: BaseException) -> None:
        """Of several ops it is not known which has failed, and the others need not: they are run
        one by one. No op changes what is there, so one that did run may run again."""
        self._device.note(error)
        if not work.is_single:
            self._run_split(work)
            return
        (node,), (location,) = work.runnable.graph.nodes, work.runnable.locations
        (output,) = work.outputs
        self._fail_op(output, node.definition, location, work.place, work.stream, error)

    def _run_split(self, work: Work) -> None:
        for part in split(work, self._device.graphs):
            part.trace = work.trace
            self.start(part)

    def _fail_op(
        self,
        output: Tensor,
        definition: OpDef,
        location: int,
        place: int,
        stream: Stream,
        error: BaseException,
    ) -> None:
        self._device.note(error)
        self._watch.failed(location, error)
        name = definition.name
        failure = ExecutionError(f"{name} failed: {error}", operation=name, place=place)
        failure.__cause__ = error
        self.fail(output, stream, failure, location)

    def _note_failure(self, failure: Failure) -> None:
        """A first cause, for a sync to report; it spoils what is being timed."""
        for stream in self._streams.values():
            if stream.number == failure.stream:
                for window in stream.windows:
                    window.cause = window.cause or failure.error
        if len(self._unreported) < MAX_UNREPORTED:
            self._unreported.append(failure)

    def _call(self, waiting: list[Callable[[], None]]) -> None:
        if waiting:
            self._ready.extend(waiting)
            self._wake()
