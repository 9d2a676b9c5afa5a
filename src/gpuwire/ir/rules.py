"""The rules that type operations: from the types of the inputs and the attributes to the type of
the result, or to the error that says why there is none.

A rule trusts nothing: the server applies the same ones to what a client sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from gpuwire.errors import DTypeError, ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    ArgReduceAttributes,
    Attributes,
    AxisAttributes,
    CastAttributes,
    LengthAttributes,
    PermuteAttributes,
    ReduceAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.ir.tensors import Shape, TensorType, broadcast_shapes

if TYPE_CHECKING:
    from gpuwire.ir.operations import OpDef

Types = tuple[TensorType, ...]
Rule = Callable[["OpDef", Types, Attributes], TensorType]
A = TypeVar("A", bound=Attributes)


def _wanted(definition: OpDef, inputs: Types, wanted: str) -> DTypeError:
    found = ", ".join(str(type_.dtype) for type_ in inputs)
    return DTypeError(f"{definition.name} takes {wanted}, not {found}", operation=definition.name)


def _shape(definition: OpDef, inputs: Types) -> Shape:
    if len(inputs) == 1:
        return inputs[0].shape
    try:
        return broadcast_shapes(*(type_.shape for type_ in inputs))
    except ShapeError as error:
        raise ShapeError(f"{definition.name}: {error}", operation=definition.name) from None


def _promoted(definition: OpDef, inputs: Types) -> DType:
    if len(inputs) == 1:
        return inputs[0].dtype
    try:
        return dt.promote_all(tuple(type_.dtype for type_ in inputs))
    except DTypeError as error:
        raise DTypeError(f"{definition.name}: {error}", operation=definition.name) from None


def _lengths(definition: OpDef, attributes: Attributes) -> Shape:
    """The shape an operation is told to make."""
    shape = _as(ShapeAttributes, attributes).shape
    if any(length < 0 for length in shape):
        raise ShapeError(
            f"{definition.name}: negative lengths in shape {shape}", operation=definition.name
        )
    return shape


def _elementwise(
    kinds: tuple[Kind, ...], wanted: str, result: Callable[[DType], DType] = lambda dtype: dtype
) -> Rule:
    """Inputs promote to one type of one of `kinds`; the result's type follows from it."""

    def rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
        dtype = _promoted(definition, inputs)
        if dtype.kind not in kinds:
            raise _wanted(definition, inputs, wanted)
        return TensorType(result(dtype), _shape(definition, inputs))

    return rule


_ALL = tuple(Kind)
_NUMERIC = (Kind.UNSIGNED, Kind.SIGNED, Kind.FLOAT, Kind.COMPLEX)
_REAL = (Kind.UNSIGNED, Kind.SIGNED, Kind.FLOAT)
_FLOATING = (Kind.FLOAT, Kind.COMPLEX)
_INTEGER_OR_BOOL = (Kind.BOOL, Kind.UNSIGNED, Kind.SIGNED)
_INTEGER = (Kind.UNSIGNED, Kind.SIGNED)


def _to_bool(dtype: DType) -> DType:
    return dt.bool_


_any_type = _elementwise(_ALL, "any type")
numeric_rule = _elementwise(_NUMERIC, "numbers")
numeric_to_real_rule = _elementwise(_NUMERIC, "numbers", dt.real_of)
real_rule = _elementwise(_REAL, "real numbers")
floating_rule = _elementwise(_FLOATING, "floating-point numbers")
real_floating_rule = _elementwise((Kind.FLOAT,), "real floating-point numbers")
sign_bit_rule = _elementwise((Kind.FLOAT,), "real floating-point numbers", _to_bool)
complex_part_rule = _elementwise((Kind.COMPLEX,), "complex numbers", dt.real_of)
bits_rule = _elementwise(_INTEGER_OR_BOOL, "integers or booleans")
shift_rule = _elementwise(_INTEGER, "integers")
logical_rule = _elementwise(_ALL, "any type", _to_bool)
equality_rule = _elementwise(_ALL, "any type", _to_bool)
order_rule = _elementwise((Kind.BOOL, *_REAL), "real numbers", _to_bool)
extremum_rule = _elementwise((Kind.BOOL, *_REAL), "real numbers")
test_rule = _elementwise(_NUMERIC, "numbers", _to_bool)


def where_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    if inputs[0].dtype is not dt.bool_:
        raise DTypeError(
            f"where takes a boolean condition, not {inputs[0].dtype}", operation="where"
        )
    return TensorType(_promoted(definition, inputs[1:]), _shape(definition, inputs))


