"""Tasks and replies from a peer: every field checked."""

from __future__ import annotations

import pytest

from gpuwire.errors import LimitBreached, MalformedMessage
from gpuwire.wire.items import checked_error, checked_reply, checked_task
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import DropTensors, ErrorRecord, Failed
from gpuwire.wire.operations import Plain

TYPE: Plain = (11, (2,))
ERROR: Plain = ((1, "x"),)


@pytest.mark.parametrize(
    "item",
    [
        (16,),
        (16, 0),
        (16, -1, 50, 900, 5, (1, 2)),
        (16, 1 << 32, 50, 900, 5, (1, 2)),
        (17, 0, 1, 1, *TYPE),
        (17, 0, 1, 1, *TYPE, None, 0),
        (17, 0, 0, 1, *TYPE, None),
        (17, 0, 1, 0, *TYPE, None),
        (17, 0, 1, 1, 0, (2,), None),
        (17, 0, 1, 1, 11, 2, None),
        (17, 0, 1, 1, 11, (-2,), None),
        (17, 0, 1, 1, *TYPE, "12345678"),
        (17, 0, 1, 1, *TYPE, bytes(7)),
        (18, 0, 1),
        (18, None, 1, 1),
        (19, 0),
        (19, 0, None),
        (20, (1, 2)),
        (20, bytes(8)),
        (20, bytes(7)),
        (20, b"\xff" * 8),
        (20, b"\x00" * 7 + b"\x01" + b"\x00" * 8),
        (21,),
        (21, 0),
        (21, 0, 0),
        (21, 0, 1, None, 0),
        (21, 0, 1, (1,)),
        (21, 0, 1, b"\x00\x00"),
        (21, 0, 1, b"\x00\x00\x0b" + bytes(7)),
        (21, 0, 1, b"\x00\x00\x63" + bytes(8)),
        (21, 0, 1, b"\x00\x00\x01\x02"),
        (21, 0, 1, b"\x00\x00\x02\x80" + bytes(7)),
        (21, 0, 1, None, 1, (1,)),
        (21, 0, 1, None, 1, b"\x80"),
        (21, 0, 1, None, 1, b"\x80" * 10 + b"\x01"),
        (21, 0, 1, None, 1, None, None, None, "x"),
        (21, 0, 1, None, 1, None, None, None, None, None),
        (22, 1),
        (22, 0, None),
        (22, 1, ()),
        (23,),
        (0,),
    ],
)
def test_a_wrong_task_is_malformed(item: Plain) -> None:
    with pytest.raises(MalformedMessage):
        checked_task(item, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    "item",
    [
        (64, 1, *TYPE),
        (64, 0, *TYPE, None),
        (64, 1, *TYPE, bytes(9)),
        (65,),
        (65, 0),
        (65, 1, 1),
        (66, 1, ERROR),
        (66, 0, ERROR, 0),
        (66, 1, (), 0),
        (66, 1, ((1,),), 0),
        (66, 1, ((1, "x", "name"),), 0),
        (66, 1, ((1, "x", 1, 1),), 0),
        (66, 1, ((1, "x", "name", ()),), 0),
        (66, 1, ((-1, "x"),), 0),
        (66, 1, (("x", "x"),), 0),
        (66, 1, (1,), 0),
        (66, 1, ERROR, -1),
        (67,),
        (67, 0),
        (67, 1, 1),
        (68, 1),
        (68,),
        (68, bytes(14)),
        (68, b"\x01" + bytes(14)),
        (69, 1),
    ],
)
def test_a_wrong_reply_is_malformed(item: Plain) -> None:
    with pytest.raises(MalformedMessage):
        checked_reply(item, DEFAULT_LIMITS)


def test_limits_of_items() -> None:
    with pytest.raises(LimitBreached, match="inline tensor"):
        checked_task((17, 0, 1, 1, 2, (70_000,), bytes(70_000)), DEFAULT_LIMITS)
    with pytest.raises(LimitBreached, match="error field"):
        checked_reply((66, 1, ((1, "x", "name", bytes(70_000)),), 0), DEFAULT_LIMITS)
    with pytest.raises(LimitBreached, match="tensors dropped"):
        checked_task((20, bytes(8 * 8193)), DEFAULT_LIMITS)
    assert checked_task((20, b""), DEFAULT_LIMITS) == DropTensors(())
    with pytest.raises(LimitBreached, match="graph inputs"):
        checked_task((21, 0, 1, None, 1, None, bytes(4097)), DEFAULT_LIMITS)
    with pytest.raises(LimitBreached, match="graph scalars"):
        checked_task((21, 0, 1, b"\x00\x00\x01\x00" * 4097), DEFAULT_LIMITS)
    with pytest.raises(LimitBreached, match="graph definition"):
        checked_task((22, 1, bytes(96 * 1024 + 1)), DEFAULT_LIMITS)


def test_a_chain_of_errors_is_limited_in_depth() -> None:
    deepest = ((1, "x"),) * (DEFAULT_LIMITS.max_causes + 1)
    found = checked_error(deepest, DEFAULT_LIMITS)
    for _ in range(DEFAULT_LIMITS.max_causes):
        assert found is not None
        found = found.cause
    assert found == ErrorRecord(1, "x")
    with pytest.raises(LimitBreached, match="causes"):
        checked_error((*deepest, (1, "x")), DEFAULT_LIMITS)


def test_a_failure_names_its_request_and_location() -> None:
    failed = checked_reply((66, 8, ((100, "bad", "place", 3),), 5), DEFAULT_LIMITS)
    assert failed == Failed(8, ErrorRecord(100, "bad", (("place", 3),)), 5)
