"""Captured graphs, as a server offers them."""

from __future__ import annotations

from gpuwire.compute.capture import Captures
from gpuwire.compute.launch_scope import LaunchScope
from gpuwire.compute.scheduler import Scheduler
from gpuwire.errors import CaptureError


class GraphFace:
    """Launches that are recorded, and replayed without the launch path."""

    _captures: Captures
    _scope: LaunchScope
    _scheduler: Scheduler

    def graph_prepare(self, stream_id: int = 0) -> None:
        """Arm the stream for a capture: what is launched until `begin_capture` runs as ever, and
        fills pools and caches with what the graph will need. Raises CaptureError in a window."""
        self._captures.prepare(stream_id)

    def begin_capture(self, stream_id: int = 0) -> None:
        """From here on the stream's launches are recorded and not run. Raises CaptureError if the
        stream is not armed."""
        self._captures.begin(stream_id)

    def end_capture(self, stream_id: int = 0) -> int:
        """The id of the graph of all launches since `begin_capture`.

        Raises CaptureError if there was no window, or if anything in it failed or could not be
        captured; that is its cause.
        """
        return self._captures.end(stream_id)

    def replay(self, graph_id: int, stream_id: int = 0) -> None:
        """Queue a graph's launches, in order with the stream's other work. They read what their
        buffers hold then. An id that is gone is an error at the stream's next sync."""
        self._captures.refuse(stream_id, "replay")
        stream = self._scheduler.stream(stream_id)
        try:
            graph = self._captures.graph(graph_id)
        except CaptureError as error:
            stream.late_errors.append(error)
            return
        effects = graph.effects
        if self._scope.enter(stream, effects.reads, effects.updates, effects.writes):
            graph.encode(stream)
            self._scope.leave(stream, effects.writes)
            self._scheduler.replayed(stream)

    def graph_destroy(self, graph_id: int, stream_id: int = 0) -> None:
        """Let go of a graph and of all that it pins; a replay on its way is not disturbed. An id
        that is gone is an error at the stream's next sync."""
        try:
            self._captures.destroy(graph_id)
        except CaptureError as error:
            self._scheduler.stream(stream_id).late_errors.append(error)
