"""How long work took: windows over a stream, measured by the device where it can.

With timestamps a window costs two queries, a query set and one small read. Without, its ends are
the moments at which the work before it and the work within it were seen to have ended, which adds
the poller's step (at most 0.5 ms) to each.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from gpuwire.compute.completion import Completion
from gpuwire.compute.native import NativeDevice, Pointer, Usage, lib
from gpuwire.compute.polling import Poller
from gpuwire.compute.readbacks import Readbacks
from gpuwire.compute.storage import OwnBuffer, Storage
from gpuwire.compute.streams import Stream
from gpuwire.compute.taint import detached
from gpuwire.errors import ArgumentError, ExecutionError, GpuwireError

TIMESTAMP_BYTES = 8


class ProfileWindow:
    """One window, opened or about to be."""

    __slots__ = ("began", "cause", "is_open", "queries", "stream", "token")

    def __init__(self, token: int, stream: Stream) -> None:
        self.token = token
        self.stream = stream
        self.is_open = False
        self.cause: GpuwireError | None = None
        """What failed within it first."""
        self.queries: Pointer | None = None
        self.began: Completion[float] | None = None
        """System time at which the work before it ended."""

    def __del__(self) -> None:
        if self.queries is not None:
            lib.wgpuQuerySetRelease(self.queries)


class Timings:
    """The windows of one server."""

    def __init__(
        self,
        device: NativeDevice,
        storage: Storage,
        poller: Poller,
        readbacks: Readbacks,
        *,
        by_device: bool,
    ) -> None:
        self._device = device
        self._storage = storage
        self._poller = poller
        self._readbacks = readbacks
        self._by_device = by_device
        self._period = float(lib.wgpuQueueGetTimestampPeriod(device.queue)) * 1e-9
        self._windows: dict[int, ProfileWindow] = {}
        self._tokens = 0

    def start(self, stream: Stream) -> int:
        """Open a window here; its token."""
        window = self._new(stream)
        self._open(window)
        return window.token

    def start_at_launch(self, stream: Stream) -> int:
        """A window that the stream's next launch opens."""
        window = self._new(stream)
        stream.pending_windows.append(window)
        return window.token

    def open_pending(self, stream: Stream) -> None:
        """A launch begins: open what waited for it."""
        pending, stream.pending_windows = stream.pending_windows, []
        for window in pending:
            if window.token in self._windows:
                self._open(window)

    def end(self, stream: Stream, token: int) -> Completion[float]:
        """Close a window; its seconds."""
        window = self._close(stream, token)
        if not window.is_open:
            stream.pending_windows.remove(window)
            return Completion.failed(
                ExecutionError("the profiling window was ended before any launch opened it")
            )
        seconds = self._device_time(window) if self._by_device else self._system_time(window)
        cause = window.cause
        if cause is None:
            return seconds
        spoiled = ExecutionError(f"the profiled work failed, so its time means nothing: {cause}")
        spoiled.__cause__ = cause
        return Completion.failed(spoiled)

    def abandon(self, stream: Stream, token: int) -> None:
        """Drop a window."""
        window = self._close(stream, token)
        if not window.is_open:
            stream.pending_windows.remove(window)

    def spoil(self, stream: Stream, error: GpuwireError) -> None:
        """Work of the stream failed: the numbers of its windows mean nothing."""
        for window in self._windows.values():
            if window.stream is stream and window.cause is None:
                window.cause = detached(error)

    def _new(self, stream: Stream) -> ProfileWindow:
        self._tokens += 1
        window = self._windows[self._tokens] = ProfileWindow(self._tokens, stream)
        return window

    def _close(self, stream: Stream, token: int) -> ProfileWindow:
        window = self._windows.get(token)
        if window is None or window.stream is not stream:
            raise ArgumentError(f"no profiling window {token} is open on this stream")
        return self._windows.pop(token)

    def _open(self, window: ProfileWindow) -> None:
        window.is_open = True
        if self._by_device:
            window.queries = self._device.create_timestamps(2)
            encoder = window.stream.copying()
            lib.wgpuCommandEncoderWriteTimestamp(encoder, window.queries, 0)
        else:
            window.began = self._now_done(window.stream)

    def _device_time(self, window: ProfileWindow) -> Completion[float]:
        stream = window.stream
        encoder = stream.copying()
        lib.wgpuCommandEncoderWriteTimestamp(encoder, window.queries, 1)
        resolved = OwnBuffer(
            self._storage, 2 * TIMESTAMP_BYTES, Usage.QUERY_RESOLVE | Usage.COPY_SRC
        )
        lib.wgpuCommandEncoderResolveQuerySet(encoder, window.queries, 0, 2, resolved.pointer, 0)
        period = self._period

        def seconds(views: Sequence[memoryview]) -> float:
            began, ended = struct.unpack("<2Q", views[0])
            return float(ended - began) * period

        read = self._readbacks.read_buffer(resolved.pointer, 2 * TIMESTAMP_BYTES, stream)
        return read.then(seconds)

    def _system_time(self, window: ProfileWindow) -> Completion[float]:
        began = window.began
        assert began is not None
        return self._now_done(window.stream).then(lambda ended: ended - began.result())

    def _now_done(self, stream: Stream) -> Completion[float]:
        """The system's time when the stream's work so far has ended."""
        stream.submit()
        moment: Completion[float] = self._poller.completion()

        def ended(error: GpuwireError | None) -> None:
            if error is None:
                moment.succeed(time.perf_counter())
            else:
                moment.fail(error)

        self._poller.when_work_done(ended)
        self._poller.watch()
        return moment
