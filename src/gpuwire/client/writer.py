"""The sending half of a session: frames on the control stream, long tensors beside it.

Everything here runs on the session's event loop. Frames go out in the order of their batches;
where the link is slow, they stay in the batches, and the batches' size is what makes the
recording threads wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwire.client.batch import Batches, FrameOrigin, Upload
from gpuwire.client.connecting import Link
from gpuwire.client.pending import fresh
from gpuwire.client.timeline import Timeline
from gpuwire.errors import GpuwireError, StreamStopped
from gpuwire.telemetry.logs import Logger
from gpuwire.wire.framing import encode_bulk_header
from gpuwire.wire.messages import BulkHeader, Close, Heartbeat, HeartbeatReply

if TYPE_CHECKING:
    from gpuwire.client.tracing import Tracing

_WRITE_BYTES = 64 * 1024
"""Frames are written together up to this: a write of its own costs 20 µs, a small frame 2 µs."""

_BULK_BYTES = 1024 * 1024
"""A long tensor is handed over in such pieces, so that the counts tell how far it is."""


class Writer:
    """Sends what is recorded, and the session's own messages."""

    def __init__(
        self,
        link: Link,
        batches: Batches,
        logger: Logger,
        on_progress: Callable[[], None],
        timeline: Callable[[], Timeline | None],
        tracing: Tracing | None = None,
    ) -> None:
        """`on_progress` is called whenever less is held here or in `batches`."""
        self._connection = link.connection
        self._control = link.control.writer
        self._wire = link.wire
        self._batches = batches
        self._logger = logger
        self._on_progress = on_progress
        self._timeline = timeline
        self._tracing = tracing
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._uploads: dict[asyncio.Task[None], Upload] = {}
        self._snapshot_bytes = 0
        self.frames_sent = 0
        self.tasks_sent = 0
        self.bytes_sent = 0

    @property
    def held_bytes(self) -> int:
        """Snapshots of tensors that are on their way."""
        return self._snapshot_bytes

    def wake(self) -> None:
        """There may be something to send, or room to send it. On the event loop's thread."""
        self._wanted.set()
        self._idle.clear()

    def send(self, message: Heartbeat | HeartbeatReply | Close) -> None:
        """Sends a message of the session's own, after all frames already written."""
        self._write_now(self._wire.send(message))

    def acknowledge(self) -> None:
        """Tells the server which reply frames came in, if it does not know."""
        data = self._wire.acknowledge()
        if data:
            self._write_now(data)

    async def run(self) -> None:
        """Sends until it is cancelled. Raises why the link ended."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while data := self._next_frames():
                self.bytes_sent += len(data)
                await self._control.write(data)
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
        if self._uploads:
            await asyncio.wait(tuple(self._uploads))

    async def finish(self) -> None:
        """Ends the control stream and waits until the server has all of it."""
        self._control.finish()
        await self._control.wait_acknowledged()

    def fail(self, cause: GpuwireError) -> None:
        """Ends all uploads; who waits for one gets a copy of `cause`."""
        for task, upload in self._uploads.items():
            task.cancel()
            _fail(upload, cause)
        while batch := self._batches.take():
            for upload in batch.uploads():
                _fail(upload, cause)

    def _next_frames(self) -> bytes:
        """The next frames, together; nothing if none can be sent now."""
        frames: list[bytes] = []
        length = 0
        timeline = self._timeline()
        while length < _WRITE_BYTES and self._wire.can_send_frame:
            began = time.time() if timeline is not None else 0.0
            batch = self._batches.take()
            if batch is None:
                break
            tasks = batch.frame_tasks()
            frames.append(self._encoded(tasks, batch.origin))
            length += len(frames[-1])
            self.frames_sent += 1
            self.tasks_sent += len(tasks)
            if timeline is not None:
                timeline.sent(self.frames_sent, len(tasks), len(frames[-1]), began)
            if self._logger.wants_full:
                size = len(frames[-1])
                self._logger.full(f"frame {self.frames_sent}: {len(tasks)} tasks, {size} bytes")
            for upload in batch.uploads():
                self._start(upload)
        if frames:
            self._on_progress()
        return b"".join(frames)

    def _encoded(self, tasks: list[bytes], origin: FrameOrigin | None) -> bytes:
        if origin is None or self._tracing is None:
            return self._wire.send_tasks(tasks)
        span = self._tracing.begin_frame(origin, self.frames_sent + 1, len(tasks))
        frame = self._wire.send_tasks(tasks, traceparent=span.context.traceparent())
        span.end({"bytes": len(frame)})
        return frame

    def _start(self, upload: Upload) -> None:
        if self._logger.wants_full:
            self._logger.full(f"upload {upload.request}: {len(upload.data)} bytes")
        if upload.is_snapshot:
            self._snapshot_bytes += len(upload.data)
        task = asyncio.get_running_loop().create_task(self._send_upload(upload))
        self._uploads[task] = upload
        task.add_done_callback(self._uploads.pop)

    async def _send_upload(self, upload: Upload) -> None:
        """Sends one tensor and waits until the server's transport has it: until then its memory
        may be read again. The server may not want it, and says by a failure why."""
        try:
            stream = self._connection.open_bulk()
            header = encode_bulk_header(BulkHeader(upload.request, len(upload.data)))
            await stream.write(header)
            self.bytes_sent += len(header)
            transfer = upload.transfer
            if transfer is not None:
                transfer.begins(lambda: stream.unacknowledged_bytes)
            for start in range(0, len(upload.data), _BULK_BYTES):
                piece = upload.data[start : start + _BULK_BYTES]
                await stream.write(piece)
                self.bytes_sent += len(piece)
                if transfer is not None:
                    transfer.moved(len(piece))
            stream.finish()
            await stream.wait_acknowledged()
        except StreamStopped:
            pass  # Its tensor is failed by the server, which told, or will tell, why.
        except GpuwireError as error:
            _fail(upload, error)
            return
        finally:
            if upload.is_snapshot:
                self._snapshot_bytes -= len(upload.data)
                self._on_progress()
        if upload.completion is not None and not upload.completion.done():
            upload.completion.set_result(None)

    def _write_now(self, data: bytes) -> None:
        self.bytes_sent += len(data)
        self._control.write_nowait(data)


def _fail(upload: Upload, cause: GpuwireError) -> None:
    if upload.completion is not None and not upload.completion.done():
        upload.completion.set_exception(fresh(cause))
