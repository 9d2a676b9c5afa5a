"""Kernels, captured graphs, memory and time from a peer: every field checked."""

from __future__ import annotations

import pytest

from gpuwire.errors import LimitBreached, MalformedMessage
from gpuwire.wire.items import checked_reply, checked_task
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.operations import Plain

GRID: Plain = (1, 1, 1)
KERNEL: Plain = (32, 1, "k", b"fn main() {}", "main", GRID, (True,), 0)
LAUNCH: Plain = (33, 0, 1, GRID, (1,), (2,), b"", 0)
CAPTURE: Plain = (35, 1, 1, GRID, (0,), b"", 0)
END: Plain = (36, 0, 1, 1, (11, (2,)))
REPLAY: Plain = (37, 0, 1, b"\x00\x04", b"", 0)
POOL: Plain = ("small", "sliced", *range(9))
MEMORY: Plain = (80, 1, (POOL,), 1, 2, 3, 4)


def changed(item: Plain, place: int, value: object) -> Plain:
    return (*item[:place], value, *item[place + 1 :])


@pytest.mark.parametrize("item", [KERNEL, LAUNCH, (34, 1), CAPTURE, END, REPLAY, (38, 0, True)])
def test_what_the_others_are_made_of_is_right(item: Plain) -> None:
    checked_task(item, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    "item",
    [
        KERNEL[:-1],
        changed(KERNEL, 1, 0),
        changed(KERNEL, 2, b"k"),
        changed(KERNEL, 3, "fn main() {}"),
        changed(KERNEL, 3, b"\xff\xfe"),
        changed(KERNEL, 4, None),
        changed(KERNEL, 5, (1, 1)),
        changed(KERNEL, 5, (0, 1, 1)),
        changed(KERNEL, 6, (1,)),
        changed(KERNEL, 6, True),
        changed(KERNEL, 7, -1),
        changed(KERNEL, 7, 1025),
        (*LAUNCH, 0),
        (*LAUNCH, True),
        (*LAUNCH, 1 << 256),
        (*LAUNCH, 1, 1),
        changed(LAUNCH, 1, -1),
        changed(LAUNCH, 3, (1, 1, 1 << 32)),
        changed(LAUNCH, 3, 1),
        changed(LAUNCH, 4, (0,)),
        changed(LAUNCH, 5, (True,)),
        changed(LAUNCH, 6, ()),
        changed(LAUNCH, 7, -1),
        (34, 0),
        (34,),
        changed(CAPTURE, 4, (-1,)),
        changed(CAPTURE, 4, (257,)),
        CAPTURE[:-1],
        changed(END, 4, (11,)),
        changed(END, 4, (11, 2)),
        changed(END, 2, 0),
        changed(REPLAY, 3, b"\x00"),
        changed(REPLAY, 3, b"\x00\x00"),
        changed(REPLAY, 4, b"\x01\x04"),
        changed(REPLAY, 4, ()),
        (38, 0, 1),
        (39, 0),
        (39, None, 1),
        (40, 0),
        (41, 0, 0),
        (42, 0),
    ],
)
def test_a_wrong_task_is_malformed(item: Plain) -> None:
    with pytest.raises(MalformedMessage):
        checked_task(item, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    "item",
    [
        MEMORY[:-1],
        changed(MEMORY, 2, POOL),
        changed(MEMORY, 2, (POOL[:-1],)),
        changed(MEMORY, 2, (changed(POOL, 0, 1),)),
        changed(MEMORY, 2, (changed(POOL, 5, -1),)),
        changed(MEMORY, 3, -1),
        (81, 1, None),
        (82, 1, -1.0, True),
        (82, 1, float("nan"), True),
        (82, 1, 1.0, 1),
    ],
)
def test_a_wrong_reply_is_malformed(item: Plain) -> None:
    with pytest.raises(MalformedMessage):
        checked_reply(item, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("item", "what"),
    [
        (changed(KERNEL, 3, bytes(96 * 1024 + 1)), "kernel source"),
        (changed(KERNEL, 6, (True,) * 65), "kernel buffers"),
        (changed(LAUNCH, 4, (1,) * 65), "kernel arguments"),
        (changed(LAUNCH, 6, bytes(4097)), "kernel parameters"),
        (changed(END, 4, (11, (2,)) * 257), "captured arrays"),
        (changed(REPLAY, 4, b"\x00\x02" * 257), "replayed outputs"),
    ],
)
def test_limits(item: Plain, what: str) -> None:
    with pytest.raises(LimitBreached, match=what):
        checked_task(item, DEFAULT_LIMITS)
