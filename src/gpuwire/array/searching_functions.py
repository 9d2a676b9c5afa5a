"""Finding elements (Array API standard, "Searching functions"). Nothing waits.

`nonzero` is among the gaps: the shape of its result depends on values.
"""

from __future__ import annotations

from gpuwire.array.array_object import Array
from gpuwire.array.axes import Axes, axis_in, reduced_axes
from gpuwire.array.indexing_functions import take
from gpuwire.array.recording import (
    binary,
    cast,
    expect_arrays,
    foreign,
    partner,
    reshaped,
    same_device,
    unary,
)
from gpuwire.array.scalars import default_dtype, python_number, typed_scalar
from gpuwire.errors import ArgumentError, ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    NO_ATTRIBUTES,
    ArgReduceAttributes,
    ReduceAttributes,
    ShapeAttributes,
)
from gpuwire.ir.dtypes import promote
from gpuwire.ir.operations import OPERATIONS, OpDef

_ADD = OPERATIONS["add"]
_ARGMAX = OPERATIONS["argmax"]
_ARGMIN = OPERATIONS["argmin"]
_FULL = OPERATIONS["full"]
_LESS = OPERATIONS["less"]
_LESS_EQUAL = OPERATIONS["less_equal"]
_LOGICAL_AND = OPERATIONS["logical_and"]
_NOT_EQUAL = OPERATIONS["not_equal"]
_RIGHT_SHIFT = OPERATIONS["bitwise_right_shift"]
_SUM = OPERATIONS["sum"]
_WHERE = OPERATIONS["where"]

Number = bool | int | float | complex


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the first largest real number along `axis`, or of all elements in order (None).

    The default integer type. NaN counts as the largest. `ShapeError` over no elements.
    """
    expect_arrays("argmax", x)
    return _arg_reduce(_ARGMAX, x, axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """The index of the first smallest real number; otherwise as `argmax`."""
    expect_arrays("argmin", x)
    return _arg_reduce(_ARGMIN, x, axis, keepdims)


def count_nonzero(x: Array, /, *, axis: Axes | None = None, keepdims: bool = False) -> Array:
    """How many elements are not zero or False, over `axis`, several axes, or all (None)."""
    expect_arrays("count_nonzero", x)
    axes = reduced_axes(axis, x.ndim, "count_nonzero")
    flags = x if x.dtype is dt.bool_ else binary(_NOT_EQUAL, x, 0)
    return unary(_SUM, flags, ReduceAttributes(axes, keepdims, x.device.default_int))


def searchsorted(
    x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None
) -> Array:
    """Where each element of x2 would have to be put into the sorted, one-dimensional x1 to keep it
    sorted: before its equals ("left") or after ("right").

    `sorter` are indices that sort an unsorted x1. The default integer type, the shape of x2. A
    binary search: about log2(length of x1) steps of a few operations each.
    """
    expect_arrays("searchsorted", x1, x2)
    if side not in ("left", "right"):
        raise ArgumentError(f'searchsorted: side is "left" or "right", not {side!r}')
    if x1.ndim != 1:
        raise ShapeError(f"searchsorted in one dimension, not in shape {x1.shape}")
    device = same_device("searchsorted", (x1, x2) if sorter is None else (x1, x2, sorter))
    ordered = x1 if sorter is None else take(x1, sorter)
    bounds = ShapeAttributes(x2.shape)
    low = Array(device.record(_FULL, (typed_scalar(0, dt.int32),), bounds), device)
    high = Array(device.record(_FULL, (typed_scalar(x1.size, dt.int32),), bounds), device)
    beyond = _LESS if side == "left" else _LESS_EQUAL
    for _ in range(x1.size.bit_length()):
        middle = binary(_RIGHT_SHIFT, binary(_ADD, low, high), 1)
        right = binary(beyond, take(ordered, middle), x2)
        # Where low has met high, middle is both; only low could still move.
        right = binary(_LOGICAL_AND, right, binary(_LESS, low, high))
        low = where(right, binary(_ADD, middle, 1), low)
        high = where(right, high, middle)
    return cast(low, device.default_int)


def where(condition: Array, x1: Array | Number, x2: Array | Number, /) -> Array:
    """Elements of x1 where the booleans of `condition` are true, of x2 elsewhere; all broadcast,
    x1 and x2 promote."""
    expect_arrays("where", condition)
    arrays = tuple([x for x in (condition, x1, x2) if isinstance(x, Array)])
    device = same_device("where", arrays)
    if isinstance(x1, Array):
        first, second = x1._tensor, partner(x1, x2, "where")
    elif isinstance(x2, Array):
        first, second = partner(x2, x1, "where"), x2._tensor
    else:
        one, other = python_number(x1), python_number(x2)
        if one is None or other is None:
            raise foreign("where", x1 if one is None else x2)
        dtype = promote(default_dtype(one, device), default_dtype(other, device))
        first, second = typed_scalar(one, dtype), typed_scalar(other, dtype)
    tensor = device.record(_WHERE, (condition._tensor, first, second), NO_ATTRIBUTES)
    return Array(tensor, device)


def _arg_reduce(definition: OpDef, x: Array, axis: int | None, keepdims: bool) -> Array:
    dtype = x.device.default_int
    if axis is not None:
        place = axis_in(axis, x.ndim, definition.name)
        return unary(definition, x, ArgReduceAttributes(place, keepdims, dtype))
    flat = reshaped(x, (x.size,))
    result = unary(definition, flat, ArgReduceAttributes(0, False, dtype))
    return reshaped(result, (1,) * x.ndim) if keepdims else result
