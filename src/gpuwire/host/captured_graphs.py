"""Captured graphs of one session: launches recorded into memory of the graph's own, and replayed.

The memory of a captured graph must stay where it is, and a tensor never changes; so a graph works
on memory of its own, one piece for each array. A replay brings in the arrays that are other than
what lies there, and takes out what it has written, as new tensors: a copy on the device for each.
Replays of one graph run in the order of their arrival.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuwire.compute.handles import Binding
from gpuwire.compute.launches import LaunchArguments
from gpuwire.errors import (
    ArgumentError,
    CaptureError,
    ExecutionError,
    GpuwireError,
    LaunchError,
    MalformedMessage,
)
from gpuwire.host.copies import copy_into, own_copy
from gpuwire.host.dataflow import Dataflow
from gpuwire.host.device import Device
from gpuwire.host.kernels import Kernels, UserKernel
from gpuwire.host.tensors import Failure, Lease, Tensor
from gpuwire.host.work import Stream
from gpuwire.ids import CaptureId
from gpuwire.ir.tensors import TensorType
from gpuwire.kernels.kernel import Access
from gpuwire.lowering import Value
from gpuwire.wire.device_tasks import (
    BeginCapture,
    CaptureLaunch,
    EndCapture,
    ReplayCapture,
)
from gpuwire.wire.fields import breached
from gpuwire.wire.messages import Done, Failed, Reply
from gpuwire.wire.records import to_record

MAX_GRAPHS = 4096
"""Of one session, those that are being captured included."""
MAX_LAUNCHES = 65_536
"""Of one graph."""


@dataclass(slots=True, eq=False)
class _Slot:
    """Memory of a graph's own."""

    value: Value
    lease: Lease
    failure: Failure | None = None
    """Why what lies here is not what the client believes."""


@dataclass(slots=True, eq=False)
class _Replay:
    """A replay on its way to be run."""

    stream: Stream
    place: int
    location: int
    inputs: tuple[tuple[int, Tensor], ...]
    outputs: tuple[tuple[int, Tensor], ...]
    ready: bool = False

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple([tensor for _, tensor in self.outputs])


@dataclass(slots=True, eq=False)
class _Graph:
    """A graph, from its first launch on."""

    launches: list[CaptureLaunch] = field(default_factory=list)
    number: int | None = None
    """The compute server's id; None while it is being captured."""
    slots: list[_Slot] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    """Numbers of the slots that its launches write."""
    queue: deque[_Replay] = field(default_factory=deque)
    dropped: bool = False


