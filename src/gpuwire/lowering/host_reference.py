"""Every operation of the table in NumPy: what runs on the host where the device lacks an operation,
and what tests hold the kernels against.

Results are NumPy's own, but for what NumPy leaves undefined or refuses, which is as the kernels
define it: floats to integers stay at the nearest end of the range and NaN becomes 0; negative
integer powers are the truncated quotient; a shift by the type's width or more leaves nothing but
the sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    ArgReduceAttributes,
    Attributes,
    AxisAttributes,
    PermuteAttributes,
    ReduceAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.ir.operations import OpClass, OpDef
from gpuwire.ir.tensors import TensorType

Array = npt.NDArray[Any]
"""Of any of the table's data types, which are values here, not types."""


def evaluate(
    definition: OpDef, arrays: Sequence[Array], attributes: Attributes, result: TensorType
) -> Array:
    """The operation's result: a contiguous array of the result's type."""
    with np.errstate(all="ignore"):
        if definition.op_class is OpClass.ELEMENTWISE:
            value = _elementwise(definition.name, arrays, result.dtype)
        elif definition.op_class is OpClass.REDUCTION:
            value = _reduce(definition.name, arrays[0], attributes, result.dtype)
        else:
            value = _OTHERS[definition.name](arrays, attributes, result)
    return np.ascontiguousarray(value, result.dtype.numpy).reshape(result.shape)


def convert(array: Array, target: DType) -> Array:
    """As `astype`, with every case defined."""
    source = array.dtype
    if np.issubdtype(source, np.floating) and target.is_integer:
        limits = np.iinfo(target.name)
        wide = np.trunc(array.astype(np.float64))
        inside = np.where((wide > float(limits.min)) & (wide < float(limits.max)), wide, 0)
        converted = inside.astype(target.numpy)
        converted = np.where(wide >= float(limits.max), limits.max, converted)
        converted = np.where(wide <= float(limits.min), limits.min, converted)
        return np.asarray(np.where(np.isnan(wide), 0, converted).astype(target.numpy))
    return array.astype(target.numpy)


def _elementwise(name: str, arrays: Sequence[Array], result: DType) -> Array:
    if name == "cast":
        return convert(arrays[0], result)
    if name in ("logical_not", "logical_and", "logical_or", "logical_xor"):
        return np.asarray(getattr(np, name)(*(array.astype(bool) for array in arrays)))
    if name == "where":
        values = [array.astype(result.numpy) for array in arrays[1:]]
        return np.where(arrays[0], *values)
    compute = dt.promote_all(tuple(dt.dtype_of_numpy(array.dtype) for array in arrays)).numpy
    operands = [array.astype(compute) for array in arrays]
    if np.issubdtype(compute, np.integer):
        special = _INTEGERS.get(name)
        if special is not None:
            return special(*operands)
    return np.asarray(_NAMES.get(name, getattr(np, name, None))(*operands))  # type: ignore[misc]


_NAMES: dict[str, Callable[..., Array]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "bitwise_invert": np.invert,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "imag": np.imag,
    "pow": np.power,
    "real": np.real,
    "round": np.round,
}


def _integer_pow(base: Array, exponent: Array) -> Array:
    negative = exponent < 0
    powers = np.power(base, np.where(negative, 0, exponent).astype(base.dtype))
    odd = (exponent & 1).astype(bool)
    one = base.dtype.type(1)
    quotient = np.where(base == 1, one, 0)
    if np.issubdtype(base.dtype, np.signedinteger):
        quotient = np.where(base == -1, np.where(odd, -one, one), quotient)
    return np.asarray(np.where(negative, quotient, powers).astype(base.dtype))


def _shift_left(array: Array, count: Array) -> Array:
    width = 8 * array.dtype.itemsize
    legal = (count >= 0) & (count < width)
    shifted = np.left_shift(array, np.where(legal, count, 0).astype(array.dtype))
    return np.asarray(np.where(legal, shifted, 0).astype(array.dtype))


def _shift_right(array: Array, count: Array) -> Array:
    width = 8 * array.dtype.itemsize
    legal = (count >= 0) & (count < width)
    shifted = np.right_shift(array, np.where(legal, count, width - 1).astype(array.dtype))
    rest = shifted if np.issubdtype(array.dtype, np.signedinteger) else np.zeros_like(array)
    return np.asarray(np.where(legal, shifted, rest))


