"""Control messages from a peer: every field checked."""

from __future__ import annotations

import pytest

from gpuwire.errors import LimitBreached, MalformedMessage
from gpuwire.ids import RequestId, SessionId
from gpuwire.wire.codec import encode_message
from gpuwire.wire.control import checked_frame, checked_message
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import Hello, Resume, SessionLimits, TaskFrame, Welcome
from gpuwire.wire.operations import Plain

LIMITS: Plain = (1, 2, 3, 0.5)
RESUME: Plain = (bytes(16), bytes(32), 0, ())
DEVICE: Plain = (0, "n", "b", "k", "d", ("float32",), (), 1, 2, 3, 4)


@pytest.mark.parametrize(
    "item",
    [
        (),
        (0,),
        (9,),
        (16, 1),
        (1, (1,), "", 0),
        (1, 1, "", 0, ""),
        (1, (0,), "", 0, ""),
        (1, ("1",), "", 0, ""),
        (1, (1,), b"", 0, ""),
        (1, (1,), "", -1, ""),
        (1, (1,), "", 0, None),
        (1, (1,), "", 0, "", 1),
        (1, (1,), "", 0, "", RESUME[:3]),
        (1, (1,), "", 0, "", (bytes(15), *RESUME[1:])),
        (1, (1,), "", 0, "", (bytes(16), bytes(31), *RESUME[2:])),
        (1, (1,), "", 0, "", (bytes(16), "k" * 32, *RESUME[2:])),
        (1, (1,), "", 0, "", (*RESUME[:2], -1, ())),
        (1, (1,), "", 0, "", (*RESUME[:3], 1)),
        (1, (1,), "", 0, "", (*RESUME[:3], (1,))),
        (1, (1,), "", 0, "", (*RESUME[:3], ((1,),))),
        (1, (1,), "", 0, "", (*RESUME[:3], ((0, 1),))),
        (1, (1,), "", 0, "", (*RESUME[:3], ((1, -1),))),
        (1, (1,), "", 0, "", (*RESUME[:3], ((1, "1"),))),
        (1, (1,), "", None, "", RESUME),
        (2, 1, bytes(16), (), LIMITS, "", bytes(32)),
        (2, 1, bytes(16), (), LIMITS, "", bytes(31), None),
        (2, 1, bytes(16), (), LIMITS, "", None, (1,)),
        (2, 1, bytes(16), (), LIMITS, "", None, (1, ((0, 1),))),
        (2, 1, None, (), LIMITS, "", bytes(32), None),
        (2, 1, None, (), LIMITS, "", None, (1, ())),
        (2, 1, None, (), LIMITS),
        (2, 0, None, (), LIMITS, ""),
        (2, 1, bytes(15), (), LIMITS, ""),
        (2, 1, "x" * 16, (), LIMITS, ""),
        (2, 1, None, None, LIMITS, ""),
        (2, 1, None, (DEVICE[:-1],), LIMITS, ""),
        (2, 1, None, ((*DEVICE[:5], ("f", 1), *DEVICE[6:]),), LIMITS, ""),
        (2, 1, None, ((*DEVICE[:7], -1, *DEVICE[8:]),), LIMITS, ""),
        (2, 1, None, (), (), ""),
        (2, 1, None, (), (1, 2, 3, 1), ""),
        (2, 1, None, (), (1, 2, 3, float("nan")), ""),
        (2, 1, None, (), (1, 2, 3, float("inf")), ""),
        (2, 1, None, (), (1, 2, 3, -1.0), ""),
        (5, -1),
        (5,),
        (6, None),
        (6, 1, 1),
        (7, "1"),
        (8, None),
        (8, (), ()),
        (22, 1, 2),
        (22, 0, 2, bytes(32)),
        (22, 1, -1, bytes(32)),
        (22, 1, 2, bytes(31)),
        (22, 1, 2, "x" * 32),
        (22, 1, 2, bytes(32), True),
        (23, 1),
        (23, 0, True),
        (23, 1, 1),
    ],
)
def test_a_wrong_message_is_malformed(item: Plain) -> None:
    with pytest.raises(MalformedMessage):
        checked_message(item, DEFAULT_LIMITS)


BODY = b"\x91\x00"


@pytest.mark.parametrize(
    "head",
    [
        (3, 1, 0),
        (3, 1, 0, 1, ""),
        (3, 1, 0, 1, b"00-"),
        (3, 1, 0, 1, 7),
        (3, 1, 0, 1, "00-", "more"),
        (4, 1, 0, 1, "00-"),
    ],
)
def test_a_wrong_frame_head_is_malformed(head: Plain) -> None:
    with pytest.raises(MalformedMessage):
        checked_frame(head, BODY, DEFAULT_LIMITS)


def test_a_traceparent_has_its_limit_and_is_otherwise_the_business_of_who_traces() -> None:
    assert checked_frame((3, 1, 0, 1, "no trace"), BODY, DEFAULT_LIMITS) == TaskFrame(
        1, 0, 1, BODY, "no trace"
    )
    longest = "é" * (DEFAULT_LIMITS.max_traceparent_bytes // 2)
    checked_frame((3, 1, 0, 1, longest), BODY, DEFAULT_LIMITS)
    with pytest.raises(LimitBreached, match="traceparent"):
        checked_frame((3, 1, 0, 1, longest + "é"), BODY, DEFAULT_LIMITS)


def test_a_session_id_is_no_longer_than_sixteen_bytes() -> None:
    with pytest.raises(LimitBreached, match="session"):
        checked_message((2, 1, bytes(17), (), LIMITS, ""), DEFAULT_LIMITS)


def test_a_later_versions_hello_can_still_be_read() -> None:
    hello = checked_message((1, (3, 2), "t", None, "c", None, "new", {}), DEFAULT_LIMITS)
    assert hello == Hello((3, 2), "t", None, "c")


def test_progress_has_its_limit_and_the_longest_fits_into_a_hello() -> None:
    most = DEFAULT_LIMITS.max_resumed_transfers
    longest = ((RequestId((1 << 63) - 1), (1 << 63) - 1),) * most
    resume = Resume(SessionId(bytes(16)), bytes(32), 1, longest)
    data = encode_message(Hello((1,), "t" * 100, 0, "c" * 200, resume))
    assert len(data) < DEFAULT_LIMITS.max_hello_bytes
    with pytest.raises(LimitBreached, match="downloads"):
        checked_message((1, (1,), "", 0, "", (*RESUME[:3], ((1, 1),) * (most + 1))), DEFAULT_LIMITS)


def test_a_message_in_a_log_shows_neither_token_nor_key() -> None:
    resume = Resume(SessionId(bytes(16)), b"secret" + bytes(26), 1)
    assert "secret" not in repr(Hello((1,), "secret", 0, "laptop", resume))
    limits = SessionLimits(1, 2, 3, 0.5)
    assert "secret" not in repr(Welcome(1, SessionId(bytes(16)), (), limits, "", b"secret"))


@pytest.mark.parametrize(
    "head",
    [(3, 1, 0), (3, 1, 0, 1, 1), (3, 0, 0, 1), (3, 1, -1, 1), (3, 1, 0, 0), (3, 1, 0, "1")],
)
def test_a_wrong_frame_is_malformed(head: Plain) -> None:
    with pytest.raises(MalformedMessage):
        checked_frame(head, b"\x91\x00", DEFAULT_LIMITS)


def test_a_frame_keeps_its_body() -> None:
    assert checked_frame((3, 1, 0, 1), b"\x91\x00", DEFAULT_LIMITS) == TaskFrame(
        1, 0, 1, b"\x91\x00"
    )
