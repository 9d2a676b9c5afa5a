"""Where operands lie while a plan is made: strided views over numbered slots, and index arithmetic
on them. A slot becomes a handle when the plan runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpuwire.ir.dtypes import DType
from gpuwire.ir.tensors import Shape, TensorType, row_major_strides
from gpuwire.lowering.values import is_row_major

Strides = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor of a plan: a strided view over a slot's memory. Strides and offset in elements."""

    slot: int
    type: TensorType
    strides: Strides
    offset: int

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def is_contiguous(self) -> bool:
        """Row-major without gaps, whatever the offset."""
        return is_row_major(self.type.shape, self.strides)

    def viewed(self, shape: Shape, strides: Strides, offset: int) -> Placed:
        """Another view over the same memory."""
        return Placed(self.slot, TensorType(self.type.dtype, shape), strides, offset)


def placed_contiguously(slot: int, type_: TensorType) -> Placed:
    """The tensor that fills a slot."""
    return Placed(slot, type_, row_major_strides(type_.shape), 0)


def broadcast_strides(placed: Placed, shape: Shape) -> Strides:
    """The strides of `placed` seen as having `shape`, which it broadcasts to."""
    missing = len(shape) - len(placed.shape)
    return (0,) * missing + tuple(
        0 if own == 1 else stride for own, stride in zip(placed.shape, placed.strides, strict=True)
    )


def collapsed(shape: Shape, strides: Sequence[Strides]) -> tuple[Shape, list[Strides]]:
    """The fewest dimensions that walk all operands in the same order.

    Dimensions of length 1 go; neighbours merge where every operand steps through both as through
    one. No dimension may be empty.
    """
    lengths: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        merges = bool(lengths) and all(
            own[-1] == of_operand[axis] * length
            for own, of_operand in zip(steps, strides, strict=True)
        )
        if merges:
            lengths[-1] *= length
        else:
            lengths.append(length)
        for own, of_operand in zip(steps, strides, strict=True):
            if merges:
                own[-1] = of_operand[axis]
            else:
                own.append(of_operand[axis])
    return tuple(lengths), [tuple(own) for own in steps]


def reshaped_strides(shape: Shape, strides: Strides, new_shape: Shape) -> Strides | None:
    """Strides that walk the same elements in the same order as another shape; None if there are
    none. Runs of dimensions of equal size on both sides are matched, and the old ones of a run must
    be steps of one walk."""
    if 0 in new_shape:
        return row_major_strides(new_shape)
    old = [pair for pair in zip(shape, strides, strict=True) if pair[0] != 1]
    result = [0] * len(new_shape)
    old_from = new_from = 0
    while old_from < len(old):
        old_to, new_to = old_from + 1, new_from + 1
        old_size, new_size = old[old_from][0], new_shape[new_from]
        while old_size != new_size:
            if old_size < new_size:
                old_size *= old[old_to][0]
                old_to += 1
            else:
                new_size *= new_shape[new_to]
                new_to += 1
        for (_, outer), (length, inner) in pairwise(old[old_from:old_to]):
            if outer != length * inner:
                return None
        step = old[old_to - 1][1]
        for axis in reversed(range(new_from, new_to)):
            result[axis] = step
            step *= new_shape[axis]
        old_from, new_from = old_to, new_to
    return tuple(result)


def extent(shape: Shape, strides: Strides, offset: int) -> tuple[int, int]:
    """The first element that a non-empty view touches, and one past the last."""
    low = high = offset
    for length, stride in zip(shape, strides, strict=True):
        reach = (length - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    return low, high + 1