def _as(kind: type[A], attributes: Attributes) -> A:
    assert isinstance(attributes, kind)
    return attributes


def cast_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    dtype = _as(CastAttributes, attributes).dtype
    if inputs[0].dtype.kind is Kind.COMPLEX and dtype.kind is not Kind.COMPLEX:
        raise DTypeError(
            f"cast from {inputs[0].dtype} to {dtype} would drop the imaginary part; "
            "use real(x) or imag(x)",
            operation="cast",
        )
    return TensorType(dtype, inputs[0].shape)


def _reduced_shape(definition: OpDef, shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    if any(not 0 <= axis < len(shape) for axis in axes) or list(axes) != sorted(set(axes)):
        raise ShapeError(
            f"{definition.name} over axes {axes} of an array of {len(shape)} dimensions",
            operation=definition.name,
        )
    if keepdims:
        return tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    return tuple(length for axis, length in enumerate(shape) if axis not in axes)


def _reduction(
    kinds: tuple[Kind, ...],
    wanted: str,
    *,
    empty: bool,
    result: Callable[[DType, DType], bool],
) -> Rule:
    """A reduction over inputs of `kinds`; `empty` says whether it has a value over no elements,
    `result(input, result)` whether it can give that type."""

    def rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
        reduce = _as(ReduceAttributes, attributes)
        (type_,) = inputs
        if type_.dtype.kind not in kinds:
            raise _wanted(definition, inputs, wanted)
        shape = _reduced_shape(definition, type_.shape, reduce.axes, reduce.keepdims)
        _refuse_empty(definition, type_.shape, reduce.axes, allowed=empty)
        if not result(type_.dtype, reduce.dtype):
            raise DTypeError(
                f"{definition.name} of {type_.dtype} cannot give {reduce.dtype}",
                operation=definition.name,
            )
        return TensorType(reduce.dtype, shape)

    return rule


def _is_same(dtype: DType, result: DType) -> bool:
    return result is dtype


def _is_truth(dtype: DType, result: DType) -> bool:
    return result is dt.bool_


def _is_accumulator(dtype: DType, result: DType) -> bool:
    """Elements are converted to the result's type before they are summed or multiplied."""
    return result.is_numeric and (dtype.kind is not Kind.COMPLEX or result.kind is Kind.COMPLEX)


def _refuse_empty(definition: OpDef, shape: Shape, axes: tuple[int, ...], *, allowed: bool) -> None:
    if not allowed and any(shape[axis] == 0 for axis in axes):
        raise ShapeError(
            f"{definition.name} of no elements has no value: shape {shape}, axes {axes}",
            operation=definition.name,
        )


sum_or_product_rule = _reduction(_ALL, "any type", empty=True, result=_is_accumulator)
average_rule = _reduction(_FLOATING, "floating-point numbers", empty=True, result=_is_same)
extreme_rule = _reduction((Kind.BOOL, *_REAL), "real numbers", empty=False, result=_is_same)
truth_rule = _reduction(_ALL, "any type", empty=True, result=_is_truth)


def arg_reduction_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    reduce = _as(ArgReduceAttributes, attributes)
    (type_,) = inputs
    if type_.dtype.kind not in (Kind.BOOL, *_REAL):
        raise _wanted(definition, inputs, "real numbers")
    if not reduce.dtype.is_integer:
        raise DTypeError(
            f"{definition.name} gives integers, not {reduce.dtype}", operation=definition.name
        )
    shape = _reduced_shape(definition, type_.shape, (reduce.axis,), reduce.keepdims)
    _refuse_empty(definition, type_.shape, (reduce.axis,), allowed=False)
    return TensorType(reduce.dtype, shape)


def matmul_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    left, right = inputs
    dtype = _promoted(definition, inputs)
    if dtype.kind is Kind.BOOL:
        raise _wanted(definition, inputs, "numbers")
    if len(left.shape) < 2 or len(right.shape) < 2 or left.shape[-1] != right.shape[-2]:
        raise ShapeError(
            f"matmul of shapes {left.shape} and {right.shape}: the last axis of the left and the "
            "second last of the right must have the same length",
            operation="matmul",
        )
    try:
        batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ShapeError as error:
        raise ShapeError(f"matmul: batch {error}", operation="matmul") from None
    return TensorType(dtype, (*batch, left.shape[-2], right.shape[-1]))


def reshape_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    result = TensorType(inputs[0].dtype, _lengths(definition, attributes))
    if result.size != inputs[0].size:
        raise ShapeError(
            f"reshape of shape {inputs[0].shape} ({inputs[0].size} elements) to {result.shape} "
            f"({result.size})",
            operation="reshape",
        )
    return result


def broadcast_to_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    shape = _lengths(definition, attributes)
    if _shape(definition, (inputs[0], TensorType(dt.bool_, shape))) != shape:
        raise ShapeError(
            f"broadcast_to: shape {inputs[0].shape} does not broadcast to {shape}",
            operation="broadcast_to",
        )
    return TensorType(inputs[0].dtype, shape)


def permute_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    axes = _as(PermuteAttributes, attributes).axes
    shape = inputs[0].shape
    if sorted(axes) != list(range(len(shape))):
        raise ShapeError(
            f"permute_dims: axes {axes} do not name each of {len(shape)} dimensions once",
            operation="permute_dims",
        )
    return TensorType(inputs[0].dtype, tuple(shape[axis] for axis in axes))


def _check_slice(definition: OpDef, shape: Shape, slices: SliceAttributes) -> None:
    parts = (slices.starts, slices.steps, slices.lengths)
    fits = all(len(part) == len(shape) for part in parts) and all(
        count == 0
        or (
            count > 0
            and step != 0
            and 0 <= start < length
            and 0 <= start + (count - 1) * step < length
        )
        for length, start, step, count in zip(shape, *parts, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"{definition.name}: {slices} reaches outside shape {shape}", operation=definition.name
        )


def slice_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    slices = _as(SliceAttributes, attributes)
    _check_slice(definition, inputs[0].shape, slices)
    return TensorType(inputs[0].dtype, slices.lengths)


def slice_assign_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    """Inputs: the old array, the value. The result is the old one with the slice replaced; the
    value broadcasts to the slice and is converted to the old array's type."""
    old, value = inputs
    slices = _as(SliceAttributes, attributes)
    _check_slice(definition, old.shape, slices)
    if value.dtype.kind is Kind.COMPLEX and old.dtype.kind is not Kind.COMPLEX:
        raise DTypeError(
            f"setting {value.dtype} in an array of {old.dtype} would drop the imaginary part; "
            "use real(value)",
            operation=definition.name,
        )
    target = TensorType(old.dtype, slices.lengths)
    if _shape(definition, (target, value)) != target.shape:
        raise ShapeError(
            f"a value of shape {value.shape} does not broadcast to the slice's {target.shape}",
            operation=definition.name,
        )
    return old


def concat_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    axis = _as(AxisAttributes, attributes).axis
    shape = inputs[0].shape
    for type_ in inputs:
        fits = len(type_.shape) == len(shape) > axis >= 0 and all(
            length == type_.shape[i] for i, length in enumerate(shape) if i != axis
        )
        if not fits:
            raise ShapeError(
                f"concat along axis {axis}: shapes {shape} and {type_.shape} differ elsewhere",
                operation="concat",
            )
    total = sum(type_.shape[axis] for type_ in inputs)
    return TensorType(_promoted(definition, inputs), (*shape[:axis], total, *shape[axis + 1 :]))


def take_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    """Inputs: the array, one-dimensional integer indices; out of range, they count from the end
    when negative and are clamped otherwise."""
    type_, indices = inputs
    axis = _as(AxisAttributes, attributes).axis
    if not indices.dtype.is_integer:
        raise DTypeError(f"take wants integer indices, not {indices.dtype}", operation="take")
    if len(indices.shape) != 1 or not 0 <= axis < len(type_.shape):
        raise ShapeError(
            f"take along axis {axis} of shape {type_.shape} with indices of shape {indices.shape}",
            operation="take",
        )
    if type_.shape[axis] == 0 and indices.size:
        raise ShapeError("take from an axis of length 0", operation="take")
    shape = (*type_.shape[:axis], indices.shape[0], *type_.shape[axis + 1 :])
    return TensorType(type_.dtype, shape)


def full_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    """Input: the value, zero-dimensional."""
    if inputs[0].shape != ():
        raise ShapeError(f"full takes one value, not shape {inputs[0].shape}", operation="full")
    return TensorType(inputs[0].dtype, _lengths(definition, attributes))


def arange_rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    """Inputs: start and step, zero-dimensional, of the result's type: start + i * step."""
    start, step = inputs
    if start.shape != () or step.shape != () or start.dtype.kind not in _REAL:
        raise _wanted(definition, inputs, "two real numbers")
    if start.dtype is not step.dtype:
        raise _wanted(definition, inputs, "start and step of one type")
    length = _as(LengthAttributes, attributes).length
    if length < 0:
        raise ShapeError(f"arange: a negative length, {length}", operation="arange")
    return TensorType(start.dtype, (length,))
