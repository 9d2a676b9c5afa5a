"""Axis arguments: negative ones count from the end, and each names a dimension once."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

from gpuwire.errors import ArgumentError, AxisError, DTypeError
from gpuwire.ir.tensors import Shape

Axes = SupportsIndex | Sequence[SupportsIndex]
Lengths = SupportsIndex | Sequence[SupportsIndex]


def axis_in(axis: SupportsIndex, rank: int, name: str) -> int:
    """`axis` counted from the start; `AxisError` if there is no such dimension."""
    try:
        number = operator.index(axis)
    except TypeError:
        raise DTypeError(f"{name}: an axis is an integer, not {axis!r}", operation=name) from None
    if not -rank <= number < rank:
        raise AxisError(f"{name}: axis {number} of an array of {rank} dimensions", operation=name)
    return number + rank if number < 0 else number


def axes_in(axes: Axes, rank: int, name: str) -> tuple[int, ...]:
    """`axes` counted from the start, in the order given; `AxisError` if one comes twice."""
    if not isinstance(axes, Sequence):
        return (axis_in(axes, rank, name),)
    found = tuple(axis_in(axis, rank, name) for axis in axes)
    if len(set(found)) != len(found):
        raise AxisError(f"{name}: an axis comes twice in {tuple(axes)}", operation=name)
    return found


def reduced_axes(axes: Axes | None, rank: int, name: str) -> tuple[int, ...]:
    """The sorted axes that a reduction runs over; None is all."""
    return tuple(range(rank)) if axes is None else tuple(sorted(axes_in(axes, rank, name)))


def shape_of(lengths: Lengths, name: str) -> Shape:
    """A shape from one length or several; `ArgumentError` for a negative one."""
    try:
        several = lengths if isinstance(lengths, Sequence) else (lengths,)
        shape = tuple(operator.index(length) for length in several)
    except TypeError:
        raise DTypeError(f"{name}: a shape is integers, not {lengths!r}", operation=name) from None
    if any(length < 0 for length in shape):
        raise ArgumentError(f"{name}: negative lengths are not allowed: {shape}")
    return shape
