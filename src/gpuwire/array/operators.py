"""What the operators of an array do besides recording: letting the other class try, writing in
place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuwire.array.recording import binary, binary_floating, cast, check_inside, foreign
from gpuwire.array.scalar_expressions import ScalarExpression
from gpuwire.array.scalars import python_number, weak_dtype
from gpuwire.errors import ArgumentError, DTypeError, ShapeError
from gpuwire.ir.dtypes import DType, Kind, promote
from gpuwire.ir.operations import OpDef
from gpuwire.ir.tensors import broadcast_shapes

if TYPE_CHECKING:
    from gpuwire.array.array_object import Array

_PYTHON_NUMBERS = frozenset((bool, int, float, complex))
_KIND_ORDER = {kind: order for order, kind in enumerate(Kind)}


def apply(definition: OpDef, x: Array, other: Any) -> Array:
    """`x <op> other`, or NotImplemented where `other` is of a class that may know better."""
    if is_other_class(x, other):
        return NotImplemented  # type: ignore[no-any-return]
    return binary(definition, x, other)


def apply_reflected(definition: OpDef, x: Array, other: Any) -> Array:
    """`other <op> x`."""
    if is_other_class(x, other):
        return NotImplemented  # type: ignore[no-any-return]
    return binary(definition, x, other, reflected=True)


def divide(definition: OpDef, x: Array, other: Any, *, reflected: bool = False) -> Array:
    """`x / other`, or `other / x`: integers become the default float first."""
    if is_other_class(x, other):
        return NotImplemented  # type: ignore[no-any-return]
    return binary_floating(definition, x, other, reflected=reflected)


def apply_in_place(definition: OpDef, x: Array, other: Any) -> Array:
    """`x <op>= other`: `x` keeps its shape and type, and every reference to it sees the result.

    Raises `DTypeError` if the result's kind is wider than `x`'s (an integer array divided, a real
    one multiplied by a complex number), `ShapeError` if it would have another shape.
    """
    if is_other_class(x, other):
        return NotImplemented  # type: ignore[no-any-return]
    if other.__class__ is x.__class__:
        partner_dtype, partner_shape = other.dtype, other.shape
    else:
        number = python_number(other)
        if number is None:
            raise foreign(definition.name, other)
        partner_dtype, partner_shape = weak_dtype(number, x.dtype, x._device), ()
    _check_kept(definition, x, partner_dtype)
    if broadcast_shapes(x.shape, partner_shape) != x.shape:
        raise ShapeError(
            f"{definition.name} in place: shape {partner_shape} does not broadcast to {x.shape}",
            operation=definition.name,
        )
    return replace(x, binary(definition, x, other), definition.name)


def replace(x: Array, result: Array, name: str) -> Array:
    """`x` itself, now with the elements of `result` in its own type."""
    if result.shape != x.shape:
        raise ShapeError(
            f"{name} in place: the result's shape {result.shape} is not {x.shape}", operation=name
        )
    check_inside(name, x, result)
    x._tensor = cast(result, x.dtype)._tensor
    return x


def check_exponent(x: Array, exponent: Any) -> None:
    """Integers have no negative powers, as in NumPy."""
    if exponent.__class__ is ScalarExpression and exponent.kind is int and x.dtype.is_integer:
        raise exponent.program.refusal(f"{x.dtype} to the power of it, which may be negative")
    if exponent.__class__ is int and exponent < 0 and x.dtype.is_integer:
        raise ArgumentError(
            f"{x.dtype} to the power {exponent}: integers have no negative powers; "
            "convert to a floating-point type with astype() first"
        )


def is_other_class(x: Array, other: object) -> bool:
    """Whether `other` is neither an array of ours, nor a number, nor NumPy's."""
    kind = other.__class__
    return (
        kind is not x.__class__
        and kind not in _PYTHON_NUMBERS
        and not isinstance(other, np.ndarray)
        and python_number(other) is None
    )


def refuse_numpy(name: str, other: object) -> None:
    """Raises the word on NumPy arrays if `other` is one."""
    if isinstance(other, np.ndarray):
        raise foreign(name, other)


def _check_kept(definition: OpDef, x: Array, partner: DType) -> None:
    result = promote(x.dtype, partner)
    if definition.name == "divide" and not result.is_floating:
        result = x._device.default_float
    if _KIND_ORDER[result.kind] > _KIND_ORDER[x.dtype.kind]:
        raise DTypeError(
            f"{definition.name} in place would make {x.dtype} into {result}; "
            f"write x = x {_SIGNS.get(definition.name, '…')} y, or convert first",
            operation=definition.name,
        )


_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "pow": "**"}
