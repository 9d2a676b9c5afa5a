"""Both ends of a session over a pipe: what a client and a server see of each other."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpuwire.errors import (
    DeviceLost,
    LimitBreached,
    MalformedMessage,
    SessionError,
    TokenRejected,
    UnexpectedMessage,
    VersionMismatch,
)
from gpuwire.ids import RequestId, SessionId
from gpuwire.wire.codec import MAX_FRAME_HEAD_BYTES, encode_message, encode_reply
from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits
from gpuwire.wire.messages import (
    Acknowledge,
    Close,
    Done,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    ReplyFrame,
    SessionLimits,
    TaskFrame,
    Welcome,
)
from gpuwire.wire.records import from_record
from gpuwire.wire.session import ClientSession, ServerSession
from gpuwire.wire.state import SessionState

HELLO = Hello((1,), "token", 0, "laptop")
ITEM = encode_reply(Done(RequestId(1)))


def welcome(server: ServerSession, max_frame_bytes: int = 0) -> Welcome:
    return Welcome(
        server.version,
        SessionId(bytes(16)),
        (),
        SessionLimits(max_frame_bytes, 0, 0, 60.0),
        "gpu-box",
    )


def opened(
    limits: WireLimits = DEFAULT_LIMITS, max_frame_bytes: int = 0
) -> tuple[ClientSession, ServerSession]:
    client, server = ClientSession(limits), ServerSession(limits)
    assert server.receive_data(client.send(HELLO)) == [HELLO]
    answer = welcome(server, max_frame_bytes)
    assert client.receive_data(server.send(answer)) == [answer]
    return client, server


# --- The handshake ---------------------------------------------------------------------------


def test_both_speak_the_servers_best_common_version() -> None:
    client, server = ClientSession(), ServerSession(versions=(3, 2, 1))
    server.receive_data(client.send(replace(HELLO, versions=(1, 2))))
    assert server.version == 2
    client.receive_data(server.send(welcome(server)))
    assert client.state is server.state is SessionState.OPEN


def test_a_version_mismatch_names_both_on_both_sides() -> None:
    client, server = ClientSession(), ServerSession(versions=(2, 3))
    with pytest.raises(VersionMismatch) as raised:
        server.receive_data(client.send(HELLO))
    assert (raised.value.ours, raised.value.theirs) == ("2, 3", "1")
    (refusal,) = client.receive_data(server.close(raised.value))
    assert isinstance(refusal, Close)
    assert refusal.error is not None
    error = from_record(refusal.error)
    assert isinstance(error, VersionMismatch)
    assert (error.ours, error.theirs) == ("1", "2, 3")
    assert "server speaks 2, 3" in str(error)
    assert "client 1" in str(error)
    assert client.state is server.state is SessionState.CLOSED


def test_a_server_may_not_choose_a_version_that_was_not_offered() -> None:
    client, server = ClientSession(), ServerSession()
    client.send(HELLO)
    with pytest.raises(VersionMismatch):
        client.receive_data(encode_message(replace(welcome(server), version=9)))


def test_a_refusal_says_why() -> None:
    client, server = ClientSession(), ServerSession()
    server.receive_data(client.send(HELLO))
    (refusal,) = client.receive_data(server.close(TokenRejected("expired", reason="expired")))
    assert isinstance(refusal, Close)
    assert refusal.error is not None
    assert isinstance(from_record(refusal.error), TokenRejected)
    assert client.state is SessionState.CLOSED
    assert client.close() == b""


def test_a_client_may_ask_for_the_devices_only() -> None:
    client, server = ClientSession(), ServerSession()
    server.receive_data(client.send(replace(HELLO, device=None)))
    client.receive_data(server.send(replace(welcome(server), session=None)))
    assert client.state is server.state is SessionState.LISTED
    assert server.receive_data(client.send(Heartbeat(1))) == [Heartbeat(1)]
    assert client.receive_data(server.send(HeartbeatReply(1))) == [HeartbeatReply(1)]
    with pytest.raises(SessionError):
        client.send_tasks([ITEM])


def test_before_it_is_admitted_a_client_cannot_make_the_server_keep_much() -> None:
    server = ServerSession()
    announced = (DEFAULT_LIMITS.max_hello_bytes + 1).to_bytes(4, "big")
    with pytest.raises(LimitBreached):
        server.receive_data(announced)
    _, server = opened()
    assert server.receive_data(announced) == []


# --- Frames ----------------------------------------------------------------------------------


def test_frames_are_numbered_and_acknowledge_each_other() -> None:
    client, server = opened()
    first, second = client.send_tasks([ITEM, ITEM]), client.send_tasks([ITEM * 3], count=3)
    assert server.receive_data(first + second) == [
        TaskFrame(1, 0, 2, ITEM * 2),
        TaskFrame(2, 0, 3, ITEM * 3),
    ]
    assert len(client.numbering.kept) == 2
    assert client.receive_data(server.send_replies([ITEM])) == [ReplyFrame(1, 2, 1, ITEM)]
    assert client.numbering.kept == ()
    assert server.receive_data(client.acknowledge()) == [Acknowledge(1)]
    assert server.numbering.kept == ()
    assert client.acknowledge() == b""


def test_what_is_kept_is_what_was_sent() -> None:
    client, _ = opened()
    data = client.send_tasks([ITEM, ITEM])
    (kept,) = client.numbering.kept
    assert kept.body == ITEM * 2
    assert kept.body.obj is data
    assert (kept.sequence, kept.count) == (1, 2)


def test_a_frame_that_came_before_is_dropped() -> None:
    client, server = opened()
    data = client.send_tasks([ITEM])
    assert len(server.receive_data(data + data)) == 1
    assert server.receive_data(data) == []
    assert server.receive_data(client.send_tasks([ITEM])) == [TaskFrame(2, 0, 1, ITEM)]


def test_a_gap_breaks_the_session() -> None:
    client, server = opened()
    client.send_tasks([ITEM])
    with pytest.raises(UnexpectedMessage, match="frame 2 came after frame 0") as raised:
        server.receive_data(client.send_tasks([ITEM]))
    assert server.state is SessionState.BROKEN_BY_CLIENT
    (close,) = client.receive_data(server.close(raised.value))
    assert isinstance(close, Close)
    assert client.state is SessionState.CLOSED_BY_SERVER


@pytest.mark.parametrize("message", [Acknowledge(1), TaskFrame(1, 1, 1, ITEM)])
def test_nobody_acknowledges_what_was_not_sent(message: Message) -> None:
    _, server = opened()
    with pytest.raises(UnexpectedMessage, match="acknowledges frame 1"):
        server.receive_data(encode_message(message))


def test_the_window_fills_and_opens_again() -> None:
    client, server = opened(WireLimits(max_unacknowledged_frames=16))
    while client.can_send_frame:
        server.receive_data(client.send_tasks([ITEM]))
    assert len(client.numbering.kept) == 16
    with pytest.raises(SessionError, match="wait"):
        client.send_tasks([ITEM])
    assert server.acknowledgement_due
    client.receive_data(server.acknowledge())
    assert client.can_send_frame
    assert server.receive_data(client.send_tasks([ITEM])) == [TaskFrame(17, 0, 1, ITEM)]


def test_a_frame_above_the_servers_limit_is_refused_before_it_is_sent() -> None:
    client, server = opened(max_frame_bytes=1000)
    assert client.max_body_bytes == 1000 - MAX_FRAME_HEAD_BYTES
    most = b"\x91\x00" * (client.max_body_bytes // 2)
    with pytest.raises(LimitBreached, match="frame's body"):
        client.send_tasks([most + b"\x91\x00"], count=1)
    with pytest.raises(LimitBreached, match="items"):
        client.send_tasks([])
    (frame,) = server.receive_data(client.send_tasks([most], count=1))
    assert isinstance(frame, TaskFrame)
    assert (frame.sequence, frame.tasks) == (1, most)


def test_a_server_with_higher_limits_sends_no_more_than_a_client_takes() -> None:
    _, server = opened(WireLimits(max_frame_bytes=1 << 30))
    assert server.max_body_bytes == DEFAULT_LIMITS.max_frame_bytes - MAX_FRAME_HEAD_BYTES


def test_the_longest_frame_passes() -> None:
    client, server = opened(WireLimits(max_frame_bytes=5000))
    body = bytes(client.max_body_bytes)
    (frame,) = server.receive_data(client.send_tasks([body], count=1))
    assert isinstance(frame, TaskFrame)
    assert frame.tasks == body


# --- The end ---------------------------------------------------------------------------------


def test_what_was_under_way_at_a_close_still_arrives() -> None:
    client, server = opened()
    goodbye = client.close()
    replies = server.send_replies([ITEM])
    assert client.receive_data(replies) == [ReplyFrame(1, 0, 1, ITEM)]
    assert server.receive_data(goodbye) == [Close(None)]
    assert client.receive_data(server.close()) == [Close(None)]
    assert client.state is server.state is SessionState.CLOSED


def test_a_close_carries_its_error() -> None:
    client, server = opened()
    (close,) = client.receive_data(server.close(DeviceLost("gone", device=0)))
    assert isinstance(close, Close)
    assert close.error is not None
    error = from_record(close.error)
    assert isinstance(error, DeviceLost)
    assert error.device == 0


def test_garbage_breaks_the_session_and_can_be_answered() -> None:
    client, server = opened()
    with pytest.raises(MalformedMessage) as raised:
        server.receive_data(b"\x00\x00\x00\x01\xc1" + client.send_tasks([ITEM]))
    assert server.receive_data(client.send_tasks([ITEM])) == []
    with pytest.raises(SessionError):
        server.send_replies([ITEM])
    (close,) = client.receive_data(server.close(raised.value))
    assert isinstance(close, Close)
    assert server.close() == b""


def test_what_comes_after_the_end_is_dropped() -> None:
    client, server = opened()
    server.receive_data(client.close())
    farewell = server.close()
    assert client.receive_data(farewell + encode_message(Heartbeat(1))) == [Close(None)]
    assert client.receive_data(b"anything") == []


def test_an_end_that_has_closed_has_nothing_to_answer_to_garbage() -> None:
    for end in opened():
        end.close()
        with pytest.raises(MalformedMessage):
            end.receive_data(b"\x00\x00\x00\x01\xc1")
        assert end.state is SessionState.CLOSED
        assert end.close() == b""


def test_a_close_from_any_state_raises_nothing() -> None:
    for end in (ClientSession(), ServerSession(), *opened()):
        assert end.close(ValueError("x"))
        assert end.close(ValueError("x")) == b""


# --- Any conversation ------------------------------------------------------------------------

SMALL = WireLimits(max_unacknowledged_frames=8, max_unacknowledged_bytes=400)


class Conversation(RuleBasedStateMachine):
    """A client and a server that say whatever they may, over pipes that cut anywhere."""

    @initialize()
    def begin(self) -> None:
        self.client, self.server = opened(SMALL)
        self.to_server, self.to_client = bytearray(), bytearray()
        self.sent: dict[str, deque[bytes]] = {"tasks": deque(), "replies": deque()}

    def taken(self, found: list[Message]) -> None:
        """Frames arrive in order, once, with the body they were sent with."""
        for message in found:
            if isinstance(message, TaskFrame):
                assert self.sent["tasks"].popleft() == message.tasks
            elif isinstance(message, ReplyFrame):
                assert self.sent["replies"].popleft() == message.replies

    @precondition(lambda self: self.client.state is SessionState.OPEN)
    @precondition(lambda self: self.client.can_send_frame)
    @rule(count=st.integers(1, 30))
    def send_tasks(self, count: int) -> None:
        self.sent["tasks"].append(ITEM * count)
        self.to_server += self.client.send_tasks([ITEM] * count)

    @precondition(lambda self: self.server.can_send_frame)
    @precondition(
        lambda self: self.server.state in (SessionState.OPEN, SessionState.CLOSED_BY_CLIENT)
    )
    @rule(count=st.integers(1, 30))
    def send_replies(self, count: int) -> None:
        self.sent["replies"].append(ITEM * count)
        self.to_client += self.server.send_replies([ITEM] * count)

    @rule()
    def acknowledge(self) -> None:
        self.to_server += self.client.acknowledge()
        self.to_client += self.server.acknowledge()

    @rule(part=st.floats(0, 1))
    def deliver(self, part: float) -> None:
        cut = round(part * len(self.to_server))
        self.taken(self.server.receive_data(bytes(self.to_server[:cut])))
        del self.to_server[:cut]
        cut = round(part * len(self.to_client))
        self.taken(self.client.receive_data(bytes(self.to_client[:cut])))
        del self.to_client[:cut]

    @precondition(lambda self: len(self.sent["tasks"]) > 5)
    @rule()
    def client_closes(self) -> None:
        self.to_server += self.client.close()

    @precondition(lambda self: len(self.sent["replies"]) > 5)
    @rule()
    def server_closes(self) -> None:
        self.to_client += self.server.close()

    @invariant()
    def what_is_kept_is_bounded(self) -> None:
        for end in (self.client, self.server):
            assert len(end.numbering.kept) <= 8
            assert end.numbering.kept_bytes <= 400 + 30 * len(ITEM)
            assert end.numbering.acknowledged_by_peer <= end.numbering.sent

    def teardown(self) -> None:
        self.deliver(1.0)
        assert self.server.numbering.received == self.client.numbering.sent
        assert self.client.numbering.received == self.server.numbering.sent
        assert not self.sent["tasks"]
        assert not self.sent["replies"]


Conversation.TestCase.settings = settings(
    derandomize=True, deadline=None, max_examples=60, stateful_step_count=40
)
TestConversation = Conversation.TestCase
