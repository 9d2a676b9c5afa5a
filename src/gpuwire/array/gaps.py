"""What the Array API standard (2024.12) has and gpuwire does not, each with its reason.

Calling one raises `NotSupported` with the reason and the way that works today. `GAPS` is the whole
list; the optional extensions `linalg` and `fft` are absent as namespaces, as the standard allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from gpuwire.errors import NotSupported


@dataclass(frozen=True, slots=True)
class Gap:
    """A function of the standard that is missing, why, and what to do instead."""

    name: str
    reason: str
    instead: str


_SHAPE = "the shape of its result depends on values, which only the device knows"
_SORT = "there is no sorting kernel yet"

GAPS = (
    Gap("argsort", _SORT, "numpy.argsort(numpy.asarray(x))"),
    Gap("nonzero", _SHAPE, "numpy.nonzero(numpy.asarray(x)), or where() to go on without a wait"),
    Gap("sort", _SORT, "numpy.sort(numpy.asarray(x))"),
    Gap("unique_all", _SHAPE, "numpy.unique_all(numpy.asarray(x))"),
    Gap("unique_counts", _SHAPE, "numpy.unique_counts(numpy.asarray(x))"),
    Gap("unique_inverse", _SHAPE, "numpy.unique_inverse(numpy.asarray(x))"),
    Gap("unique_values", _SHAPE, "numpy.unique_values(numpy.asarray(x))"),
)

_BY_NAME = {gap.name: gap for gap in GAPS}


def argsort(
    x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> NoReturn:
    """Not there: see `GAPS`."""
    raise _missing("argsort")


def nonzero(x: Any, /) -> NoReturn:
    """Not there: see `GAPS`."""
    raise _missing("nonzero")


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> NoReturn:
    """Not there: see `GAPS`."""
    raise _missing("sort")


def unique_all(x: Any, /) -> NoReturn:
    """Not there: see `GAPS`."""
    raise _missing("unique_all")


def unique_counts(x: Any, /) -> NoReturn:
    """Not there: see `GAPS`."""
    raise _missing("unique_counts")


def unique_inverse(x: Any, /) -> NoReturn:
    """Not there: see `GAPS`."""
    raise _missing("unique_inverse")


def unique_values(x: Any, /) -> NoReturn:
    """Not there: see `GAPS`."""
    raise _missing("unique_values")


def _missing(name: str) -> NotSupported:
    gap = _BY_NAME[name]
    return NotSupported(f"gpuwire has no {name}: {gap.reason}; use {gap.instead}")
