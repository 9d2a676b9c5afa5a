"""Events in rows: what comes back is what was added, each viewer's part is its own."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.errors import MalformedMessage
from gpuwire.telemetry.event_block import ROW, EventRows, only, unpacked
from gpuwire.telemetry.snapshots import NO_EVENTS, EventBlock, EventName, OpEvent

names = st.builds(EventName, st.text(max_size=4), st.text(max_size=4), st.text(), st.integers(0))
rows = st.tuples(
    st.floats(0, 2e9),
    st.sampled_from([-1.0, 0.0, 0.25, 3.0]),
    st.sampled_from([0.0, 0.5]),
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    names,
)


@given(st.lists(rows, max_size=20), st.sets(st.integers(1, 3)))
@settings(derandomize=True, deadline=None)
def test_events_come_back_in_order_and_by_session(
    added: list[tuple[float, float, float, int, int, EventName]], sessions: set[int]
) -> None:
    collected = EventRows()
    for row in added:
        collected.add(*row)
    block, count = collected.take()
    assert count == len(added)
    events = list(unpacked(block))
    assert events == [
        OpEvent(
            moment,
            session,
            name.kind,
            name.name,
            name.shape,
            name.nbytes,
            frame,
            moment - waited if waited >= 0 else 0.0,
            seconds,
        )
        for moment, waited, seconds, frame, session, name in added
    ]
    own = only(block, sessions)
    assert list(unpacked(own)) == [event for event in events if event.session in sessions]
    told = {event.name for event in events if event.session in sessions} | {""}
    assert {name.name for name in own.names} <= told, "nor are others' operations named"
    assert collected.take() == (NO_EVENTS, 0)


@pytest.mark.parametrize(
    "block",
    [
        EventBlock((), "no base64!"),
        EventBlock((), b64encode(bytes(5)).decode()),
        EventBlock((), b64encode(bytes(ROW.size)).decode()),
    ],
)
def test_what_is_no_block_is_malformed(block: EventBlock) -> None:
    with pytest.raises(MalformedMessage):
        list(unpacked(block))
