"""One session in the front: frames to the device host, replies and tensor bytes back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuwire.errors import DeviceLost, GpuwireError, LimitBreached, LinkLost, ProtocolError
from gpuwire.host.channel_messages import (
    ChannelMessage,
    DownloadBroken,
    DownloadChunk,
    DownloadReady,
    Replies,
    RepliesWritten,
    SessionBroken,
    Tasks,
    TasksTaken,
    UploadRefused,
    UploadWanted,
)
from gpuwire.host.envelopes import unpack_error
from gpuwire.server.control_writer import ControlWriter
from gpuwire.server.device_host import DeviceHost
from gpuwire.server.downloads import Downloads
from gpuwire.server.uploads import Uploads
from gpuwire.transport import Connection, PathInfo, Stream
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import Close, Heartbeat, HeartbeatReply, Message, TaskFrame
from gpuwire.wire.session import ServerSession

if TYPE_CHECKING:
    from gpuwire.server.tracing import FrameTracing

READ_BYTES = 256 * 1024
HIGH_WATER_BYTES = 8 * 1024 * 1024
"""Task bytes that the host has not taken, or reply bytes that the link has not: above it the
control stream is not read, and QUIC's flow control stops the client."""
HARD_LIMIT_BYTES = 8 * HIGH_WATER_BYTES
"""Above the high water a client is still read, but not beyond this, where what is waited for comes
on the same stream: acknowledgements of replies, and the tasks of uploads, whose unread bytes
would in the end leave no window to the uploads that the host waits for."""
MISSED_HEARTBEATS = 3
FAREWELL_SECONDS = 2.0
"""How long a session's end waits for the client to have the last message."""


