"""Products of matrices and vectors (Array API standard, "Linear algebra functions").

The result has the promoted type; numbers only. Nothing waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuwire.array import products
from gpuwire.array.array_object import Array
from gpuwire.array.axes import axes_in, axis_in
from gpuwire.array.recording import (
    binary,
    expect_arrays,
    permuted,
    reshaped,
    same_device,
    unary,
)
from gpuwire.errors import ArgumentError, ShapeError
from gpuwire.ir.attributes import ReduceAttributes
from gpuwire.ir.dtypes import Kind, promote
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import broadcast_shapes

_CONJ = OPERATIONS["conj"]
_MATMUL = OPERATIONS["matmul"]
_MULTIPLY = OPERATIONS["multiply"]
_SUM = OPERATIONS["sum"]


def matmul(x1: Array, x2: Array, /) -> Array:
    """The matrix product over the last two dimensions; those before broadcast.

    Shapes (…, n, k) and (…, k, m) give (…, n, m). A one-dimensional x1 is a row, a
    one-dimensional x2 a column, and the result lacks that dimension. `ShapeError` for a
    zero-dimensional one or where k differs.
    """
    expect_arrays("matmul", x1, x2)
    return products.matmul(x1, x2)


def matrix_transpose(x: Array, /) -> Array:
    """Each matrix of a stack transposed: the last two dimensions swapped."""
    expect_arrays("matrix_transpose", x)
    return x.mT


def outer(x1: Array, x2: Array, /) -> Array:
    """The product of every element of x1 with every one of x2: shapes (n,) and (m,) give (n, m)."""
    expect_arrays("outer", x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(f"outer wants one dimension each, not {x1.shape} and {x2.shape}")
    return binary(_MULTIPLY, reshaped(x1, (x1.size, 1)), x2)


def tensordot(
    x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Array:
    """The sum of products over pairs of dimensions: the last `axes` of x1 with the first of x2,
    or those that two sequences name. The result's dimensions are the others of x1, then of x2."""
    expect_arrays("tensordot", x1, x2)
    same_device("tensordot", (x1, x2))
    left, right = _contracted(x1, x2, axes)
    kept_left = [axis for axis in range(x1.ndim) if axis not in left]
    kept_right = [axis for axis in range(x2.ndim) if axis not in right]
    rows = tuple(x1.shape[axis] for axis in kept_left)
    columns = tuple(x2.shape[axis] for axis in kept_right)
    inner = math.prod(x1.shape[axis] for axis in left)
    matrix = reshaped(_ordered(x1, (*kept_left, *left)), (math.prod(rows), inner))
    other = reshaped(_ordered(x2, (*right, *kept_right)), (inner, math.prod(columns)))
    return reshaped(binary(_MATMUL, matrix, other), (*rows, *columns))


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The sum along `axis` of conj(x1) * x2; the other dimensions broadcast."""
    expect_arrays("vecdot", x1, x2)
    shape = broadcast_shapes(x1.shape, x2.shape)
    if axis >= 0 or not x1.ndim or not x2.ndim:
        raise ArgumentError("vecdot: axis must be negative, and both need that dimension")
    place = axis_in(axis, min(x1.ndim, x2.ndim), "vecdot") - min(x1.ndim, x2.ndim)
    if x1.shape[place] != x2.shape[place]:
        raise ShapeError(f"vecdot along axis {axis} of shapes {x1.shape} and {x2.shape}")
    left = unary(_CONJ, x1) if x1.dtype.kind is Kind.COMPLEX else x1
    product = binary(_MULTIPLY, left, x2)
    attributes = ReduceAttributes((len(shape) + place,), False, promote(x1.dtype, x2.dtype))
    return unary(_SUM, product, attributes)


def _contracted(
    x1: Array, x2: Array, axes: int | tuple[Sequence[int], Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ShapeError(f"tensordot over {axes} dimensions of {x1.shape} and {x2.shape}")
        left, right = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    else:
        left = axes_in(axes[0], x1.ndim, "tensordot")
        right = axes_in(axes[1], x2.ndim, "tensordot")
    if [x1.shape[axis] for axis in left] != [x2.shape[axis] for axis in right]:
        raise ShapeError(
            f"tensordot over dimensions {left} of {x1.shape} and {right} of {x2.shape}: "
            "their lengths differ"
        )
    return left, right


def _ordered(x: Array, axes: tuple[int, ...]) -> Array:
    return x if axes == tuple(range(x.ndim)) else permuted(x, axes)
