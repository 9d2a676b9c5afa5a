"""Frame numbers, acknowledgements, and what is kept for sending again."""

from __future__ import annotations

import pytest

from gpuwire.errors import SessionError, UnexpectedMessage
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.numbering import FrameNumbering

BODY = memoryview(bytes(10))


def numbering(frames: int = 4, size: int = 1000) -> FrameNumbering:
    return FrameNumbering(
        WireLimits(max_unacknowledged_frames=frames, max_unacknowledged_bytes=size)
    )


def test_frames_are_kept_until_they_are_acknowledged() -> None:
    counter = numbering()
    for count in (1, 2, 3):
        counter.keep(count, BODY)
    counter.take_acknowledgement(2)
    assert [(frame.sequence, frame.count) for frame in counter.kept] == [(3, 3)]
    assert counter.kept_bytes == 10
    counter.take_acknowledgement(3)
    assert counter.kept == ()
    assert counter.kept_bytes == 0


def test_what_is_kept_is_bounded_by_count() -> None:
    counter = numbering(frames=2)
    counter.keep(1, BODY)
    assert counter.has_room
    counter.keep(1, BODY)
    assert not counter.has_room
    with pytest.raises(SessionError, match="2 frames of 20 bytes"):
        counter.check_room()
    counter.take_acknowledgement(1)
    counter.check_room()


def test_what_is_kept_is_bounded_by_bytes_but_one_frame_always_goes() -> None:
    counter = numbering(size=5)
    counter.check_room()
    counter.keep(1, BODY)
    assert not counter.has_room
    counter.take_acknowledgement(1)
    assert counter.has_room


@pytest.mark.parametrize("acknowledged", [0, 3])
def test_an_acknowledgement_neither_goes_back_nor_ahead(acknowledged: int) -> None:
    counter = numbering()
    counter.keep(1, BODY)
    counter.keep(1, BODY)
    counter.take_acknowledgement(1)
    counter.take_acknowledgement(1)
    with pytest.raises(UnexpectedMessage, match=f"acknowledges frame {acknowledged}"):
        counter.take_acknowledgement(acknowledged)


def test_frames_come_without_gaps_and_count_once() -> None:
    counter = numbering()
    assert [counter.take_in(sequence, 1) for sequence in (1, 2, 1, 2, 3)] == [
        True,
        True,
        False,
        False,
        True,
    ]
    with pytest.raises(UnexpectedMessage, match="frame 5 came after frame 3"):
        counter.take_in(5, 1)
    assert counter.received == 3


def test_an_acknowledgement_is_due_before_the_peers_window_is_full() -> None:
    counter = numbering(frames=32, size=1 << 20)
    due = []
    for sequence in range(1, 33):
        counter.take_in(sequence, 10)
        due.append(counter.acknowledgement_due)
    assert due.index(True) < 16
    assert counter.tell() == 32
    assert not counter.acknowledgement_due
    assert not counter.acknowledgement_owed


def test_an_acknowledgement_is_due_by_bytes_too() -> None:
    counter = numbering(frames=1000, size=800)
    counter.take_in(1, 99)
    assert not counter.acknowledgement_due
    assert counter.acknowledgement_owed
    counter.take_in(2, 1)
    assert counter.acknowledgement_due
    counter.tell()
    counter.take_in(3, 1)
    assert not counter.acknowledgement_due
