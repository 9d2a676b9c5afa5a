"""The two ends of a session on one link: bytes in, messages out, and back. No I/O, no clock.

The caller writes whatever `send…`, `acknowledge` and `close` return to the control stream, in
that order, and hands what it reads there to `receive_data`. Frames are numbered, acknowledged and
kept for sending again here. A `GpuwireError` from `receive_data` is the peer's fault: write
`close(error)`, then end the link.

A session that goes on over a new link has new ends there, which take over the `numbering` of those
before; those are not used any more. Once the server has said welcome, what `kept_frames` gives is
written first, on both sides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from gpuwire.errors import GpuwireError, SessionError, UnexpectedMessage, VersionMismatch
from gpuwire.wire.codec import MAX_FRAME_HEAD_BYTES, decode_message, encode_frame, encode_message
from gpuwire.wire.fields import breached
from gpuwire.wire.framing import FrameReader
from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits
from gpuwire.wire.messages import (
    PROTOCOL_VERSIONS,
    Acknowledge,
    AnnounceUpload,
    Buffer,
    Close,
    Facts,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    ReplyFrame,
    Resume,
    TaskFrame,
    UploadFound,
    Watch,
    Welcome,
)
from gpuwire.wire.numbering import FrameNumbering
from gpuwire.wire.records import to_record
from gpuwire.wire.state import Event, Role, SessionState, event_of, next_state

_OVER = (SessionState.CLOSED, SessionState.BROKEN_BY_CLIENT, SessionState.BROKEN_BY_SERVER)


class Session(ABC):
    """What both ends do. Make a `ClientSession` or a `ServerSession`."""

    def __init__(
        self,
        role: Role,
        limits: WireLimits,
        first_message_bytes: int,
        numbering: FrameNumbering | None = None,
    ) -> None:
        self._role = role
        self._limits = limits
        self._reader = FrameReader(first_message_bytes)
        self._state = SessionState.AWAITING_HELLO
        self._peer_frame_bytes = limits.max_frame_bytes
        self.numbering = numbering or FrameNumbering(limits)
        """Frame numbers, acknowledgements and the frames kept: the session's, not the link's."""

    @property
    def state(self) -> SessionState:
        return self._state

    # --- Receiving

    def receive_data(self, data: bytes) -> list[Message]:
        """The messages that `data` completes, in order; frames that came before are left out. A
        frame's body is a view of `data` where it came in one piece.

        Raises `MalformedMessage`, `LimitBreached`, `UnexpectedMessage` or `VersionMismatch`; then
        the session is over and only `close` has something to send. What comes after the end is
        dropped.
        """
        messages: list[Message] = []
        if self._state in _OVER:
            return messages
        try:
            for payload in self._reader.feed(data):
                message = decode_message(payload, self._limits)
                if self._receive(message):
                    messages.append(message)
                if self._state in _OVER:
                    break
        except GpuwireError:
            self._move(self._role.peer, Event.BREACH)
            raise
        return messages

    def _receive(self, message: Message) -> bool:
        """Take a message in; False for a frame that came before."""
        if not self._move(self._role.peer, event_of(message)):
            raise UnexpectedMessage(
                f"the {self._role.peer.value} sent {type(message).__name__} while the session was "
                f"{self._state.value}",
                kind=type(message).__name__,
                state=self._state.value,
            )
        match message:
            case TaskFrame() | ReplyFrame():
                self.numbering.take_acknowledgement(message.acknowledged)
                return self.numbering.take_in(message.sequence, len(_body(message)))
            case Acknowledge():
                self.numbering.take_acknowledgement(message.acknowledged)
            case Hello() | Welcome():
                self._negotiate(message)
        return True

    @abstractmethod
    def _negotiate(self, message: Hello | Welcome) -> None:
        """Check the peer's side of the handshake."""

    # --- Sending

    @property
    def can_send_frame(self) -> bool:
        """Whether the window has room for another frame; if not, wait until `receive_data` brought
        the peer's acknowledgement. The window counts frames and bytes: see `WireLimits`."""
        return self.numbering.has_room

    @property
    def max_body_bytes(self) -> int:
        """The longest body that the peer takes in one frame."""
        return self._peer_frame_bytes - MAX_FRAME_HEAD_BYTES

    @property
    def acknowledgement_due(self) -> bool:
        """Whether so much came in unacknowledged that the peer may soon have to wait. Look after
        `receive_data`; every frame sent carries an acknowledgement too."""
        return self.numbering.acknowledgement_due

    def kept_frames(self) -> Iterator[bytes]:
        """The frames that the peer has not taken in, oldest first, to be sent again: once, right
        after the welcome of a resumed session and before any new frame."""
        is_client = self._role is Role.CLIENT
        kind = TaskFrame if is_client else ReplyFrame
        for kept in self.numbering.kept:
            self._must_move(Event.TASKS if is_client else Event.REPLIES)
            told = self.numbering.tell()
            yield encode_frame(
                kind, kept.sequence, told, kept.count, (kept.body,), kept.traceparent
            )

    def acknowledge(self) -> bytes:
        """An `Acknowledge` of all that came in; no bytes if the peer knows already, or if the
        session is not open. Send it when due, and whenever the link has been idle."""
        if not self.numbering.acknowledgement_owed or not self._move(self._role, Event.ACKNOWLEDGE):
            return b""
        return encode_message(Acknowledge(self.numbering.tell()))

    def close(self, error: BaseException | None = None) -> bytes:
        """The last message: a `Close`, with the error that ends the session if there is one. No
        bytes if this end has sent its last already. Whatever the state, this raises nothing."""
        if not self._move(self._role, Event.CLOSE):
            return b""
        return encode_message(Close(None if error is None else to_record(error)))

    def _send(
        self,
        message: Hello
        | Welcome
        | Heartbeat
        | HeartbeatReply
        | Watch
        | Facts
        | AnnounceUpload
        | UploadFound
        | Close,
    ) -> bytes:
        data = encode_message(message)
        self._must_move(event_of(message))
        return data

    def _send_frame(
        self,
        kind: type[TaskFrame] | type[ReplyFrame],
        event: Event,
        items: Sequence[Buffer],
        count: int | None,
        traceparent: str = "",
    ) -> bytes:
        body_bytes = sum(map(len, items))
        if body_bytes > self.max_body_bytes:
            raise breached("bytes of a frame's body", body_bytes, self.max_body_bytes)
        count = len(items) if count is None else count
        if not 1 <= count <= self._limits.max_items_per_frame:
            raise breached("items of a frame", count, self._limits.max_items_per_frame)
        self._must_move(event)
        numbering = self.numbering
        numbering.check_room()
        told = numbering.tell()
        data = encode_frame(kind, numbering.sent + 1, told, count, items, traceparent)
        numbering.keep(count, memoryview(data)[len(data) - body_bytes :], traceparent)
        return data

    # --- The state, which nothing else moves

    def _move(self, sender: Role, event: Event) -> bool:
        """Go where the table says; False if it has no such row."""
        state = next_state(self._state, sender, event)
        if state is None:
            return False
        self._state = state
        return True

    def _must_move(self, event: Event) -> None:
        if not self._move(self._role, event):
            raise SessionError(
                f"a {event.value} cannot be sent: the session is {self._state.value}"
            )


