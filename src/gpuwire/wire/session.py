"""The two ends of a session: bytes in, messages out, and back. No I/O, no clock.

The caller writes whatever `send…` returns to the control stream, in that order, and hands what it
reads there to `receive_data`. Frames are numbered, acknowledged and kept for sending again here.
A `GpuwireError` from `receive_data` is the peer's fault: send `Close(to_record(error))`, then end
the link.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits
from gpuwire.wire.messages import (
    Buffer,
    Close,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    Welcome,
)
from gpuwire.wire.state import Role, SessionState


class Session:
    """What both ends do. Make a `ClientSession` or a `ServerSession`."""

    def __init__(self, role: Role, limits: WireLimits) -> None:
        raise NotImplementedError

    @property
    def state(self) -> SessionState:
        raise NotImplementedError

    def receive_data(self, data: bytes) -> list[Message]:
        """The messages that `data` completes, in order; duplicates of frames are left out. A
        frame's body is a view of `data` where it came in one piece.

        Raises `MalformedMessage`, `LimitBreached`, `UnexpectedMessage` or `VersionMismatch`;
        then the session is broken and only `Close` can be sent.
        """
        raise NotImplementedError

    @property
    def can_send_frame(self) -> bool:
        """Whether another frame may be kept; if not, wait for the peer's acknowledgement."""
        raise NotImplementedError

    @property
    def max_body_bytes(self) -> int:
        """The longest body that the peer takes in one frame."""
        raise NotImplementedError

    @property
    def acknowledgement_due(self) -> bool:
        """Whether so much came in unacknowledged that the peer may soon have to wait. Checked
        after `receive_data`; every frame sent carries an acknowledgement too."""
        raise NotImplementedError

    def acknowledge(self) -> bytes:
        """An `Acknowledge` of all that came in; no bytes if the peer knows already. To be sent when
        due, and whenever the link has been idle."""
        raise NotImplementedError


class ClientSession(Session):
    """The client's end. First `send(Hello)`, then wait for `Welcome` or a refusing `Close`."""

    def __init__(self, limits: WireLimits = DEFAULT_LIMITS) -> None:
        super().__init__(Role.CLIENT, limits)

    def send(self, message: Hello | Heartbeat | HeartbeatReply | Close) -> bytes:
        """A message's bytes. `SessionError` where the state does not allow it."""
        raise NotImplementedError

    def send_tasks(self, tasks: Sequence[Buffer], count: int | None = None) -> bytes:
        """The next frame: encoded tasks back to back (`codec.encode_task`). `count` is their
        number where a piece holds more than one. `SessionError` if the window is full."""
        raise NotImplementedError


class ServerSession(Session):
    """The server's end. On `Hello`, answer with `send(Welcome)`, or `send(Close)` to refuse."""

    def __init__(self, limits: WireLimits = DEFAULT_LIMITS) -> None:
        super().__init__(Role.SERVER, limits)

    version: int
    """The version to name in `Welcome`; known once `Hello` came."""

    def send(self, message: Welcome | Heartbeat | HeartbeatReply | Close) -> bytes:
        """A message's bytes. `SessionError` where the state does not allow it."""
        raise NotImplementedError

    def send_replies(self, replies: Sequence[Buffer], count: int | None = None) -> bytes:
        """The next frame of replies, as `ClientSession.send_tasks`."""
        raise NotImplementedError
