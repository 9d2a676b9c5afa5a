"""Sums, means and extremes (Array API standard, "Statistical functions").

`axis` is one dimension, several, or all (None); with `keepdims` they stay with length 1. Integers
and booleans narrower than the default integer are summed and multiplied in it, unsigned ones in
the unsigned type of its size; floats keep their type, float16 too. Means of integers are in the
default float. Nothing waits.
"""

from __future__ import annotations

import math

from gpuwire.array.array_object import Array
from gpuwire.array.axes import Axes, axis_in, reduced_axes
from gpuwire.array.data_types import DTypeLike, resolve
from gpuwire.array.devices import ArrayDevice
from gpuwire.array.manipulation_functions import concat
from gpuwire.array.recording import binary, cast, expect_arrays, own, part, unary
from gpuwire.array.scalars import typed_scalar
from gpuwire.errors import DTypeError, ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import ReduceAttributes, ShapeAttributes
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.ir.operations import OPERATIONS, OpDef

_ABS = OPERATIONS["abs"]
_ADD = OPERATIONS["add"]
_DIVIDE = OPERATIONS["divide"]
_FULL = OPERATIONS["full"]
_MAX = OPERATIONS["max"]
_MEAN = OPERATIONS["mean"]
_MIN = OPERATIONS["min"]
_MULTIPLY = OPERATIONS["multiply"]
_PROD = OPERATIONS["prod"]
_SQRT = OPERATIONS["sqrt"]
_SQUARE = OPERATIONS["square"]
_SUBTRACT = OPERATIONS["subtract"]
_SUM = OPERATIONS["sum"]


def cumulative_prod(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """The product of each element and all before it along `axis`, which only a one-dimensional
    array may leave out; `include_initial` puts a 1 in front. As many steps as log2 of the length.
    """
    expect_arrays("cumulative_prod", x)
    return _scan(_MULTIPLY, x, axis, dtype, include_initial, 1)


def cumulative_sum(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Array:
    """The sum of each element and all before it; otherwise as `cumulative_prod`, with a 0."""
    expect_arrays("cumulative_sum", x)
    return _scan(_ADD, x, axis, dtype, include_initial, 0)


def max(x: Array, /, *, axis: Axes | None = None, keepdims: bool = False) -> Array:
    """The largest of the real numbers, NaN if one is among them; `ShapeError` over no elements."""
    expect_arrays("max", x)
    return _reduce(_MAX, x, axis, keepdims, x.dtype)


def mean(x: Array, /, *, axis: Axes | None = None, keepdims: bool = False) -> Array:
    """The arithmetic mean; of no elements, NaN."""
    expect_arrays("mean", x)
    x = _floating(x)
    return _reduce(_MEAN, x, axis, keepdims, x.dtype)


def min(x: Array, /, *, axis: Axes | None = None, keepdims: bool = False) -> Array:
    """The smallest of the real numbers; otherwise as `max`."""
    expect_arrays("min", x)
    return _reduce(_MIN, x, axis, keepdims, x.dtype)


def prod(
    x: Array,
    /,
    *,
    axis: Axes | None = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
) -> Array:
    """The product, computed in `dtype`; of no elements, 1."""
    expect_arrays("prod", x)
    return _accumulate(_PROD, x, axis, dtype, keepdims)


def std(
    x: Array,
    /,
    *,
    axis: Axes | None = None,
    correction: float = 0.0,
    keepdims: bool = False,
) -> Array:
    """The standard deviation: the square root of `var`."""
    return unary(_SQRT, var(x, axis=axis, correction=correction, keepdims=keepdims))


def sum(
    x: Array,
    /,
    *,
    axis: Axes | None = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
) -> Array:
    """The sum, computed in `dtype`; of no elements, 0."""
    expect_arrays("sum", x)
    return _accumulate(_SUM, x, axis, dtype, keepdims)


def var(
    x: Array,
    /,
    *,
    axis: Axes | None = None,
    correction: float = 0.0,
    keepdims: bool = False,
) -> Array:
    """The mean squared distance from the mean, over n - `correction` in place of n elements.

    Two passes, so that a large mean costs no precision. Complex numbers give a real variance. NaN
    or infinite where n - `correction` is not positive, as in NumPy.
    """
    expect_arrays("var", x)
    x = _floating(x)
    axes = reduced_axes(axis, x.ndim, "var")
    count = math.prod(x.shape[i] for i in axes)
    distance = binary(_SUBTRACT, x, _reduce(_MEAN, x, axes, True, x.dtype))
    if x.dtype.kind is Kind.COMPLEX:
        distance = unary(_ABS, distance)
    squares = unary(_SQUARE, distance)
    total = _reduce(_SUM, squares, axes, keepdims, squares.dtype)
    weight = count - correction
    return binary(_DIVIDE, total, float(weight if weight > 0 else 0))


def _reduce(definition: OpDef, x: Array, axis: Axes | None, keepdims: bool, dtype: DType) -> Array:
    axes = reduced_axes(axis, x.ndim, definition.name)
    return unary(definition, x, ReduceAttributes(axes, keepdims, dtype))


def _accumulate(
    definition: OpDef, x: Array, axis: Axes | None, dtype: DTypeLike | None, keepdims: bool
) -> Array:
    wanted = resolve(dtype, x.device) if dtype is not None else sum_dtype(x.dtype, x.device)
    return _reduce(definition, x, axis, keepdims, wanted)


def sum_dtype(dtype: DType, device: ArrayDevice) -> DType:
    """The type in which elements of `dtype` are summed where none is asked for."""
    if dtype.is_floating or dtype.itemsize >= device.default_int.itemsize:
        return dtype
    if dtype.kind is Kind.UNSIGNED:
        return dt.uint64 if device.default_int is dt.int64 else dt.uint32
    return device.default_int


def _floating(x: Array) -> Array:
    return x if x.dtype.is_floating else cast(x, x.device.default_float)


def _scan(
    definition: OpDef,
    x: Array,
    axis: int | None,
    dtype: DTypeLike | None,
    include_initial: bool,
    initial: int,
) -> Array:
    """Each step combines every element with the one 2ⁱ places before (Hillis and Steele, 1986)."""
    if x.dtype is dt.bool_ and dtype is None:
        raise DTypeError(f"a cumulative {definition.name} takes numbers, not bool")
    if axis is None and x.ndim != 1:
        raise ShapeError(f"name an axis for an array of {x.ndim} dimensions")
    place = axis_in(0 if axis is None else axis, x.ndim, definition.name)
    wanted = resolve(dtype, x.device) if dtype is not None else sum_dtype(x.dtype, x.device)
    result = cast(x, wanted)
    if include_initial:
        first = (*x.shape[:place], 1, *x.shape[place + 1 :])
        inputs = (typed_scalar(initial, wanted),)
        front = Array(x.device.record(_FULL, inputs, ShapeAttributes(first)), x.device)
        result = concat([front, result], axis=place)
    length, step = result.shape[place], 1
    while step < length:
        done = part(result, place, 0, step)
        later, earlier = part(result, place, step, length), part(result, place, 0, length - step)
        result = concat([done, binary(definition, later, earlier)], axis=place)
        step *= 2
    return own(result, x)
