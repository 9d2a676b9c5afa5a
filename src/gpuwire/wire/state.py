"""The states of a session and the one table that moves it.

Both ends use the same table: a row says what the state becomes when that role sends that kind of
message, whether this end is the sender or the receiver. What has no row is not allowed.
"""

from __future__ import annotations

from enum import Enum

from gpuwire.wire.messages import (
    Acknowledge,
    AnnounceUpload,
    Close,
    Facts,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    ReplyFrame,
    TaskFrame,
    UploadFound,
    Watch,
    Welcome,
)


class Role(Enum):
    """The two ends of a session."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def peer(self) -> Role:
        return Role.SERVER if self is Role.CLIENT else Role.CLIENT


class SessionState(Enum):
    """Where a session's conversation stands, as one end sees it."""

    AWAITING_HELLO = "awaiting hello"
    AWAITING_WELCOME = "awaiting welcome"
    AWAITING_RESUMPTION = "awaiting welcome back"
    """The client said a Hello that resumes a session."""
    OPEN = "open"
    LISTED = "listed"
    """The client asked for the devices only: nothing follows but heartbeats, what a viewer is told,
    and close."""
    CLOSED_BY_CLIENT = "closed by the client"
    """The client has said its last; what the server sent meanwhile still arrives."""
    CLOSED_BY_SERVER = "closed by the server"
    """The server has said its last; what the client sent meanwhile still arrives."""
    BROKEN_BY_CLIENT = "broken by the client"
    """The client broke the protocol; all that is left is to tell it so."""
    BROKEN_BY_SERVER = "broken by the server"
    CLOSED = "closed"


class Event(Enum):
    """What moves the state: a message's kind, told apart where its content matters."""

    HELLO = "Hello"
    RESUME = "Hello that resumes"
    WELCOME = "Welcome"
    WELCOME_LIST = "Welcome without a session"
    WELCOME_BACK = "Welcome of a resumed session"
    TASKS = "TaskFrame"
    REPLIES = "ReplyFrame"
    ACKNOWLEDGE = "Acknowledge"
    HEARTBEAT = "Heartbeat"
    HEARTBEAT_REPLY = "HeartbeatReply"
    WATCH = "Watch"
    FACTS = "Facts"
    ANNOUNCE = "AnnounceUpload"
    FOUND = "UploadFound"
    CLOSE = "Close"
    BREACH = "a breach of the protocol"
    """Not a message: the role sent what the protocol does not allow."""


_EVENTS: dict[type[Message], Event] = {
    TaskFrame: Event.TASKS,
    ReplyFrame: Event.REPLIES,
    Acknowledge: Event.ACKNOWLEDGE,
    Heartbeat: Event.HEARTBEAT,
    HeartbeatReply: Event.HEARTBEAT_REPLY,
    Watch: Event.WATCH,
    Facts: Event.FACTS,
    AnnounceUpload: Event.ANNOUNCE,
    UploadFound: Event.FOUND,
    Close: Event.CLOSE,
}


def event_of(message: Message) -> Event:
    """The event that a message is."""
    match message:
        case Hello(resume=resume):
            return Event.HELLO if resume is None else Event.RESUME
        case Welcome(session=None):
            return Event.WELCOME_LIST
        case Welcome(resumed=resumed):
            return Event.WELCOME if resumed is None else Event.WELCOME_BACK
    return _EVENTS[type(message)]


_S, _E, _C, _V = SessionState, Event, Role.CLIENT, Role.SERVER

