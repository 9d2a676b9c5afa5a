"""The matrix product over vectors as well: what `@` and `matmul` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuwire.array.recording import binary, foreign, reshaped
from gpuwire.errors import ShapeError
from gpuwire.ir.operations import OPERATIONS

if TYPE_CHECKING:
    from gpuwire.array.array_object import Array

_MATMUL = OPERATIONS["matmul"]


def matmul(x: Array, other: Any) -> Array:
    """`x @ other`. A one-dimensional left counts as a row, a right as a column; the dimension this
    adds is dropped from the result."""
    if other.__class__ is not x.__class__:
        raise foreign("matmul", other)
    left, right = x.shape, other.shape
    if len(left) > 1 and len(right) > 1:
        return binary(_MATMUL, x, other)
    if not left or not right:
        raise ShapeError(
            f"matmul of shapes {left} and {right}: a number is not a matrix; use multiply",
            operation="matmul",
        )
    if left[-1] != right[-2 if len(right) > 1 else 0]:
        raise ShapeError(
            f"matmul of shapes {left} and {right}: {left[-1]} against "
            f"{right[-2 if len(right) > 1 else 0]}",
            operation="matmul",
        )
    row = reshaped(x, (1, *left)) if len(left) == 1 else x
    column = reshaped(other, (*right, 1)) if len(right) == 1 else other
    result = binary(_MATMUL, row, column)
    batch = result.shape[:-2]
    rows = result.shape[-2:-1] if len(left) > 1 else ()
    columns = result.shape[-1:] if len(right) > 1 else ()
    return reshaped(result, (*batch, *rows, *columns))
