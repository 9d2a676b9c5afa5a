"""From a call to one recorded operation: operands, scalars, promotion, devices.

The types of the operation are checked by its rule when the device records it; here is only what
the rule cannot know: Python numbers, the default types, and what the device has. Measured with
timeit over a device that records nothing, on a 2-core machine: `x + y` 0.7 µs, `x * 0.5` 0.9 µs,
`x[0]` (two operations) 5 µs; recording one on a real device takes about 10 µs more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuwire.array.devices import ArrayDevice, Operand, meeting_device
from gpuwire.array.scalars import scalar_operand
from gpuwire.errors import DeviceMismatch, DTypeError, NotSupported, TracingError
from gpuwire.ir.attributes import (
    NO_ATTRIBUTES,
    Attributes,
    CastAttributes,
    PermuteAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import DType, promote
from gpuwire.ir.operations import OPERATIONS, OpDef
from gpuwire.ir.tensors import Shape

if TYPE_CHECKING:
    from gpuwire.array.array_object import Array

_CAST = OPERATIONS["cast"]
_RESHAPE = OPERATIONS["reshape"]
_PERMUTE = OPERATIONS["permute_dims"]
_SLICE = OPERATIONS["slice"]
_BROADCAST = OPERATIONS["broadcast_to"]


def unary(definition: OpDef, x: Array, attributes: Attributes = NO_ATTRIBUTES) -> Array:
    """One operation over one array."""
    device = x._device
    return x._sibling(device.record(definition, (x._tensor,), attributes))


def unary_floating(definition: OpDef, x: Array) -> Array:
    """`unary` of an operation over floats; integers and booleans become the default float."""
    return unary(definition, x if x.dtype.is_floating else cast(x, x._device.default_float))


def binary(definition: OpDef, x: Array, other: object, *, reflected: bool = False) -> Array:
    """One operation over an array and its partner, an array of the same device or a number.

    `reflected` puts the partner first. Raises `DeviceMismatch`, `NotSupported` for a NumPy array,
    `DTypeError` for anything else, and what the operation's rule raises.
    """
    if other.__class__ is x.__class__ and other._device is not x._device:
        x = brought(x, meeting(definition.name, x, other))
    device = x._device
    operand = partner(x, other, definition.name)
    inputs = (operand, x._tensor) if reflected else (x._tensor, operand)
    return x._sibling(device.record(definition, inputs, NO_ATTRIBUTES))


def binary_floating(
    definition: OpDef, x: Array, other: object, *, reflected: bool = False
) -> Array:
    """`binary` of an operation over floats: two partners without one become the default float."""
    if not x.dtype.is_floating:
        found = other.dtype if other.__class__ is x.__class__ else None
        if found is None or not found.is_floating:
            x = cast(x, x._device.default_float)
    return binary(definition, x, other, reflected=reflected)


def partner(x: Array, other: object, name: str) -> Operand:
    """`other` as an operand beside `x` in the operation called `name`."""
    device = x._device
    dtype = x._tensor.type.dtype
    if other.__class__ is x.__class__:
        array: Array = other
        if array._device is not device:
            meeting(name, x, array)
        tensor = array._tensor
        if tensor.type.dtype is not dtype:
            _check_promotion(device, dtype, tensor.type.dtype, name)
        return tensor
    scalar = scalar_operand(other, dtype, device)
    if scalar is None:
        raise foreign(name, other)
    return scalar


def cast(x: Array, dtype: DType) -> Array:
    """`x` converted to `dtype`; `x` itself where it has that type."""
    if x._tensor.type.dtype is dtype:
        return x
    return unary(_CAST, x, CastAttributes(dtype))


def reshaped(x: Array, shape: Shape) -> Array:
    """`x` with its elements laid out as `shape`; `x` itself where it has that shape."""
    return x if x._tensor.type.shape == shape else unary(_RESHAPE, x, ShapeAttributes(shape))


def permuted(x: Array, axes: tuple[int, ...]) -> Array:
    """`x` with its dimensions in that order; non-negative axes."""
    return unary(_PERMUTE, x, PermuteAttributes(axes))


def broadcasted(x: Array, shape: Shape) -> Array:
    """`x` repeated to `shape`; `x` itself where it has that shape."""
    return x if x._tensor.type.shape == shape else unary(_BROADCAST, x, ShapeAttributes(shape))


def part(x: Array, axis: int, start: int, stop: int) -> Array:
    """The elements from `start` up to `stop` along one non-negative axis."""
    starts = tuple(start if i == axis else 0 for i in range(x.ndim))
    lengths = tuple(stop - start if i == axis else length for i, length in enumerate(x.shape))
    return unary(_SLICE, x, SliceAttributes(starts, (1,) * x.ndim, lengths))


def own(result: Array, x: Array) -> Array:
    """`result`, as an `Array` object other than `x`: what is given out must not be `x` itself, or
    writing to the one in place would write to the other."""
    return x._sibling(x._tensor) if result is x else result


def same_device(name: str, arrays: tuple[Array, ...]) -> ArrayDevice:
    """The device of an operation over all of `arrays`; `DeviceMismatch` if there is none."""
    device = arrays[0]._device
    for array in arrays:
        if array._device is not device:
            found = meeting_device(device, array._device)
            if found is None:
                raise mismatch(name, device, array._device)
            device = found
    return device


def meeting(name: str, x: Array, other: Array) -> ArrayDevice:
    """The device of an operation over both; `DeviceMismatch` if they have none in common."""
    return same_device(name, (x, other))


def brought(x: Array, device: ArrayDevice) -> Array:
    """`x`, which can meet arrays of `device`, as one of them."""
    return x if x._device is device else x.__class__(x._tensor, device)


def check_inside(name: str, x: Array, *others: object) -> None:
    """Raises if `x`, which is to be changed in place, cannot become what is made of it and of
    `others`: it is from outside of the function that is traced."""
    for other in others:
        if other.__class__ is not x.__class__ or other._device is x._device:
            continue
        if meeting(name, x, other) is not x._device:
            raise TracingError(
                f"{name} would change an array from outside the compiled function; give it to the "
                "function as an argument, or return the new values"
            )


def mismatch(name: str, one: ArrayDevice, other: ArrayDevice) -> DeviceMismatch:
    return DeviceMismatch(
        f"{name} over arrays of two devices ({one.info.name} and {other.info.name}, each its own "
        "session); bring them together with x.to_device(device)"
    )


def foreign(name: str, value: object) -> Exception:
    """The error for a partner that is no array of a device and no number."""
    if isinstance(value, np.ndarray):
        return NotSupported(
            f"{name} of a NumPy array: nothing is sent unasked; "
            "use gpuwire.asarray(numpy_array, device=…)"
        )
    return DTypeError(
        f"{name} takes gpuwire arrays and numbers, not {type(value).__name__}", operation=name
    )


def expect_arrays(name: str, *values: object) -> None:
    """Raises the word on what is no array of a device, for the function called `name`."""
    for value in values:
        if not hasattr(value, "_tensor"):
            if isinstance(value, np.ndarray):
                raise foreign(name, value)
            raise DTypeError(
                f"{name} takes gpuwire arrays, not {type(value).__name__}; use gpuwire.asarray",
                operation=name,
            )


def _check_promotion(device: ArrayDevice, one: DType, other: DType, name: str) -> None:
    """The type that a kernel computes in must be there even if the result has another."""
    wanted = promote(one, other)
    if wanted is not one and wanted is not other:
        device.require(wanted, name)
