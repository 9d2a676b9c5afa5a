"""The one table: what it allows, both ends do; what it does not, both ends refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwire.errors import SessionError, UnexpectedMessage
from gpuwire.ids import RequestId, SessionId
from gpuwire.wire.codec import encode_message
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
    Resume,
    Resumed,
    SessionLimits,
    TaskFrame,
    UploadFound,
    Watch,
    Welcome,
)
from gpuwire.wire.session import ClientSession, ServerSession
from gpuwire.wire.state import TRANSITIONS, Event, Role, SessionState, event_of

_LIMITS = SessionLimits(0, 0, 0, 1.0)
HELLO = Hello((1,), "", 0, "")
RESUME = Hello((1,), "", 0, "", Resume(SessionId(bytes(16)), bytes(32), 0))
LIST_HELLO = Hello((1,), "", None, "")
WELCOME = Welcome(1, SessionId(bytes(16)), (), _LIMITS, "")
LIST_WELCOME = Welcome(1, None, (), _LIMITS, "")
WELCOME_BACK = replace(WELCOME, resumed=Resumed(0))

MESSAGES: dict[Event, Message] = {
    event_of(message): message
    for message in (
        HELLO,
        RESUME,
        WELCOME,
        LIST_WELCOME,
        WELCOME_BACK,
        TaskFrame(1, 0, 1, b"\x92\x41\x08"),
        ReplyFrame(1, 0, 1, b"\x92\x41\x08"),
        Acknowledge(0),
        Heartbeat(1),
        HeartbeatReply(1),
        Watch(1),
        Facts(1, 2, 3, b"{}"),
        AnnounceUpload(RequestId(1), 2, bytes(32)),
        UploadFound(RequestId(1), False),
        Close(None),
    )
}

GARBAGE = encode_message(Heartbeat(1))[:4] + b"\xc1\xc1\xc1"

WAYS: dict[SessionState, tuple[tuple[Role, Message | None], ...]] = {
    SessionState.AWAITING_HELLO: (),
    SessionState.AWAITING_WELCOME: ((Role.CLIENT, HELLO),),
    SessionState.AWAITING_RESUMPTION: ((Role.CLIENT, RESUME),),
    SessionState.OPEN: ((Role.CLIENT, HELLO), (Role.SERVER, WELCOME)),
    SessionState.LISTED: ((Role.CLIENT, LIST_HELLO), (Role.SERVER, LIST_WELCOME)),
    SessionState.CLOSED_BY_CLIENT: (
        (Role.CLIENT, HELLO),
        (Role.SERVER, WELCOME),
        (Role.CLIENT, Close(None)),
    ),
    SessionState.CLOSED_BY_SERVER: (
        (Role.CLIENT, HELLO),
        (Role.SERVER, WELCOME),
        (Role.SERVER, Close(None)),
    ),
    SessionState.BROKEN_BY_CLIENT: (
        (Role.CLIENT, HELLO),
        (Role.SERVER, WELCOME),
        (Role.CLIENT, None),
    ),
    SessionState.BROKEN_BY_SERVER: (
        (Role.CLIENT, HELLO),
        (Role.SERVER, WELCOME),
        (Role.SERVER, None),
    ),
    SessionState.CLOSED: ((Role.SERVER, Close(None)),),
}
"""Who says what to reach each state; None is garbage."""

OVER = (SessionState.BROKEN_BY_CLIENT, SessionState.BROKEN_BY_SERVER, SessionState.CLOSED)


def send(end: ClientSession | ServerSession, message: Message) -> bytes:
    """The message through the method that it belongs to."""
    match message:
        case TaskFrame():
            assert isinstance(end, ClientSession)
            return end.send_tasks([message.tasks])
        case ReplyFrame():
            assert isinstance(end, ServerSession)
            return end.send_replies([message.replies])
    return end.send(message)  # type: ignore[arg-type]


def reached(role: Role, state: SessionState) -> ClientSession | ServerSession | None:
    """That end in that state; None where this end cannot see it (one's own breach)."""
    end = ClientSession() if role is Role.CLIENT else ServerSession()
    for sender, message in WAYS[state]:
        if message is None:
            if sender is role:
                return None
            with pytest.raises(Exception, match="not msgpack"):
                end.receive_data(GARBAGE)
        elif sender is role:
            send(end, message)
        else:
            end.receive_data(encode_message(message))
    assert end.state is state
    return end


CASES = [
    (role, state, event)
    for role in Role
    for state in SessionState
    for event in Event
    if event is not Event.BREACH
]


def sendable(role: Role, event: Event) -> bool:
    """Whether that end has a way to send that at all."""
    only = {
        Event.HELLO: Role.CLIENT,
        Event.RESUME: Role.CLIENT,
        Event.TASKS: Role.CLIENT,
        Event.WELCOME: Role.SERVER,
        Event.WELCOME_LIST: Role.SERVER,
        Event.WELCOME_BACK: Role.SERVER,
        Event.REPLIES: Role.SERVER,
    }
    # Acknowledgements are sent by `acknowledge`, which has nothing to say here.
    return event is not Event.ACKNOWLEDGE and only.get(event, role) is role


@pytest.mark.parametrize(("role", "state", "event"), CASES)
def test_receiving_follows_the_table(role: Role, state: SessionState, event: Event) -> None:
    end = reached(role, state)
    if end is None:
        return
    data = encode_message(MESSAGES[event])
    wanted = TRANSITIONS.get((state, role.peer, event))
    if state in OVER:
        assert end.receive_data(data) == []
        assert end.state is state
    elif wanted is None:
        with pytest.raises(UnexpectedMessage, match="while the session was"):
            end.receive_data(data)
        assert end.state is TRANSITIONS[state, role.peer, Event.BREACH]
    elif event is Event.WELCOME_LIST:
        # Every way here asked for a session.
        with pytest.raises(UnexpectedMessage, match="lacks one"):
            end.receive_data(data)
    else:
        assert end.receive_data(data) == [MESSAGES[event]]
        assert end.state is wanted


@pytest.mark.parametrize(("role", "state", "event"), CASES)
def test_sending_follows_the_table(role: Role, state: SessionState, event: Event) -> None:
    end = reached(role, state)
    if end is None or not sendable(role, event):
        return
    wanted = TRANSITIONS.get((state, role, event))
    if wanted is None:
        with pytest.raises(SessionError, match="cannot be sent"):
            send(end, MESSAGES[event])
        assert end.state is state
    else:
        assert send(end, MESSAGES[event])
        assert end.state is wanted


def test_every_state_can_end() -> None:
    for state in SessionState:
        reachable = {state}
        while True:
            more = {to for (at, _, _), to in TRANSITIONS.items() if at in reachable} | reachable
            if more == reachable:
                break
            reachable = more
        assert SessionState.CLOSED in reachable


def test_nothing_leaves_the_end() -> None:
    assert not [key for key in TRANSITIONS if key[0] is SessionState.CLOSED]