class CapturedGraphs:
    """The captured graphs of one session."""

    def __init__(
        self,
        device: Device,
        dataflow: Dataflow,
        kernels: Kernels,
        reply: Callable[[Reply], None],
    ) -> None:
        self._device = device
        self._dataflow = dataflow
        self._kernels = kernels
        self._reply = reply
        self._graphs: dict[CaptureId, _Graph] = {}

    # --- Capturing ---

    def begin(self, task: BeginCapture) -> None:
        """Launches for that graph follow. `MalformedMessage` if the id is taken."""
        if task.graph in self._graphs:
            raise MalformedMessage(f"captured graph {task.graph} exists already", what="graph id")
        if len(self._graphs) >= MAX_GRAPHS:
            raise breached("captured graphs", len(self._graphs) + 1, MAX_GRAPHS)
        self._graphs[task.graph] = _Graph()

    def add(self, task: CaptureLaunch) -> None:
        """Takes a launch. One for no graph that is being captured is passed over: the end of that
        capture says why."""
        graph = self._graphs.get(task.graph)
        if graph is None or graph.number is not None:
            return
        if len(graph.launches) >= MAX_LAUNCHES:
            raise breached("launches of a captured graph", MAX_LAUNCHES + 1, MAX_LAUNCHES)
        graph.launches.append(task)

    def end(self, task: EndCapture) -> None:
        """Makes the graph, or says what spoils it: then there is none."""
        graph = self._graphs.get(task.graph)
        if graph is None or graph.number is not None:
            message = f"captured graph {task.graph} is ended without having begun"
            error = CaptureError(message, state="idle")
            self._reply(Failed(task.request, to_record(error), 0))
            return
        try:
            self._make(graph, task)
        except _Spoiled as spoiled:
            cause = spoiled.cause
            self._device.note(cause)
            del self._graphs[task.graph]
            error = CaptureError(f"the capture was spoiled: {cause}", state="doomed")
            error.__cause__ = cause
            self._reply(Failed(task.request, to_record(error), spoiled.location))
        else:
            self._reply(Done(task.request))

    def _make(self, graph: _Graph, task: EndCapture) -> None:
        stream = self._dataflow.stream(task.stream)
        kernels: list[UserKernel] = []
        location = 0
        try:
            for launch in graph.launches:
                location = launch.location
                kernels.append(self._kernel(launch, task.types))
            location = 0
            slots = [self._slot(type_, stream) for type_ in task.types]
        except GpuwireError as error:
            raise _Spoiled(error, location) from error
        self._capture(graph, kernels, slots, stream.number)
        graph.slots = slots
        for launch, found in zip(graph.launches, kernels, strict=True):
            graph.written.update(_written(launch, found))
        graph.launches.clear()

    def _capture(
        self, graph: _Graph, kernels: list[UserKernel], slots: list[_Slot], stream: int
    ) -> None:
        """Puts the launches through the compute server's window."""
        server = self._device.server
        server.graph_prepare(stream)
        server.begin_capture(stream)
        failed: _Spoiled | None = None
        for launch, found in zip(graph.launches, kernels, strict=True):
            values = [slots[slot].value for slot in launch.slots]
            bindings = [Binding(value.handle, 0, value.type.nbytes) for value in values]
            try:
                arguments = LaunchArguments(bindings, launch.params)
                self._kernels.queue(found, launch.grid, arguments, stream)
            except GpuwireError as error:
                failed = _Spoiled(error, launch.location)
                break
        try:
            graph.number = server.end_capture(stream)
        except CaptureError as error:
            if failed is None:
                cause = error.__cause__
                assert isinstance(cause, GpuwireError)
                # A kernel that does not compile dooms the window and raises nothing.
                name = getattr(cause, "kernel", None)
                pairs = zip(graph.launches, kernels, strict=True)
                lines = [one.location for one, found in pairs if found.kernel.name == name]
                failed = _Spoiled(cause, lines[0] if lines else 0)
            raise failed from failed.cause

    def _kernel(self, launch: CaptureLaunch, types: Sequence[TensorType]) -> UserKernel:
        """The kernel of a launch, whose buffers fit it."""
        found = self._kernels.find(launch.kernel)
        self._kernels.check_count(found, len(launch.slots))
        for slot in launch.slots:
            if slot >= len(types):
                raise ArgumentError(f"a captured launch is given array {slot} of {len(types)}")
            self._kernels.check_size(found, types[slot])
        if any(launch.slots.count(slot) > 1 for slot in _written(launch, found)):
            name = found.kernel.name
            raise LaunchError(
                f"kernel {name!r}: in a captured graph an array that it writes cannot be another "
                "of its arguments too",
                kernel=name,
            )
        return found

    def _slot(self, type_: TensorType, stream: Stream) -> _Slot:
        self._dataflow.account.require(type_.nbytes)
        with self._device.allocating(stream):
            value = self._device.lowering.allocate(type_, stream.number)
        return _Slot(value, Lease(self._dataflow.account, type_.nbytes))

    # --- Replaying ---

    def replay(self, task: ReplayCapture) -> None:
        """Replays a graph now, or as soon as its inputs are there and the replays before have
        run."""
        dataflow = self._dataflow
        stream = dataflow.stream(task.stream)
        place = dataflow.take_places(1)
        graph = self._graphs.get(task.graph)
        ids = [tensor for _, tensor in task.outputs]
        try:
            graph = self._checked(task, graph)
            inputs = dataflow.find_all([tensor for _, tensor in task.inputs])
            types = [graph.slots[slot].value.type for slot, _ in task.outputs]
        except GpuwireError as error:
            failure = _replay_failed(error, place)
            if ids:
                outputs = dataflow.begin_outputs(ids, (None,) * len(ids), stream)
                dataflow.fail_all(outputs, stream, failure, task.location)
            else:
                dataflow.report(stream, failure)
            return
        outputs = dataflow.begin_outputs(ids, types, stream) if ids else ()
        replay = _Replay(
            stream,
            place,
            task.location,
            tuple([(slot, one) for (slot, _), one in zip(task.inputs, inputs, strict=True)]),
            tuple([(slot, one) for (slot, _), one in zip(task.outputs, outputs, strict=True)]),
        )
        graph.queue.append(replay)

        def ready() -> None:
            replay.ready = True
            self._run_queue(graph)

        dataflow.when_ready(inputs, ready)

    def _checked(self, task: ReplayCapture, graph: _Graph | None) -> _Graph:
        if graph is None or graph.number is None:
            raise CaptureError(f"there is no captured graph {task.graph}", state="unknown")
        for slot, _ in (*task.inputs, *task.outputs):
            if slot >= len(graph.slots):
                raise ArgumentError(
                    f"the captured graph has {len(graph.slots)} arrays, and {slot} is bound"
                )
        return graph

    def _run_queue(self, graph: _Graph) -> None:
        while graph.queue and graph.queue[0].ready:
            self._run(graph, graph.queue.popleft())
        if graph.dropped and not graph.queue:
            self._destroy(graph)

    def _run(self, graph: _Graph, replay: _Replay) -> None:
        dataflow = self._dataflow
        outputs = replay.tensors
        stream = replay.stream.number
        dataflow.note_launched(replay.stream)
        try:
            failed = self._bring_in(graph, replay)
            if failed is not None:
                self._mark(graph, failed)
                dataflow.pass_on(outputs, replay.stream, failed)
                return
            assert graph.number is not None
            self._device.server.replay(graph.number, stream)
            results = [self._take_out(graph, slot, replay.stream) for slot, _ in replay.outputs]
        except Exception as error:  # noqa: BLE001 - whatever one replay does, others go on
            self._device.note(error)
            self._fail(graph, replay, error)
            return
        for (_, tensor), value in zip(replay.outputs, results, strict=True):
            lease = Lease(dataflow.account, value.type.nbytes)
            dataflow.settle(tensor, replay.stream, value, lease)

    def _bring_in(self, graph: _Graph, replay: _Replay) -> Failure | None:
        """Copies the inputs that are there to where the graph expects them; why something of what
        it works on is not there. Raises where a copy cannot be made."""
        for number, tensor in replay.inputs:
            slot = graph.slots[number]
            slot.failure = tensor.failure
            if tensor.value is None:
                continue
            if tensor.type != slot.value.type:
                raise ArgumentError(
                    f"array {number} of the captured graph is {slot.value.type}, and {tensor.type} "
                    "was bound"
                )
            copy_into(self._device, tensor.value, slot.value, replay.stream.number)
        failures = [slot.failure for slot in graph.slots if slot.failure is not None]
        return min(failures, key=lambda failure: failure.arrival, default=None)

    def _fail(self, graph: _Graph, replay: _Replay, error: BaseException) -> None:
        error = _replay_failed(error, replay.place)
        outputs = replay.tensors
        if outputs:
            self._dataflow.fail_all(outputs, replay.stream, error, replay.location)
        else:
            self._dataflow.report(replay.stream, error)
        arrival = self._dataflow.arrivals
        failure = Failure(error, replay.location, replay.stream.number, arrival)
        self._mark(graph, failure)
        for number, _ in replay.inputs:
            slot = graph.slots[number]
            slot.failure = slot.failure or failure

    def _mark(self, graph: _Graph, failure: Failure) -> None:
        """What the graph was to write is not there: the client takes it for what failed."""
        for number in graph.written:
            slot = graph.slots[number]
            slot.failure = slot.failure or failure

    def _take_out(self, graph: _Graph, slot: int, stream: Stream) -> Value:
        """What a replay has left in a slot, in memory of its own."""
        value = graph.slots[slot].value
        size = value.type.nbytes
        self._device.server.check([Binding(value.handle, 0, size)], stream.number)
        self._dataflow.account.require(size)
        with self._device.allocating(stream):
            return own_copy(self._device, value, stream.number)

    # --- The end ---

    def drop(self, graph_id: int) -> None:
        """Lets go of a graph once its replays have run; an id of none is no error."""
        graph = self._graphs.pop(CaptureId(graph_id), None)
        if graph is not None:
            graph.dropped = True
            if not graph.queue:
                self._destroy(graph)

    def close(self) -> None:
        """Lets go of all of them at once."""
        graphs, self._graphs = self._graphs, {}
        for graph in graphs.values():
            graph.queue.clear()
            self._destroy(graph)

    def _destroy(self, graph: _Graph) -> None:
        if graph.number is not None:
            self._device.server.graph_destroy(graph.number)
            graph.number = None
        graph.slots.clear()


class _Spoiled(Exception):
    """What keeps a capture from becoming a graph, and where it was recorded."""

    def __init__(self, cause: GpuwireError, location: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.location = location


def _written(launch: CaptureLaunch, found: UserKernel) -> list[int]:
    """Numbers of the memory that a launch writes."""
    pairs = zip(launch.slots, found.kernel.access, strict=True)
    return [slot for slot, access in pairs if access is not Access.READ]


def _replay_failed(error: BaseException, place: int) -> ExecutionError:
    failure = ExecutionError(
        f"the replay of a captured graph failed: {error}", operation="replay", place=place
    )
    failure.__cause__ = error
    return failure