_MOVES: dict[tuple[SessionState, Role, Event], SessionState] = {
    (_S.AWAITING_HELLO, _C, _E.HELLO): _S.AWAITING_WELCOME,
    (_S.AWAITING_HELLO, _C, _E.RESUME): _S.AWAITING_RESUMPTION,
    (_S.AWAITING_HELLO, _C, _E.CLOSE): _S.CLOSED,
    (_S.AWAITING_HELLO, _V, _E.CLOSE): _S.CLOSED,
    (_S.AWAITING_WELCOME, _V, _E.WELCOME): _S.OPEN,
    (_S.AWAITING_WELCOME, _V, _E.WELCOME_LIST): _S.LISTED,
    (_S.AWAITING_WELCOME, _V, _E.CLOSE): _S.CLOSED,
    (_S.AWAITING_WELCOME, _C, _E.CLOSE): _S.CLOSED_BY_CLIENT,
    (_S.AWAITING_RESUMPTION, _V, _E.WELCOME_BACK): _S.OPEN,
    (_S.AWAITING_RESUMPTION, _V, _E.CLOSE): _S.CLOSED,
    (_S.AWAITING_RESUMPTION, _C, _E.CLOSE): _S.CLOSED_BY_CLIENT,
    (_S.OPEN, _C, _E.CLOSE): _S.CLOSED_BY_CLIENT,
    (_S.OPEN, _V, _E.CLOSE): _S.CLOSED_BY_SERVER,
    (_S.LISTED, _C, _E.CLOSE): _S.CLOSED_BY_CLIENT,
    (_S.LISTED, _V, _E.CLOSE): _S.CLOSED_BY_SERVER,
    (_S.CLOSED_BY_CLIENT, _V, _E.CLOSE): _S.CLOSED,
    (_S.CLOSED_BY_SERVER, _C, _E.CLOSE): _S.CLOSED,
    (_S.BROKEN_BY_CLIENT, _V, _E.CLOSE): _S.CLOSED,
    (_S.BROKEN_BY_SERVER, _C, _E.CLOSE): _S.CLOSED,
}
"""What moves the state."""

_ANYONE = (_E.ACKNOWLEDGE, _E.HEARTBEAT, _E.HEARTBEAT_REPLY)
_WELCOMES = (_E.WELCOME, _E.WELCOME_LIST, _E.WELCOME_BACK)
_STAYS: tuple[tuple[SessionState, Role, tuple[Event, ...]], ...] = (
    (_S.OPEN, _C, (_E.TASKS, _E.ANNOUNCE, *_ANYONE)),
    (_S.OPEN, _V, (_E.REPLIES, _E.FOUND, *_ANYONE)),
    (_S.LISTED, _C, (_E.HEARTBEAT, _E.HEARTBEAT_REPLY, _E.WATCH)),
    (_S.LISTED, _V, (_E.HEARTBEAT, _E.HEARTBEAT_REPLY, _E.FACTS)),
    # Sent before the Close was seen; a Welcome may cross a client's early Close.
    (_S.CLOSED_BY_CLIENT, _V, (*_WELCOMES, _E.REPLIES, _E.FOUND, _E.FACTS, *_ANYONE)),
    (_S.CLOSED_BY_SERVER, _C, (_E.TASKS, _E.ANNOUNCE, _E.WATCH, *_ANYONE)),
)
"""What is allowed and leaves the state as it is."""

_BREACHES: dict[tuple[SessionState, Role, Event], SessionState] = {
    **{
        (state, role, _E.BREACH): broken
        for state in (
            _S.AWAITING_HELLO,
            _S.AWAITING_WELCOME,
            _S.AWAITING_RESUMPTION,
            _S.OPEN,
            _S.LISTED,
            _S.CLOSED_BY_CLIENT,
            _S.CLOSED_BY_SERVER,
        )
        for role, broken in ((_C, _S.BROKEN_BY_CLIENT), (_V, _S.BROKEN_BY_SERVER))
    },
    # The other end has said its last already and cannot even complain.
    (_S.CLOSED_BY_CLIENT, _V, _E.BREACH): _S.CLOSED,
    (_S.CLOSED_BY_SERVER, _C, _E.BREACH): _S.CLOSED,
}
"""Either may break the protocol at any time before the end."""

TRANSITIONS: dict[tuple[SessionState, Role, Event], SessionState] = {
    **_MOVES,
    **{(state, role, event): state for state, role, events in _STAYS for event in events},
    **_BREACHES,
}
"""State, sender and event to the next state."""


def next_state(state: SessionState, sender: Role, event: Event) -> SessionState | None:
    """The state after that role sent that; None if it may not."""
    return TRANSITIONS.get((state, sender, event))
