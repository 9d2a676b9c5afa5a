"""Records as JSON and back: the same record, and nothing else is believed."""

from __future__ import annotations

import pytest

from gpuwire.errors import MalformedMessage
from gpuwire.telemetry.plain import from_json, from_plain, to_json, to_plain
from gpuwire.telemetry.snapshots import (
    CacheCounts,
    Count,
    EventBlock,
    EventName,
    GraphDrawing,
    HostSnapshot,
    KernelSample,
    KernelSnapshot,
    NodeSnapshot,
    OpEvent,
    PoolSnapshot,
    ServerSnapshot,
    SessionSnapshot,
    Totals,
    TrafficPoint,
)

EVENT = OpEvent(1.5, 3, "matmul", "matmul", "float32[2, 3]", 24, 7, 1.25, 0.0)
EVENTS = EventBlock((EventName("matmul", "matmul", "float32[2, 3]", 24),), "")
SAMPLE = KernelSample(1.75, 3, "matmul f32", 0.25)
HOST = HostSnapshot(
    2.0,
    "device",
    10,
    20,
    1,
    (PoolSnapshot("small", "sliced", 10, 20, 10, 20),),
    (),
    CacheCounts(runs=4, registrations=1, baseline_bytes=400, actual_bytes=150),
    (Count("matmul", 2),),
    EVENTS,
    0,
    (SAMPLE,),
    (KernelSnapshot("matmul f32", 2, 1, 0.25),),
    (),
)
SESSION = SessionSnapshot(
    *("1f2e", 1, 0, "default", "laptop", "127.0.0.1:9", "open"),
    *(1.0, 1, 2, 3, 4, 5, None, 1200, 0, 0, 7, 8),
)
POINT = TrafficPoint(1.0, 1.0, 1.0, 1.0, 1.0, 0.0, ())
SERVER = ServerSnapshot(
    *(1.0, "a server", 1, 0, True, Totals(), (), (SESSION,), (), (POINT,)),
    *(((0, EVENTS),), 0, ((0, SAMPLE),), ("a line",)),
)
DRAWING = GraphDrawing(
    1, ("float32[2]",), (0,), (NodeSnapshot("exp", "elementwise", ("i0",), "f", 8, ""),)
)


@pytest.mark.parametrize("record", [EVENT, HOST, SERVER, DRAWING], ids=lambda r: type(r).__name__)
def test_a_record_comes_back_as_it_was(record: object) -> None:
    assert from_json(type(record), to_json(record)) == record


def test_fields_go_by_their_names() -> None:
    assert to_plain(Count("matmul", 2)) == {"kind": "matmul", "count": 2}


@pytest.mark.parametrize(
    ("plain", "what"),
    [
        ([], "wanted Count"),
        ({"kind": "x"}, "lacks count"),
        ({"kind": 1, "count": 2}, "wanted str"),
        ({"kind": "x", "count": True}, "wanted int"),
        ({"kind": "x", "count": None}, "wanted int"),
    ],
)
def test_what_is_no_record_is_refused(plain: object, what: str) -> None:
    with pytest.raises(MalformedMessage, match=what):
        from_plain(Count, plain)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="not JSON"):
        from_json(Count, b"\xff")
    with pytest.raises(MalformedMessage):
        from_json(Count, b"[" * 100_000)


def test_saved_bytes_are_never_negative() -> None:
    assert CacheCounts(baseline_bytes=400, actual_bytes=150).saved_bytes == 250
    assert CacheCounts(baseline_bytes=1, actual_bytes=150).saved_bytes == 0