@dataclass(frozen=True, slots=True)
class Link:
    """The way to the client: one connection, its control stream, the conversation on it."""

    connection: Connection
    control: Stream
    wire: ServerSession
    limits: WireLimits


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What a session says of itself."""

    number: int
    state: str
    frames_in: int
    frames_out: int
    tasks: int
    backlog_bytes: int
    path: PathInfo


class Session:
    """A session from its Welcome to its end. `run` it once."""

    def __init__(self, link: Link, host: DeviceHost, device: int, heartbeat_seconds: float) -> None:
        self._link = link
        self._host = host
        self._device = device
        self._heartbeat_seconds = heartbeat_seconds
        self.tracing: FrameTracing | None = None
        """Where frames that clients trace are told; set before `run`."""
        self._writer = ControlWriter(link.control.writer, self._replies_written)
        self._ending: asyncio.Future[GpuwireError | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._readable = asyncio.Event()
        self._paused = False
        """The control stream is not read, so nothing can be heard from the client."""
        self._backlog = 0
        """Bytes of tasks that the host has not taken."""
        self._replies: deque[Replies] = deque()
        """Replies that wait for the client to acknowledge earlier ones."""
        self._heard = asyncio.get_running_loop().time()
        self._number = 0
        self._tasks = 0

    async def run(
        self, welcome: bytes, early: Sequence[Message], max_memory_bytes: int, max_upload_bytes: int
    ) -> tuple[GpuwireError | None, int]:
        """Opens the session on its host, says Welcome, and serves it until it ends. `early` are
        messages that came behind the Hello.

        Returns why it ended (None: the client closed it) and how many bytes of device memory came
        free. The client has been told.
        """
        self._number = self._host.open(self, max_memory_bytes, max_upload_bytes)
        self._uploads = Uploads(self._host, self._number, self._link.limits, self.end)
        self._downloads = Downloads(self._host, self._number, self._link.connection)
        self._writer.send(welcome)
        for message in early:
            self._handle_client(message)
        running = [
            asyncio.create_task(work)
            for work in (self._read(), self._accept_uploads(), self._keep_alive())
        ]
        try:
            reason = await self._ending
        finally:
            for task in running:
                task.cancel()
            self._uploads.close()
            self._downloads.close()
            ended = asyncio.ensure_future(self._host.end(self._number))
        self._writer.send(self._link.wire.close(reason))
        freed = await ended
        try:
            await asyncio.wait_for(self._writer.finish(), FAREWELL_SECONDS)
        except TimeoutError:
            self._writer.abandon()
        return reason, freed

    def end(self, reason: GpuwireError | None) -> None:
        """Ends the session; the first reason counts."""
        if not self._ending.done():
            self._ending.set_result(reason)

    def facts(self) -> LinkFacts:
        """How it stands, for whoever watches."""
        path, numbering = self._link.connection.path, self._link.wire.numbering
        state = "ending" if self._ending.done() else "paused" if self._paused else "open"
        return LinkFacts(
            self._number,
            state,
            numbering.received,
            numbering.sent,
            self._tasks,
            self._backlog,
            path,
        )

    # --- From the client ---

    async def _read(self) -> None:
        wire, reader = self._link.wire, self._link.control.reader
        try:
            while True:
                while not self._may_read():
                    self._paused = True
                    self._readable.clear()
                    await self._readable.wait()
                self._paused = False
                data = await reader.read(READ_BYTES)
                if not data:
                    self.end(LinkLost("the client's control stream ended without a Close"))
                    return
                self._heard = asyncio.get_running_loop().time()
                for message in wire.receive_data(data):
                    self._handle_client(message)
                self._send_waiting_replies()
                if wire.acknowledgement_due:
                    self._writer.send(wire.acknowledge())
        except ProtocolError as error:
            self.end(error)
        except GpuwireError as error:
            lost = error if isinstance(error, LinkLost) else LinkLost(f"the link is gone: {error}")
            self.end(lost)

    def _may_read(self) -> bool:
        if self._backlog <= HIGH_WATER_BYTES and self._writer.queued <= HIGH_WATER_BYTES:
            return True
        if self._backlog <= HARD_LIMIT_BYTES:
            return bool(self._uploads.unmatched) or not self._link.wire.can_send_frame
        if self._link.wire.can_send_frame:
            return False
        raise LimitBreached(
            f"{self._backlog} bytes of tasks without an acknowledgement of the replies",
            what="task bytes",
            value=self._backlog,
            limit=HARD_LIMIT_BYTES,
        )

    def _handle_client(self, message: Message) -> None:
        match message:
            case TaskFrame(count=count, tasks=body):
                self._backlog += len(body)
                self._tasks += count
                if message.traceparent and self.tracing is not None:
                    self._take_traced(message, self.tracing)
                else:
                    self._host.send(Tasks(self._number, count, body))
            case Heartbeat(number):
                self._writer.send(self._link.wire.send(HeartbeatReply(number)))
            case Close():
                self.end(None)

    def _take_traced(self, frame: TaskFrame, tracing: FrameTracing) -> None:
        from gpuwire.server.tracing import traced

        span = tracing.begin(frame)
        if span is not None:
            self._host.send(traced(self._number, span))
        self._host.send(Tasks(self._number, frame.count, frame.tasks))
        if span is not None:
            span.end()

    async def _accept_uploads(self) -> None:
        try:
            while True:
                self._uploads.accept(await self._link.connection.accept_bulk())
        except GpuwireError:
            # The link is gone: `_read` ends the session.
            return

    async def _keep_alive(self) -> None:
        """Heartbeats, always: while the client is not read its own cannot be answered, and these
        tell it that the server lives."""
        number = 0
        loop = asyncio.get_running_loop()
        while not self._ending.done():
            await asyncio.sleep(self._heartbeat_seconds)
            if self._ending.done():
                return
            number += 1
            self._writer.send(self._link.wire.acknowledge())
            self._writer.send(self._link.wire.send(Heartbeat(number)))
            if self._paused:
                self._heard = loop.time()
            silent = loop.time() - self._heard
            if silent > MISSED_HEARTBEATS * self._heartbeat_seconds:
                self.end(LinkLost(f"the client was silent for {silent:.1f} s", seconds=silent))

    # --- From the host ---

    def handle_host(self, message: ChannelMessage) -> None:
        """Takes a message of the device host about this session."""
        if self._ending.done():
            return
        match message:
            case Replies():
                self._replies.append(message)
                self._send_waiting_replies()
            case TasksTaken(_, size):
                self._backlog -= size
                self._readable.set()
            case UploadWanted(_, request, length):
                self._uploads.wanted(request, length)
            case UploadRefused(_, request):
                self._uploads.refused(request)
            case DownloadReady(_, request, length):
                self._downloads.ready(request, length)
            case DownloadChunk():
                self._downloads.chunk(message)
            case DownloadBroken(_, request):
                self._downloads.broken(request)
            case SessionBroken(_, payload):
                self.end(unpack_error(payload))

    def host_lost(self, reason: str, error: GpuwireError | None) -> None:
        """The device host is gone, by this session's work if there is an `error`."""
        text = f"{reason}; every array of this session is lost, connect again"
        self.end(error or DeviceLost(text, device=self._device, reason=reason))

    def _send_waiting_replies(self) -> None:
        wire = self._link.wire
        while self._replies and wire.can_send_frame:
            replies = self._replies.popleft()
            body = bytes(replies.payload)
            self._writer.send(wire.send_replies((body,), replies.count), len(body))

    def _replies_written(self, size: int) -> None:
        if size:
            self._host.send(RepliesWritten(self._number, size))
        self._readable.set()
