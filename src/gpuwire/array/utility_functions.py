"""Tests over many elements, differences (Array API standard, "Utility functions").

Nothing waits.
"""

from __future__ import annotations

from gpuwire.array.array_object import Array
from gpuwire.array.axes import Axes, axis_in, reduced_axes
from gpuwire.array.manipulation_functions import concat
from gpuwire.array.recording import binary, expect_arrays, own, part, unary
from gpuwire.errors import ArgumentError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import ReduceAttributes
from gpuwire.ir.operations import OPERATIONS, OpDef

_ALL = OPERATIONS["all"]
_ANY = OPERATIONS["any"]
_NOT_EQUAL = OPERATIONS["not_equal"]
_SUBTRACT = OPERATIONS["subtract"]


def all(x: Array, /, *, axis: Axes | None = None, keepdims: bool = False) -> Array:
    """Whether all elements over `axis`, several axes, or the array (None) are true (not zero);
    booleans out; of no elements, True."""
    expect_arrays("all", x)
    return _test(_ALL, x, axis, keepdims)


def any(x: Array, /, *, axis: Axes | None = None, keepdims: bool = False) -> Array:
    """Whether any element over `axis` is true; of no elements, False; otherwise as `all`."""
    expect_arrays("any", x)
    return _test(_ANY, x, axis, keepdims)


def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """The difference of neighbours along `axis`, taken `n` times, each time one element fewer.

    `prepend` and `append` are put before and after first. Booleans give whether neighbours differ.
    """
    expect_arrays("diff", x)
    if n < 0:
        raise ArgumentError(f"diff: n must not be negative, not {n}")
    place = axis_in(axis, x.ndim, "diff")
    parts = [part for part in (prepend, x, append) if part is not None]
    result = concat(parts, axis=place) if len(parts) > 1 else x
    definition = _NOT_EQUAL if result.dtype is dt.bool_ else _SUBTRACT
    for _ in range(n):
        length = result.shape[place]
        if length == 0:
            break
        later, earlier = part(result, place, 1, length), part(result, place, 0, length - 1)
        result = binary(definition, later, earlier)
    return own(result, x)


def _test(definition: OpDef, x: Array, axis: Axes | None, keepdims: bool) -> Array:
    axes = reduced_axes(axis, x.ndim, definition.name)
    return unary(definition, x, ReduceAttributes(axes, keepdims, dt.bool_))
