"""A session over one link after another: whatever is cut, each frame is taken in once, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpuwire.errors import SessionError, UnexpectedMessage
from gpuwire.ids import RequestId, SessionId
from gpuwire.wire.codec import encode_message, encode_reply
from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits
from gpuwire.wire.messages import (
    Done,
    Hello,
    Message,
    ReplyFrame,
    Resume,
    Resumed,
    SessionLimits,
    TaskFrame,
    Welcome,
)
from gpuwire.wire.numbering import FrameNumbering
from gpuwire.wire.session import ClientSession, ServerSession
from gpuwire.wire.state import SessionState

SESSION, KEY = SessionId(bytes(16)), bytes(range(32))
LIMITS = SessionLimits(0, 0, 0, 60.0)
ITEM = encode_reply(Done(RequestId(1)))
HELLO = Hello((1,), "token", 0, "laptop")


def opened(limits: WireLimits = DEFAULT_LIMITS) -> tuple[ClientSession, ServerSession]:
    client, server = ClientSession(limits), ServerSession(limits)
    server.receive_data(client.send(HELLO))
    client.receive_data(server.send(Welcome(1, SESSION, (), LIMITS, "gpu-box", KEY)))
    return client, server


def hello_again(client: ClientSession, numbering: FrameNumbering) -> bytes:
    resume = Resume(SESSION, KEY, numbering.tell())
    return client.send(Hello((1,), "token", 0, "laptop", resume))


def welcome_back(server: ServerSession, numbering: FrameNumbering, hello: Message) -> bytes:
    assert isinstance(hello, Hello) and hello.resume is not None
    server.resume(numbering, hello.resume)
    return server.send(Welcome(1, SESSION, (), LIMITS, "gpu-box", None, Resumed(numbering.tell())))


def resumed(
    client: ClientSession, server: ServerSession, limits: WireLimits = DEFAULT_LIMITS
) -> tuple[ClientSession, ServerSession, bytes, bytes]:
    """The ends on a new link, and what each writes first."""
    new_client = ClientSession(limits, client.numbering)
    new_server = ServerSession(limits)
    (hello,) = new_server.receive_data(hello_again(new_client, client.numbering))
    (welcome,) = new_client.receive_data(welcome_back(new_server, server.numbering, hello))
    assert isinstance(welcome, Welcome) and welcome.resumed is not None
    return (
        new_client,
        new_server,
        b"".join(new_client.kept_frames()),
        b"".join(new_server.kept_frames()),
    )


def test_what_was_lost_under_way_is_sent_again_and_what_was_not_is_not() -> None:
    client, server = opened()
    server.receive_data(client.send_tasks([ITEM]))
    client.send_tasks([ITEM * 2], count=2, traceparent="00-trace")
    server.send_replies([ITEM])
    client, server, up, down = resumed(client, server)
    assert server.receive_data(up) == [TaskFrame(2, 0, 2, ITEM * 2, "00-trace")]
    assert client.receive_data(down) == [ReplyFrame(1, 1, 1, ITEM)]
    assert server.receive_data(client.send_tasks([ITEM])) == [TaskFrame(3, 1, 1, ITEM)]
    assert client.state is server.state is SessionState.OPEN


def test_a_resumption_settles_what_was_not_acknowledged_before() -> None:
    client, server = opened()
    server.receive_data(client.send_tasks([ITEM]))
    client.receive_data(server.send_replies([ITEM]))
    assert server.numbering.kept
    client, server, up, down = resumed(client, server)
    assert (up, down) == (b"", b"")
    assert not client.numbering.kept and not server.numbering.kept


def test_a_full_window_is_as_full_on_the_new_link() -> None:
    limits = WireLimits(max_unacknowledged_frames=8)
    client, server = opened(limits)
    while client.can_send_frame:
        client.send_tasks([ITEM])
    client, server, up, _ = resumed(client, server, limits)
    assert not client.can_send_frame
    assert len(server.receive_data(up)) == 8
    client.receive_data(server.acknowledge())
    assert client.can_send_frame


def test_a_client_that_claims_what_was_not_sent_changes_nothing() -> None:
    client, server = opened()
    server.send_replies([ITEM])
    for claimed in (2, 1 << 62):
        other = ServerSession()
        (hello,) = other.receive_data(
            ClientSession().send(Hello((1,), "t", 0, "", Resume(SESSION, KEY, claimed)))
        )
        assert isinstance(hello, Hello) and hello.resume is not None
        with pytest.raises(UnexpectedMessage, match=f"acknowledges frame {claimed}"):
            other.resume(server.numbering, hello.resume)
    assert len(server.numbering.kept) == 1
    _, _, _, down = resumed(client, server)
    assert down


@pytest.mark.parametrize(
    "answer",
    [
        Welcome(1, SESSION, (), LIMITS, "", KEY),
        Welcome(1, None, (), LIMITS, ""),
        Welcome(1, SessionId(b"1" * 16), (), LIMITS, "", None, Resumed(0)),
        Welcome(1, SESSION, (), LIMITS, "", None, Resumed(1)),
    ],
    ids=["a new session", "a list", "another session", "frames that were not sent"],
)
def test_a_server_may_not_answer_a_resumption_with_something_else(answer: Welcome) -> None:
    client = ClientSession()
    hello_again(client, client.numbering)
    with pytest.raises(UnexpectedMessage):
        client.receive_data(encode_message(answer))
    assert client.state is SessionState.BROKEN_BY_SERVER


def test_a_server_may_not_resume_what_nobody_asked_for() -> None:
    server = ServerSession()
    server.receive_data(ClientSession().send(HELLO))
    with pytest.raises(SessionError, match="cannot be sent"):
        server.send(Welcome(1, SESSION, (), LIMITS, "", None, Resumed(0)))


# --- Any cuts --------------------------------------------------------------------------------

SMALL = WireLimits(max_unacknowledged_frames=8, max_unacknowledged_bytes=400)


class CutAnywhere(RuleBasedStateMachine):
    """Both ends send whatever they may, over links that are cut anywhere, in handshakes too."""

    @initialize()
    def begin(self) -> None:
        self.client, self.server = opened(SMALL)
        self.numbering = self.server.numbering
        self.to_server, self.to_client = bytearray(), bytearray()
        self.sent: dict[str, deque[bytes]] = {"tasks": deque(), "replies": deque()}
        self.count = 0

    @property
    def is_open(self) -> bool:
        return self.client.state is self.server.state is SessionState.OPEN

    @precondition(lambda self: self.client.state is SessionState.OPEN)
    @precondition(lambda self: self.client.can_send_frame)
    @rule(count=st.integers(1, 30))
    def send_tasks(self, count: int) -> None:
        body = self._body(count)
        self.sent["tasks"].append(body)
        self.to_server += self.client.send_tasks([body], count)

    @precondition(lambda self: self.server.state is SessionState.OPEN)
    @precondition(lambda self: self.server.can_send_frame)
    @rule(count=st.integers(1, 30))
    def send_replies(self, count: int) -> None:
        body = self._body(count)
        self.sent["replies"].append(body)
        self.to_client += self.server.send_replies([body], count)

    @rule()
    def acknowledge(self) -> None:
        self.to_server += self.client.acknowledge()
        self.to_client += self.server.acknowledge()

    @rule(up=st.floats(0, 1), down=st.floats(0, 1))
    def deliver(self, up: float, down: float) -> None:
        self._deliver_up(round(up * len(self.to_server)))
        self._deliver_down(round(down * len(self.to_client)))

    @rule()
    def cut(self) -> None:
        """Whatever is under way is gone, and the client says Hello on a new link."""
        self.to_server.clear()
        self.to_client.clear()
        self.client = ClientSession(SMALL, self.client.numbering)
        self.server = ServerSession(SMALL)
        self.to_server += hello_again(self.client, self.client.numbering)

    def _body(self, count: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(2, "big") + ITEM * count

    def _deliver_up(self, size: int) -> None:
        data = bytes(self.to_server[:size])
        del self.to_server[:size]
        self._taken(self.server.receive_data(data))

    def _deliver_down(self, size: int) -> None:
        data = bytes(self.to_client[:size])
        del self.to_client[:size]
        self._taken(self.client.receive_data(data))

    def _taken(self, found: Iterable[Message]) -> None:
        for message in found:
            match message:
                case TaskFrame():
                    assert self.sent["tasks"].popleft() == message.tasks
                case ReplyFrame():
                    assert self.sent["replies"].popleft() == message.replies
                case Hello():
                    self.to_client += welcome_back(self.server, self.numbering, message)
                    self.to_client += b"".join(self.server.kept_frames())
                case Welcome():
                    self.to_server += b"".join(self.client.kept_frames())

    @invariant()
    def what_is_kept_is_bounded(self) -> None:
        for numbering in (self.client.numbering, self.numbering):
            assert len(numbering.kept) <= 8
            assert numbering.kept_bytes <= 400 + 30 * len(ITEM) + 2

    def teardown(self) -> None:
        while not self.is_open or self.to_server or self.to_client:
            self.deliver(1.0, 1.0)
        assert not self.sent["tasks"]
        assert not self.sent["replies"]
        assert self.numbering.received == self.client.numbering.sent
        assert self.client.numbering.received == self.numbering.sent


CutAnywhere.TestCase.settings = settings(
    derandomize=True, deadline=None, max_examples=80, stateful_step_count=40
)
TestCutAnywhere = CutAnywhere.TestCase