_INTEGERS: dict[str, Callable[..., Array]] = {
    "pow": _integer_pow,
    "bitwise_left_shift": _shift_left,
    "bitwise_right_shift": _shift_right,
}


def _reduce(name: str, array: Array, attributes: Attributes, result: DType) -> Array:
    if isinstance(attributes, ArgReduceAttributes):
        found = getattr(np, name)(array, axis=attributes.axis, keepdims=attributes.keepdims)
        return np.asarray(found)
    assert isinstance(attributes, ReduceAttributes)
    axes, keepdims = attributes.axes, attributes.keepdims
    if name in ("sum", "prod", "mean"):
        array = convert(array, result)
        if name == "mean":
            return np.asarray(np.mean(array, axis=axes, keepdims=keepdims))
        dtype = np.dtype(np.float32) if result is dt.float16 else result.numpy
        return np.asarray(getattr(np, name)(array, axis=axes, keepdims=keepdims, dtype=dtype))
    return np.asarray(getattr(np, name)(array, axis=axes, keepdims=keepdims))


def _matmul(arrays: Sequence[Array], attributes: Attributes, result: TensorType) -> Array:
    wide = np.dtype(np.float32) if result.dtype is dt.float16 else result.dtype.numpy
    left, right = (array.astype(wide) for array in arrays)
    return np.asarray(np.matmul(left, right))


def _broadcast(arrays: Sequence[Array], attributes: Attributes, result: TensorType) -> Array:
    return np.broadcast_to(arrays[0], result.shape)


def _permute(arrays: Sequence[Array], attributes: Attributes, result: TensorType) -> Array:
    assert isinstance(attributes, PermuteAttributes)
    return np.transpose(arrays[0], attributes.axes)


def _indices(slices: SliceAttributes) -> tuple[slice | Array, ...]:
    return np.ix_(
        *(
            start + step * np.arange(length)
            for start, step, length in zip(slices.starts, slices.steps, slices.lengths, strict=True)
        )
    )


def _slice(arrays: Sequence[Array], attributes: Attributes, result: TensorType) -> Array:
    assert isinstance(attributes, SliceAttributes)
    return arrays[0][_indices(attributes)]


def _slice_assign(arrays: Sequence[Array], attributes: Attributes, result: TensorType) -> Array:
    assert isinstance(attributes, SliceAttributes)
    new = arrays[0].copy()
    new[_indices(attributes)] = convert(arrays[1], result.dtype)
    return new


def _concat(arrays: Sequence[Array], attributes: Attributes, result: TensorType) -> Array:
    assert isinstance(attributes, AxisAttributes)
    parts = [array.astype(result.dtype.numpy) for array in arrays]
    return np.concatenate(parts, axis=attributes.axis)


def _take(arrays: Sequence[Array], attributes: Attributes, result: TensorType) -> Array:
    assert isinstance(attributes, AxisAttributes)
    source, indices = arrays
    length = source.shape[attributes.axis]
    if not result.size:
        return np.empty(result.shape, result.dtype.numpy)
    places = [int(index) for index in indices]
    places = [max(place + length, 0) if place < 0 else min(place, length - 1) for place in places]
    return np.take(source, places, axis=attributes.axis)


def _arange(arrays: Sequence[Array], attributes: Attributes, result: TensorType) -> Array:
    start, step = arrays
    numbers = np.arange(result.size)
    if result.dtype.kind is not Kind.FLOAT:
        wide = numbers.astype(result.dtype.numpy)
        return np.asarray(start + wide * step)
    wide_type = np.dtype(np.float32) if result.dtype is dt.float16 else result.dtype.numpy
    second = (start.astype(np.float64) + step.astype(np.float64)).astype(result.dtype.numpy)
    by = second.astype(wide_type) - start.astype(wide_type)
    return np.asarray(start.astype(wide_type) + numbers.astype(wide_type) * by)


_OTHERS: dict[str, Callable[[Sequence[Array], Attributes, TensorType], Array]] = {
    "matmul": _matmul,
    "reshape": lambda arrays, attributes, result: arrays[0].reshape(result.shape),
    "broadcast_to": _broadcast,
    "permute_dims": _permute,
    "slice": _slice,
    "concat": _concat,
    "slice_assign": _slice_assign,
    "take": _take,
    "full": _broadcast,
    "arange": _arange,
}
