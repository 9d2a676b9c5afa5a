"""Captured graphs: launches of one's own kernels, recorded once and replayed without the way that
each launch goes by itself.

A graph has device memory of its own, one piece for each array that its launches were given. What
`replay` costs besides the launches is a copy on the device for each array that was changed since
the last replay, and one for each array that the graph writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

from gpuwire.client.capture_windows import CaptureWindow
from gpuwire.client.pending import Completion
from gpuwire.client.session import Session
from gpuwire.client.waiting import ThreadReply
from gpuwire.errors import CaptureError, GpuwireError
from gpuwire.ids import CaptureId, RequestId, StreamId, TensorId
from gpuwire.wire.device_tasks import BeginCapture, CaptureLaunch, EndCapture
from gpuwire.wire.messages import Done


class CapturedGraph:
    """What `with dev.capture() as graph:` records; usable after the block.

    The graph works on the `Array` objects that its launches were given, as they are at each
    replay: an array that was written to since (`x[...] = …`, `x += …`, another kernel) is taken in
    with its new elements. Arrays that the launches write have the new elements afterwards, and no
    other array has: what shared their elements before keeps the old ones. The arrays, and the
    graph's own memory, live as long as the graph: until `destroy()`, the end of a `with graph:`
    block, or until nothing refers to it.
    """

    def __init__(
        self,
        session: Session,
        stream: Callable[[], StreamId],
        make_room: Callable[[], None],
    ) -> None:
        """Use `dev.capture()`."""
        self._session = session
        self._stream = stream
        self._make_room = make_room
        self._window = CaptureWindow(session.recorder.location)
        self._id: CaptureId | None = None
        self._is_destroyed = False
        self._held: list[TensorId | None] = []
        """What lies in the graph's memory, by array."""

    @property
    def launches(self) -> int:
        """How many launches a replay is."""
        return len(self._window.launches)

    def replay(self) -> None:
        """Runs the launches again; returns at once. Raises CaptureError if the graph was destroyed,
        or never became one. What fails on the device, the arrays that the graph writes raise when
        they are read."""
        recorder = self._session.recorder
        stream = self._stream()
        recorder.windows.refuse(stream, "replay")
        if self._id is None or self._is_destroyed:
            raise CaptureError(
                "the captured graph was destroyed"
                if self._is_destroyed
                else "the graph is not captured: the block of dev.capture() did not end well",
                state="unknown",
            )
        self._make_room()
        arrays = self._window.arrays
        inputs = [
            (slot, array._tensor)
            for slot, (array, held) in enumerate(zip(arrays, self._held, strict=True))
            if array._tensor.id != held
        ]
        for slot, tensor in inputs:
            captured = self._window.types[slot]
            if tensor.type != captured:
                raise CaptureError(
                    f"array {slot} of the captured graph was {captured} and is {tensor.type} now",
                    state="captured",
                )
        written = sorted(self._window.written)
        types = [arrays[slot]._tensor.type for slot in written]
        results = recorder.replay(stream, self._id, inputs, written, types)
        for slot, tensor in inputs:
            self._held[slot] = tensor.id
        for slot, tensor in zip(written, results, strict=True):
            arrays[slot]._tensor = tensor
            self._held[slot] = tensor.id

    def destroy(self) -> None:
        """Lets go of the graph and its memory, once the replays on their way have ended. May be
        called again; a replay afterwards raises CaptureError."""
        if self._id is not None and not self._is_destroyed:
            self._is_destroyed = True
            self._session.recorder.drop(TensorId(self._id))

    def __enter__(self) -> CapturedGraph:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.destroy()

    def __del__(self) -> None:
        if getattr(self, "_id", None) is not None:
            self.destroy()

    # --- What the window's ends call ---

    def begin(self, stream: StreamId) -> None:
        """Opens the window."""
        self._session.recorder.windows.begin(stream, self._window)

    def abandon(self, stream: StreamId) -> None:
        """Closes the window; there will be no graph."""
        self._session.recorder.windows.end(stream)
        self._window.arrays.clear()

    def send(self, stream: StreamId, completion: Completion) -> None:
        """Closes the window and has the server make the graph; `completion` tells whether it did.
        Raises CaptureError for a window that was spoiled, or in which nothing was launched."""
        window, recorder = self._window, self._session.recorder
        recorder.windows.end(stream)
        cause = window.cause
        if cause is not None:
            raise CaptureError(f"the capture was spoiled: {cause}", state="doomed") from cause
        if not window.launches:
            raise CaptureError("nothing was launched in the block to capture", state="capturing")
        graph = CaptureId(recorder.new_id())
        recorder.add(BeginCapture(graph))
        for captured in window.launches:
            launch = captured.launch
            recorder.add(
                CaptureLaunch(
                    *(graph, launch.kernel, launch.grid, captured.slots, launch.params),
                    captured.location,
                )
            )
        types = tuple(window.types)

        def end(request: RequestId) -> EndCapture:
            return EndCapture(stream, request, graph, types)

        self._session.ask(end, Done, completion)
        self._id = graph
        self._held = [None] * len(types)

    def failed(self) -> None:
        """The server could not make the graph."""
        self._id = None


class Capturing:
    """The block of `with dev.capture() as graph:`."""

    def __init__(
        self,
        graph: CapturedGraph,
        stream: Callable[[], StreamId],
        answer: Callable[[ThreadReply, str], object],
    ) -> None:
        self._graph = graph
        self._stream = stream
        self._answer = answer

    def __enter__(self) -> CapturedGraph:
        self._graph.begin(self._stream())
        return self._graph

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._graph.abandon(self._stream())
            return
        reply = ThreadReply()
        self._graph.send(self._stream(), reply)
        try:
            self._answer(reply, "capture")
        except GpuwireError:
            self._graph.failed()
            raise


class AsyncCapturing:
    """The block of `async with dev.capture() as graph:`."""

    def __init__(
        self,
        graph: CapturedGraph,
        stream: StreamId,
        completion: Callable[[], Completion],
        answer: Callable[[Completion, str], Awaitable[object]],
    ) -> None:
        self._graph = graph
        self._stream = stream
        self._completion = completion
        self._answer = answer

    async def __aenter__(self) -> CapturedGraph:
        self._graph.begin(self._stream)
        return self._graph

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._graph.abandon(self._stream)
            return
        reply = self._completion()
        self._graph.send(self._stream, reply)
        try:
            await self._answer(reply, "capture")
        except GpuwireError:
            self._graph.failed()
            raise