class ClientSession(Session):
    """The client's end. First `send(Hello)`, then wait for `Welcome`, or for a `Close` that
    refuses: its error says why. A `numbering` goes with a Hello that resumes its session."""

    def __init__(
        self, limits: WireLimits = DEFAULT_LIMITS, numbering: FrameNumbering | None = None
    ) -> None:
        super().__init__(Role.CLIENT, limits, limits.max_frame_bytes, numbering)
        self._hello: Hello | None = None

    def send(
        self, message: Hello | Heartbeat | HeartbeatReply | Watch | AnnounceUpload | Close
    ) -> bytes:
        """A message's bytes. `SessionError` where the state does not allow it."""
        data = self._send(message)
        if isinstance(message, Hello):
            self._hello = message
        return data

    def send_tasks(
        self, tasks: Sequence[Buffer], count: int | None = None, traceparent: str = ""
    ) -> bytes:
        """The next frame: encoded tasks (`codec.encode_task`), copied once into it. `count` is
        their number where a piece holds more than one; `traceparent` says of which trace they are.

        `SessionError` if the session is not open or the window is full (`can_send_frame`);
        `LimitBreached` above `max_body_bytes` or `max_items_per_frame`. Then nothing was numbered.
        """
        return self._send_frame(TaskFrame, Event.TASKS, tasks, count, traceparent)

    def _negotiate(self, message: Hello | Welcome) -> None:
        hello = self._hello
        assert isinstance(message, Welcome)
        assert hello is not None
        if message.version not in hello.versions:
            raise _mismatch(hello.versions, (message.version,), "client", "server")
        if (message.session is None) != (hello.device is None):
            raise UnexpectedMessage(
                "the server's Welcome has a session that was not asked for, or lacks one that was",
                kind="Welcome",
                state=self._state.value,
            )
        if hello.resume is not None and message.resumed is not None:
            if message.session != hello.resume.session:
                raise UnexpectedMessage(
                    "the server resumes another session", kind="Welcome", state=self._state.value
                )
            self.numbering.take_acknowledgement(message.resumed.acknowledged)
        self._peer_frame_bytes = message.limits.max_frame_bytes or self._peer_frame_bytes


