"""The sending half of a session: frames on the control stream, long tensors beside it (`uploads`).

Everything here runs on the session's event loop. Frames go out in the order of their batches;
where the link is slow, they stay in the batches, and the batches' size is what makes the
recording threads wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwire.client.batch import Batches, FrameOrigin
from gpuwire.client.connecting import Link
from gpuwire.client.timeline import Timeline
from gpuwire.client.uploads import Uploads, refuse
from gpuwire.config import RemoteConfig
from gpuwire.errors import GpuwireError
from gpuwire.telemetry.logs import Logger
from gpuwire.wire.messages import AnnounceUpload, Close, Heartbeat, HeartbeatReply, Progress
from gpuwire.wire.session import ClientSession

if TYPE_CHECKING:
    from gpuwire.client.tracing import Tracing

_WRITE_BYTES = 64 * 1024
"""Frames are written together up to this: a write of its own costs 20 µs, a small frame 2 µs."""


class Writer:
    """Sends what is recorded, and the session's own messages."""

    def __init__(
        self,
        link: Link,
        batches: Batches,
        config: RemoteConfig,
        logger: Logger,
        on_progress: Callable[[], None],
        timeline: Callable[[], Timeline | None],
        tracing: Tracing | None = None,
    ) -> None:
        """`on_progress` is called whenever less is held here or in `batches`."""
        self._link: Link | None = link
        self._is_writing = False
        self._batches = batches
        self._logger = logger
        self._on_progress = on_progress
        self._timeline = timeline
        self._tracing = tracing
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.uploads = Uploads(link.connection, self.send, config, logger, on_progress)
        self.frames_sent = 0
        self.tasks_sent = 0
        self._control_bytes = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes of messages and bulk streams."""
        return self._control_bytes + self.uploads.sent_bytes

    @property
    def held_bytes(self) -> int:
        """Snapshots of tensors that are on their way."""
        return self.uploads.held_bytes

    def wake(self) -> None:
        """There may be something to send, or room to send it. On the event loop's thread."""
        self._wanted.set()
        self._idle.clear()

    def room_made(self) -> None:
        """The server may have acknowledged frames, and others that waited for it may go."""
        if not self._batches.is_drained:
            self.wake()

    def send(self, message: Heartbeat | HeartbeatReply | AnnounceUpload | Close) -> None:
        """Sends a message of the session's own, after all frames already written; none while the
        link is lost."""
        if self._link is not None:
            self._write_now(self._link, self._link.wire.send(message))

    def acknowledge(self) -> None:
        """Tells the server which reply frames came in, if it does not know. Not while a frame waits
        to be written, which has an older acknowledgement."""
        if self._link is not None and not self._is_writing:
            self._write_now(self._link, self._link.wire.acknowledge())

    def link_lost(self) -> None:
        """Nothing is sent until the next link. What runs on this one has ended."""
        self._link = None
        self.uploads.suspend()

    def link_found(self, link: Link, progress: Progress) -> None:
        """The session goes on over another link: `run` it again. `progress` says how much of the
        uploads the server has."""
        self._link = link
        self.uploads.resume(link.connection, dict(progress))
        self.wake()

    async def run(self) -> None:
        """Sends until it is cancelled, first what an earlier link has lost. Raises why the link
        ended."""
        link = self._link
        assert link is not None
        if link.welcome.resumed is not None:
            for data in link.wire.kept_frames():
                await self._write(link, data)
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while data := self._next_frames(link.wire):
                await self._write(link, data)
            if not self._wanted.is_set():
                self._idle.set()

    async def wait_sent(self) -> None:
        """Returns when everything recorded and closed so far has been handed to the transport, and
        all uploads have been acknowledged."""
        self.wake()
        await self._idle.wait()
        while not self._batches.is_drained:  # The window of unacknowledged frames is full.
            self._idle.clear()
            await self._idle.wait()
        await self.uploads.wait_ended()

    async def finish(self) -> None:
        """Ends the control stream and waits until the server has all of it."""
        if self._link is not None:
            control = self._link.control.writer
            control.finish()
            await control.wait_acknowledged()

    def fail(self, cause: GpuwireError) -> None:
        """Ends all uploads; who waits for one gets a copy of `cause`."""
        self.uploads.fail(cause)
        while batch := self._batches.take():
            for upload in batch.uploads():
                refuse(upload, cause)

    def _next_frames(self, wire: ClientSession) -> bytes:
        """The next frames, together; nothing if none can be sent now."""
        frames: list[bytes] = []
        length = 0
        timeline = self._timeline()
        while length < _WRITE_BYTES and wire.can_send_frame:
            began = time.time() if timeline is not None else 0.0
            batch = self._batches.take()
            if batch is None:
                break
            tasks = batch.frame_tasks()
            frames.append(self._encoded(wire, tasks, batch.origin))
            length += len(frames[-1])
            self.frames_sent += 1
            self.tasks_sent += len(tasks)
            if timeline is not None:
                timeline.sent(self.frames_sent, len(tasks), len(frames[-1]), began)
            if self._logger.wants_full:
                size = len(frames[-1])
                self._logger.full(f"frame {self.frames_sent}: {len(tasks)} tasks, {size} bytes")
            for upload in batch.uploads():
                self.uploads.start(upload)
        if frames:
            self._on_progress()
        return b"".join(frames)

    def _encoded(
        self, wire: ClientSession, tasks: list[bytes], origin: FrameOrigin | None
    ) -> bytes:
        if origin is None or self._tracing is None:
            return wire.send_tasks(tasks)
        span = self._tracing.begin_frame(origin, self.frames_sent + 1, len(tasks))
        frame = wire.send_tasks(tasks, traceparent=span.context.traceparent())
        span.end({"bytes": len(frame)})
        return frame

    async def _write(self, link: Link, frames: bytes) -> None:
        self._control_bytes += len(frames)
        self._is_writing = True
        try:
            await link.control.writer.write(frames)
        finally:
            self._is_writing = False
        if link.wire.acknowledgement_due:
            self.acknowledge()

    def _write_now(self, link: Link, data: bytes) -> None:
        self._control_bytes += len(data)
        if data:
            link.control.writer.write_nowait(data)
