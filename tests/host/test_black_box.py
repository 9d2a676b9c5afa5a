"""What a device host leaves behind, read through another mapping of the same memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gpuwire.errors import WatchdogExpired
from gpuwire.host.black_box import BlackBox, LastWords, kernel_note
from gpuwire.host.slots import SlotMemory, anonymous_file


@pytest.fixture
def boxes() -> Iterator[tuple[BlackBox, BlackBox]]:
    """The host's and the front's."""
    descriptor = anonymous_file(SlotMemory.size)
    memories = SlotMemory(descriptor), SlotMemory(descriptor)
    os.close(descriptor)
    with memories[0].black_box as ours, memories[1].black_box as theirs:
        yield BlackBox(ours), BlackBox(theirs)
    for memory in memories:
        memory.close()


def test_a_host_that_did_nothing_says_nothing(boxes) -> None:
    assert boxes[1].last_words() == LastWords(None, "", (), None)


def test_notes_replace_each_other_and_are_cleared(boxes) -> None:
    host, front = boxes
    host.note(7, kernel_note("säxpy" * 100))
    found = front.last_words()
    assert found.session == 7
    assert found.kernel.startswith("säxpysäxpy")
    host.note(8)
    assert front.last_words() == LastWords(8, "", (), None)
    host.clear()
    assert front.last_words() == LastWords(None, "", (), None)


def test_a_verdict_is_read_with_its_fields(boxes) -> None:
    host, front = boxes
    host.condemn((3, 1 << 40), WatchdogExpired("too long", kernel="spin", seconds=1.5))
    found = front.last_words()
    assert found.condemned == (3, 1 << 40)
    assert isinstance(found.verdict, WatchdogExpired)
    assert found.verdict.fields == {"kernel": "spin", "seconds": 1.5}
    assert str(found.verdict) == "too long"


def test_a_verdict_that_has_no_room_is_left_out(boxes) -> None:
    host, front = boxes
    host.condemn(range(1, 100_000), WatchdogExpired("too long"))
    assert front.last_words().verdict is None
