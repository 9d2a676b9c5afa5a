"""Windows on a stream's time, as a server offers them."""

from __future__ import annotations

from gpuwire.compute.capture import Captures
from gpuwire.compute.completion import Completion
from gpuwire.compute.scheduler import Scheduler
from gpuwire.compute.timings import Timings


class ProfilingFace:
    """How long work takes."""

    _captures: Captures
    _scheduler: Scheduler
    _timings: Timings

    def start_profile(self, stream_id: int = 0) -> int:
        """Open a window on the stream's time; its token. Windows nest and overlap."""
        self._captures.refuse(stream_id, "start_profile")
        return self._timings.start(self._scheduler.stream(stream_id))

    def start_profile_at_launch(self, stream_id: int = 0) -> int:
        """A window that opens where the stream's next launch begins."""
        self._captures.refuse(stream_id, "start_profile_at_launch")
        return self._timings.start_at_launch(self._scheduler.stream(stream_id))

    def end_profile(self, stream_id: int, token: int) -> Completion[float]:
        """Close a window; its seconds, known once its work has ended on the device.

        They are the device's own where `timing_method` says so, else the time between the ends
        of the work before and within. The completion raises ExecutionError, caused by the first
        failure, if work in the window failed. Raises ArgumentError for a token that is not open.
        """
        self._captures.refuse(stream_id, "end_profile")
        return self._timings.end(self._scheduler.stream(stream_id), token)

    def abandon_profile(self, stream_id: int, token: int) -> None:
        """Drop a window that will never be ended. Raises ArgumentError if it is not open."""
        self._timings.abandon(self._scheduler.stream(stream_id), token)
