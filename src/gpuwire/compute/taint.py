"""Which bytes of a slice do not exist, and why.

`Marks` are ranges of a slice, each with the failure that took its bytes away. A slice whose bytes
all exist has None: the common case costs one test. Values are immutable; operations return new
ones.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from gpuwire.errors import GpuwireError, InvalidHandle


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """Why bytes do not exist. `order` counts failures of one server: the first cause has the
    lowest."""

    order: int
    error: GpuwireError


Mark = tuple[int, int, Failure]
"""First byte, one past the last, why."""

Marks = tuple[Mark, ...]
"""In ascending order, without overlaps; never empty."""

_LAST = 1 << 62

NEVER_WRITTEN = Failure(
    _LAST, InvalidHandle("the memory is read before anything was written to it")
)
CLAIMED = Failure(
    _LAST - 1,
    InvalidHandle("the work that was to write this memory was interrupted before its end"),
)


IN_COLLECTIVE = Failure(
    _LAST - 2, InvalidHandle("a collective is to write this memory: sync_collective comes first")
)

WHOLE_CLAIM: Marks = ((0, 1 << 62, CLAIMED),)
"""The marks of a slice that is claimed whole, whatever its size: one object for all."""


def first_failure(marks: Marks, start: int, end: int, *, fresh: bool = False) -> Failure | None:
    """The earliest failure among the bytes from `start` to `end`.

    `fresh`: bytes that were never written count as there, as for a buffer that a kernel fills.
    """
    first: Failure | None = None
    for mark_start, mark_end, failure in marks:
        if mark_start >= end:
            break
        if mark_end <= start or (fresh and failure is NEVER_WRITTEN):
            continue
        if first is None or failure.order < first.order:
            first = failure
    return first


def marked(marks: Marks | None, start: int, end: int, failure: Failure | None) -> Marks | None:
    """The marks after the bytes from `start` to `end` got `failure`, or exist if that is None."""
    kept: list[Mark] = []
    for mark_start, mark_end, why in marks or ():
        if mark_start < start:
            kept.append((mark_start, min(mark_end, start), why))
        if mark_end > end:
            kept.append((max(mark_start, end), mark_end, why))
    if failure is not None:
        kept.append((start, end, failure))
        kept.sort(key=_start)
    return tuple(kept) or None


def detached(error: GpuwireError) -> GpuwireError:
    """The error without its traceback, to keep or to raise: a kept traceback keeps the locals of
    its frames, and with them the handles of whoever met it first."""
    copied: GpuwireError = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def _start(mark: Mark) -> int:
    return mark[0]