class ServerSession(Session):
    """The server's end. On `Hello`, answer with `send(Welcome)`, or refuse with `close(error)`;
    on one that resumes a session, `resume` comes before the welcome."""

    def __init__(
        self,
        limits: WireLimits = DEFAULT_LIMITS,
        versions: tuple[int, ...] = PROTOCOL_VERSIONS,
    ) -> None:
        super().__init__(Role.SERVER, limits, limits.max_hello_bytes)
        # A client does not tell its limit, so it may be the usual one.
        self._peer_frame_bytes = min(limits.max_frame_bytes, DEFAULT_LIMITS.max_frame_bytes)
        self._versions = versions
        self.version = 0
        """The version to name in `Welcome`; known once `Hello` came, 0 before."""

    def send(
        self, message: Welcome | Heartbeat | HeartbeatReply | Facts | UploadFound | Close
    ) -> bytes:
        """A message's bytes. `SessionError` where the state does not allow it."""
        data = self._send(message)
        if isinstance(message, Welcome):
            # Only an admitted client may make the server keep whole frames.
            self._reader.limit = self._limits.max_frame_bytes
        return data

    def send_replies(self, replies: Sequence[Buffer], count: int | None = None) -> bytes:
        """The next frame of replies, as `ClientSession.send_tasks`."""
        return self._send_frame(ReplyFrame, Event.REPLIES, replies, count)

    def resume(self, numbering: FrameNumbering, resume: Resume) -> None:
        """Goes on with a session's numbering. `UnexpectedMessage`, and nothing has changed, if the
        client claims to have what was not sent."""
        numbering.take_acknowledgement(resume.acknowledged)
        self.numbering = numbering

    def _negotiate(self, message: Hello | Welcome) -> None:
        assert isinstance(message, Hello)
        common = [version for version in self._versions if version in message.versions]
        if not common:
            raise _mismatch(self._versions, message.versions, "server", "client")
        self.version = common[0]


def _body(frame: TaskFrame | ReplyFrame) -> Buffer:
    return frame.tasks if isinstance(frame, TaskFrame) else frame.replies


def _mismatch(
    ours: tuple[int, ...], theirs: tuple[int, ...], we: str, they: str
) -> VersionMismatch:
    our_text, their_text = (", ".join(map(str, versions)) for versions in (ours, theirs))
    return VersionMismatch(
        f"no common protocol version: the {we} speaks {our_text}, the {they} {their_text}; "
        f"install the same gpuwire on both",
        ours=our_text,
        theirs=their_text,
    )
