"""Recording launches into a captured graph: the states of a window, and what may not happen in it.

graph_prepare → ARMED, where launches run as ever and fill the pools → begin_capture → CAPTURING,
where they are recorded and not run → end_capture → a graph. Whatever cannot be recorded dooms the
window: no graph with a hole is ever handed out. A window belongs to one logical stream.
"""

from __future__ import annotations

from enum import Enum

from gpuwire.compute.replay import Graph, RecordedLaunch
from gpuwire.compute.taint import detached
from gpuwire.errors import CaptureError, GpuwireError


class CaptureState(Enum):
    """Where a stream's window stands."""

    IDLE = "idle"
    ARMED = "armed"
    CAPTURING = "capturing"
    DOOMED = "doomed"


class CaptureEvent(Enum):
    """What moves it."""

    PREPARE = "graph_prepare"
    BEGIN = "begin_capture"
    END = "end_capture"
    DOOM = "a failure"


TRANSITIONS = {
    (CaptureState.IDLE, CaptureEvent.PREPARE): CaptureState.ARMED,
    (CaptureState.ARMED, CaptureEvent.PREPARE): CaptureState.ARMED,
    (CaptureState.ARMED, CaptureEvent.BEGIN): CaptureState.CAPTURING,
    (CaptureState.CAPTURING, CaptureEvent.DOOM): CaptureState.DOOMED,
    (CaptureState.DOOMED, CaptureEvent.DOOM): CaptureState.DOOMED,
    (CaptureState.CAPTURING, CaptureEvent.END): CaptureState.IDLE,
    (CaptureState.DOOMED, CaptureEvent.END): CaptureState.IDLE,
}
"""Nothing else moves a state; what is not here is refused."""


class Window:
    """The capture of one logical stream."""

    __slots__ = ("cause", "launches", "state")

    def __init__(self) -> None:
        self.state = CaptureState.IDLE
        self.launches: list[RecordedLaunch] = []
        self.cause: GpuwireError | None = None
        """What doomed it first."""

    def move(self, event: CaptureEvent) -> None:
        """Take the table's step. Raises CaptureError where it has none."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise CaptureError(
                f"{event.value} while the stream is {self.state.value}: the order is "
                "graph_prepare, begin_capture, end_capture",
                state=self.state.value,
            )
        self.state = following


class Captures:
    """The windows and the graphs of one server."""

    def __init__(self) -> None:
        self.windows: dict[int, Window] = {}
        """By logical stream; one that is idle is not here."""
        self._graphs: dict[int, Graph] = {}
        self._numbers = 0

    def prepare(self, stream_id: int) -> None:
        """Arm a stream."""
        window = self.windows.get(stream_id) or Window()
        window.move(CaptureEvent.PREPARE)
        self.windows[stream_id] = window

    def begin(self, stream_id: int) -> None:
        """Launches of the stream are recorded from here on."""
        self._window(stream_id).move(CaptureEvent.BEGIN)

    def end(self, stream_id: int) -> int:
        """The graph's id. Raises CaptureError, caused by what doomed the window."""
        window = self._window(stream_id)
        window.move(CaptureEvent.END)
        del self.windows[stream_id]
        if window.cause is not None:
            raise CaptureError(
                f"the capture was spoiled: {window.cause}", state=CaptureState.DOOMED.value
            ) from window.cause
        self._numbers += 1
        self._graphs[self._numbers] = Graph(window.launches, stream_id)
        return self._numbers

    def is_capturing(self, stream_id: int) -> bool:
        """Whether launches of the stream are recorded instead of run."""
        window = self.windows.get(stream_id)
        return window is not None and window.state in (CaptureState.CAPTURING, CaptureState.DOOMED)

    def record(self, stream_id: int, launch: RecordedLaunch) -> None:
        """Add a launch to an open window; a doomed one takes no more."""
        window = self.windows[stream_id]
        if window.state is CaptureState.CAPTURING:
            window.launches.append(launch)

    def doom(self, stream_id: int, cause: GpuwireError) -> None:
        """The window cannot become a graph any longer. Not in a window: nothing."""
        if self.is_capturing(stream_id):
            window = self.windows[stream_id]
            window.move(CaptureEvent.DOOM)
            window.cause = window.cause or detached(cause)
            window.launches.clear()

    def refuse(self, stream_id: int, name: str) -> None:
        """Raise CaptureError, and doom the window, if the stream is in one."""
        if self.windows and self.is_capturing(stream_id):
            error = CaptureError(
                f"{name} cannot be captured: only launches can; end_capture comes first",
                state=CaptureState.CAPTURING.value,
            )
            self.doom(stream_id, error)
            raise error

    def graph(self, graph_id: int) -> Graph:
        """Raises CaptureError for an id that is gone, or never was."""
        graph = self._graphs.get(graph_id)
        if graph is None:
            raise CaptureError(f"there is no captured graph {graph_id}", state="unknown")
        return graph

    def destroy(self, graph_id: int) -> None:
        """Let go of a graph and of everything it pins; a replay on its way is not disturbed.
        Raises CaptureError for an id that is gone."""
        self.graph(graph_id).settle()
        del self._graphs[graph_id]

    def clear(self) -> None:
        """Let go of all windows and graphs."""
        self.windows.clear()
        self._graphs.clear()

    def _window(self, stream_id: int) -> Window:
        return self.windows.get(stream_id) or Window()
