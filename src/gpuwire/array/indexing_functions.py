"""Gathering elements (Array API standard, "Indexing functions").

Indices are integers, negative ones counted from the end. They lie on the device and are not
checked: one out of bounds is clamped to the last element.
"""

from __future__ import annotations

from gpuwire.array.array_object import Array
from gpuwire.array.axes import axis_in
from gpuwire.array.recording import binary, broadcasted, cast, expect_arrays, reshaped, same_device
from gpuwire.array.scalars import typed_scalar
from gpuwire.array.selection import from_start
from gpuwire.errors import DTypeError, ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import AxisAttributes, LengthAttributes
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import broadcast_shapes, row_major_strides

_ADD = OPERATIONS["add"]
_ARANGE = OPERATIONS["arange"]
_MULTIPLY = OPERATIONS["multiply"]
_TAKE = OPERATIONS["take"]


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """The elements of `x` at `indices` along `axis`, which only a one-dimensional `x` may leave
    out. The dimensions of `indices` (one, by the standard; here any number) take the place of
    `axis`."""
    expect_arrays("take", x, indices)
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(
                f"take: name an axis for an array of {x.ndim} dimensions", operation="take"
            )
        axis = 0
    place = axis_in(axis, x.ndim, "take")
    device = same_device("take", (x, indices))
    flat = reshaped(indices, (indices.size,))
    tensor = device.record(_TAKE, (x._tensor, flat._tensor), AxisAttributes(place))
    shape = (*x.shape[:place], *indices.shape, *x.shape[place + 1 :])
    return reshaped(Array(tensor, device), shape)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """For each place in `indices`, the element of `x` there with the place along `axis` replaced
    by the index. Both have as many dimensions, and all but `axis` broadcast."""
    expect_arrays("take_along_axis", x, indices)
    if not indices.dtype.is_integer:
        raise DTypeError(f"take_along_axis wants integer indices, not {indices.dtype}")
    if indices.ndim != x.ndim:
        raise ShapeError(
            f"take_along_axis: {indices.ndim} dimensions of indices for {x.ndim} of the array"
        )
    place = axis_in(axis, x.ndim, "take_along_axis")
    rest = (*x.shape[:place], 1, *x.shape[place + 1 :])
    shape = broadcast_shapes(rest, (*indices.shape[:place], 1, *indices.shape[place + 1 :]))
    x = broadcasted(x, (*shape[:place], x.shape[place], *shape[place + 1 :]))
    flat = _flat_places(x, indices, place)
    wanted = (*shape[:place], indices.shape[place], *shape[place + 1 :])
    return reshaped(take(reshaped(x, (x.size,)), broadcasted(flat, wanted)), wanted)


def _flat_places(x: Array, indices: Array, axis: int) -> Array:
    """`indices` along `axis`, as places in `x` laid out in one dimension."""
    width = dt.int32 if x.size < 2**31 else dt.int64
    index = from_start(cast(indices, width), x.shape[axis])
    strides = row_major_strides(x.shape)
    place = binary(_MULTIPLY, index, strides[axis])
    for other, length in enumerate(x.shape):
        if other != axis and length > 1:
            bounds = (typed_scalar(0, width), typed_scalar(strides[other], width))
            steps = Array(x.device.record(_ARANGE, bounds, LengthAttributes(length)), x.device)
            along = tuple(length if i == other else 1 for i in range(x.ndim))
            place = binary(_ADD, place, reshaped(steps, along))
    return place
