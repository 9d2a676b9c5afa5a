"""One session in the front: frames to the device host, replies and tensor bytes back.

A session outlives its link: while the link is lost it waits for its client, keeps what is not
acknowledged, and takes nothing from the host but what is on its way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuwire.bulk import Mode
from gpuwire.errors import DeviceLost, GpuwireError, LimitBreached, SessionLost
from gpuwire.host.channel_messages import (
    ChannelMessage,
    DownloadBroken,
    DownloadChunk,
    DownloadReady,
    LogLine,
    Replies,
    RepliesWritten,
    SessionBroken,
    Tasks,
    TasksTaken,
    UploadRefused,
    UploadWanted,
)
from gpuwire.host.envelopes import unpack_error
from gpuwire.server.attached_link import AttachedLink, Link
from gpuwire.server.device_host import DeviceHost
from gpuwire.server.downloads import Downloads
from gpuwire.server.upload_cache import OwnUploads
from gpuwire.server.uploads import Uploads
from gpuwire.transport import PathInfo
from gpuwire.wire.messages import (
    AnnounceUpload,
    Close,
    Heartbeat,
    HeartbeatReply,
    Message,
    Resume,
    Resumed,
    TaskFrame,
    UploadFound,
)

if TYPE_CHECKING:
    from gpuwire.server.tracing import FrameTracing

HIGH_WATER_BYTES = 8 * 1024 * 1024
"""Task bytes that the host has not taken, or reply bytes that the link has not: above it the
control stream is not read, and QUIC's flow control stops the client."""
WRITTEN_STEP_BYTES = 256 * 1024
"""The host is told in steps of this size how much of its replies has left, far below the window
that it has of them: telling of each would wake it once more for each."""
HARD_LIMIT_BYTES = 8 * HIGH_WATER_BYTES
"""Above the high water a client is still read, but not beyond this, where what is waited for comes
on the same stream: acknowledgements of replies, and the tasks of uploads, whose unread bytes
would in the end leave no window to the uploads that the host waits for."""


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """In seconds."""

    heartbeat: float
    """How often the client is sent one; it may be silent for three of them."""
    grace: float
    """How long a session whose link is lost waits for its client; 0: not at all."""


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What a session says of itself."""

    number: int
    state: str
    frames_in: int
    frames_out: int
    tasks: int
    backlog_bytes: int
    resumptions: int
    path: PathInfo
    """Of the present link, or the last; its counts of bytes are those of all links."""


class Session:
    """A session from its opening to its end. `open` it on its first link, then `run` it."""

    def __init__(
        self,
        host: DeviceHost,
        device: int,
        times: SessionTimes,
        kept: OwnUploads,
        compression: Mode,
        tell: Callable[[str], None],
    ) -> None:
        """`kept` are the uploads of its owner that need not be sent again; `compression` is of
        downloads. `tell` gets lines for the log: when the link is lost, and the device host's."""
        self._host = host
        self._device = device
        self._times = times
        self._kept = kept
        self._compression: Mode = compression
        self._tell = tell
        self.tracing: FrameTracing | None = None
        """Where frames that clients trace are told; set before `open`."""
        self._attached: AttachedLink | None = None
        self._ending: asyncio.Future[GpuwireError | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._grace: asyncio.TimerHandle | None = None
        self._resumptions = 0
        self._backlog = 0
        """Bytes of tasks that the host has not taken."""
        self._replies: deque[Replies] = deque()
        """Replies that wait for a link, or for the client to acknowledge earlier ones."""
        self._number = 0
        self._tasks = 0
        self._written = 0
        """Bytes of replies that the transport took, and the host has not been told of."""
        self._earlier = (0, 0)
        """Bytes received and sent over links that are gone."""

    def open(
        self,
        link: Link,
        welcome: bytes,
        early: Sequence[Message],
        max_memory_bytes: int,
        max_upload_bytes: int,
    ) -> AttachedLink:
        """Opens the session on its host and says Welcome. `early` are messages that came behind the
        Hello. `DeviceLost` if the host is gone."""
        self._number = self._host.open(self, max_memory_bytes, max_upload_bytes)
        self._uploads = Uploads(
            self._host, self._number, link.limits, self.end, self._kept, self._say
        )
        self._downloads = Downloads(self._host, self._number, self._compression)
        self._numbering = link.wire.numbering
        self._last_connection = link.connection
        attached = self._attach(link, (welcome,), early)
        self._downloads.link_found(link.connection, ())
        return attached

    async def run(self) -> tuple[GpuwireError | None, int]:
        """Serves the session until it ends. Returns why it did (None: the client closed it) and how
        many bytes of device memory came free. The client has been told, if it was there."""
        try:
            reason = await self._ending
        finally:
            attached = self._attached
            if attached is not None:
                attached.stop()
            if self._grace is not None:
                self._grace.cancel()
            self._uploads.close()
            self._downloads.close()
            ended = asyncio.ensure_future(self._host.end(self._number))
        if attached is not None:
            attached.writer.send(attached.wire.close(reason))
        freed = await ended
        if attached is not None:
            await attached.say_goodbye()
        return reason, freed

    def resume(
        self, link: Link, resume: Resume, welcome: Callable[[Resumed], bytes]
    ) -> AttachedLink:
        """Goes on over another link, whoever noticed that the one before is of no use: its client
        says so. Raises, and nothing has changed, why the session has ended meanwhile, or a
        `ProtocolError` for a client whose counts cannot be."""
        if self._ending.done():
            raise self._ending.result() or SessionLost("the session was closed by its client")
        self._downloads.check(resume.downloads)
        link.wire.resume(self._numbering, resume)
        if self._attached is not None:
            self._detach(self._attached, "the client came back over another link")
        if self._grace is not None:
            self._grace.cancel()
        self._resumptions += 1
        resumed = Resumed(self._numbering.tell(), self._uploads.progress())
        first = (welcome(resumed), *link.wire.kept_frames())
        attached = self._attach(link, first, ())
        self._downloads.link_found(link.connection, resume.downloads)
        self._send_waiting_replies()
        return attached

    def end(self, reason: GpuwireError | None) -> None:
        """Ends the session; the first reason counts."""
        if not self._ending.done():
            self._ending.set_result(reason)

    def facts(self) -> LinkFacts:
        """How it stands, for whoever watches."""
        path, numbering = self._last_connection.path, self._numbering
        received, sent = self._earlier
        if self._attached is not None:
            received, sent = received + path.bytes_received, sent + path.bytes_sent
        return LinkFacts(
            self._number,
            self._state(),
            numbering.received,
            numbering.sent,
            self._tasks,
            self._backlog,
            self._resumptions,
            replace(path, bytes_received=received, bytes_sent=sent),
        )

    def _state(self) -> str:
        if self._ending.done():
            return "ending"
        if self._attached is None:
            return "away"
        return "paused" if self._attached.is_paused else "open"

    # --- Its links ---

    def link_lost(self, attached: AttachedLink, error: GpuwireError) -> None:
        """The link is of no more use."""
        if attached is not self._attached or self._ending.done():
            return
        if not self._times.grace:
            self.end(error)
            return
        self._detach(attached, str(error))
        self._tell(f"lost its link and waits {self._times.grace:g} s for its client: {error}")
        loop = asyncio.get_running_loop()
        self._grace = loop.call_later(self._times.grace, self._give_up, error)

    def _attach(self, link: Link, first: Sequence[bytes], early: Sequence[Message]) -> AttachedLink:
        self._attached = attached = AttachedLink(link, self, self._times.heartbeat)
        self._last_connection = link.connection
        attached.start(first, early, self._uploads)
        return attached

    def _detach(self, attached: AttachedLink, reason: str) -> None:
        self._attached = None
        attached.detach(reason)
        self._uploads.link_lost(attached.connection)
        self._downloads.link_lost()
        path, (received, sent) = attached.connection.path, self._earlier
        self._earlier = (received + path.bytes_received, sent + path.bytes_sent)

    def _give_up(self, cause: GpuwireError) -> None:
        error = SessionLost(
            f"the session waited {self._times.grace:g} s for its client (resume_grace_seconds) and "
            "was ended"
        )
        error.__cause__ = cause
        self.end(error)

    # --- From the client ---

    def may_read(self) -> bool:
        """Whether there is room for more from the client; `LimitBreached` if it must not wait."""
        attached = self._attached
        assert attached is not None
        if self._backlog <= HIGH_WATER_BYTES and attached.writer.queued <= HIGH_WATER_BYTES:
            return True
        if self._backlog <= HARD_LIMIT_BYTES:
            return bool(self._uploads.unmatched) or not self._numbering.has_room
        if self._numbering.has_room:
            return False
        raise LimitBreached(
            f"{self._backlog} bytes of tasks without an acknowledgement of the replies",
            what="task bytes",
            value=self._backlog,
            limit=HARD_LIMIT_BYTES,
        )

    def handle_client(self, message: Message) -> None:
        """Takes a message of the client."""
        match message:
            case TaskFrame(count=count, tasks=body):
                self._backlog += len(body)
                self._tasks += count
                if message.traceparent and self.tracing is not None:
                    self._take_traced(message, self.tracing)
                else:
                    self._host.send(Tasks(self._number, count, body))
            case Heartbeat(number):
                self._say(HeartbeatReply(number))
            case AnnounceUpload():
                self._uploads.announced(message)
            case Close():
                self.end(None)

    def _say(self, message: HeartbeatReply | UploadFound) -> None:
        """Sends a message, if there is a link and a client to hear it."""
        if self._attached is not None and not self._ending.done():
            self._attached.writer.send(self._attached.wire.send(message))

    def messages_taken(self) -> None:
        """What was read together has been handed over: acknowledgements may have made room."""
        self._send_waiting_replies()

    def _take_traced(self, frame: TaskFrame, tracing: FrameTracing) -> None:
        from gpuwire.server.tracing import traced

        span = tracing.begin(frame)
        if span is not None:
            self._host.send(traced(self._number, span))
        self._host.send(Tasks(self._number, frame.count, frame.tasks))
        if span is not None:
            span.end()

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
                self._wake_reader()
            case UploadWanted(_, request, length):
                self._uploads.wanted(request, length)
            case UploadRefused(_, request):
                self._uploads.refused(request)
            case DownloadReady(_, request, length, item_bytes):
                self._downloads.ready(request, length, item_bytes)
            case DownloadChunk():
                self._downloads.chunk(message)
            case DownloadBroken(_, request):
                self._downloads.broken(request)
            case SessionBroken(_, payload):
                self.end(unpack_error(payload))
            case LogLine(_, payload):
                self._tell(bytes(payload).decode())

    def host_lost(self, reason: str, error: GpuwireError | None) -> None:
        """The device host is gone, by this session's work if there is an `error`."""
        text = f"{reason}; every array of this session is lost, connect again"
        self.end(error or DeviceLost(text, device=self._device, reason=reason))

    def replies_written(self, size: int) -> None:
        """The transport took so many bytes of replies."""
        self._written += size
        if self._written >= WRITTEN_STEP_BYTES:
            self._host.send(RepliesWritten(self._number, self._written))
            self._written = 0
        self._wake_reader()

    def _send_waiting_replies(self) -> None:
        attached = self._attached
        if attached is None:
            return
        wire = attached.wire
        while self._replies and wire.can_send_frame:
            replies = self._replies.popleft()
            body = bytes(replies.payload)
            attached.writer.send(wire.send_replies((body,), replies.count), len(body))

    def _wake_reader(self) -> None:
        if self._attached is not None:
            self._attached.readable.set()
