"""What an operation is told besides its tensors.

One frozen record for each form; two ops with equal attributes, types and layouts share a kernel.
A value that may change between two runs of the same code (a learning rate) is not an attribute
but a `Scalar` input.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir.dtypes import DType
from gpuwire.ir.tensors import Shape


@dataclass(frozen=True, slots=True)
class NoAttributes:
    """Nothing to say."""


@dataclass(frozen=True, slots=True)
class CastAttributes:
    """cast: the target type. Float to integer truncates toward zero, as C does."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class ReduceAttributes:
    """sum, prod, mean, min, max, any, all: sorted non-negative axes; the result's type, in which
    sums and products are also computed."""

    axes: tuple[int, ...]
    keepdims: bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class ArgReduceAttributes:
    """argmin, argmax: one axis; the index type."""

    axis: int
    keepdims: bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class ShapeAttributes:
    """reshape, broadcast_to, full: the result's shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class PermuteAttributes:
    """permute_dims: result axis i is input axis axes[i]."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceAttributes:
    """slice, slice_assign: for each dimension the first index, the step (≠ 0, may be negative) and
    the number of elements; every index they reach is inside the dimension."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AxisAttributes:
    """concat, take: the axis, non-negative."""

    axis: int


@dataclass(frozen=True, slots=True)
class LengthAttributes:
    """arange: the number of elements."""

    length: int


Attributes = (
    NoAttributes
    | CastAttributes
    | ReduceAttributes
    | ArgReduceAttributes
    | ShapeAttributes
    | PermuteAttributes
    | SliceAttributes
    | AxisAttributes
    | LengthAttributes
)

NO_ATTRIBUTES = NoAttributes()
