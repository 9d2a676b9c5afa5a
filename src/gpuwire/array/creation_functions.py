"""Making arrays (Array API standard, "Creation functions").

`device` None is the default device: the first this process connected to that is still open, else
`GPUWIRE_URL`, else a server started on this machine. `dtype` None is the default type of the kind
of value: float32, and int64 where the device has it, else int32. Nothing waits except `from_dlpack`
and `asarray` of arrays of another device. A type that the device lacks raises `UnsupportedDType`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpuwire.array.array_object import Array
from gpuwire.array.axes import Lengths, shape_of
from gpuwire.array.connecting import place_of
from gpuwire.array.conversion import from_host
from gpuwire.array.data_types import DTypeLike, resolve
from gpuwire.array.devices import ArrayDevice, meeting_device
from gpuwire.array.manipulation_functions import stack
from gpuwire.array.recording import (
    binary,
    broadcasted,
    cast,
    expect_arrays,
    mismatch,
    own,
    reshaped,
)
from gpuwire.array.scalar_expressions import number_class
from gpuwire.array.scalars import default_dtype, python_number, typed_scalar
from gpuwire.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    NO_ATTRIBUTES,
    LengthAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import DType
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Shape

_ADD = OPERATIONS["add"]
_ARANGE = OPERATIONS["arange"]
_EQUAL = OPERATIONS["equal"]
_FULL = OPERATIONS["full"]
_GREATER_EQUAL = OPERATIONS["greater_equal"]
_LESS_EQUAL = OPERATIONS["less_equal"]
_MULTIPLY = OPERATIONS["multiply"]
_SLICE_ASSIGN = OPERATIONS["slice_assign"]
_WHERE = OPERATIONS["where"]

Number = bool | int | float | complex


def asarray(
    obj: Any,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: ArrayDevice | None = None,
    copy: bool | None = None,
) -> Array:
    """An array of what `obj` holds: an array, a NumPy array of any strides and byte order, a
    number, nested lists of numbers or of arrays, or whatever NumPy can read.

    NumPy arrays keep their type; Python numbers get the default ones. The elements are copied at
    the call and sent in the background. An array that is already on the device with that type
    is returned itself, or with `copy=True` as a new one. `copy=False` of anything else raises
    `ArgumentError`. Strings, objects, records and times raise `DTypeError`.
    """
    if isinstance(obj, Array):
        return _from_array(obj, dtype, device, copy)
    if copy is False:
        raise ArgumentError("copy=False: elements in this machine's memory can only be copied")
    leaf = _first_leaf(obj)
    if isinstance(leaf, Array):
        stacked = _stacked(obj, leaf.device)
        return _from_array(stacked, dtype, device, None)
    place = place_of(device)
    return Array(from_host(obj, dtype, place), place)


def from_dlpack(x: Any, /, *, device: ArrayDevice | None = None, copy: bool | None = None) -> Array:
    """An array of the elements of another library's, by DLPack through host memory.

    Waits where `x` has to be copied to the host. Raises `NotSupported` if `x` cannot be had in
    host memory, `ArgumentError` for `copy=False`.
    """
    if isinstance(x, Array):
        return _from_array(x, None, device, copy)
    if copy is False:
        raise ArgumentError("copy=False: another library's memory can only be copied")
    try:
        elements = np.from_dlpack(x)
    except (BufferError, RuntimeError, AttributeError) as error:
        raise NotSupported(
            f"from_dlpack: this {type(x).__name__} cannot be had in host memory; move it there "
            "in its own library first"
        ) from error
    return asarray(elements, device=device)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    device: ArrayDevice | None = None,
) -> Array:
    """start, start + step, … up to, but not, `stop`; with one argument, from 0 up to it.

    One dimension of max(0, ceil((stop - start) / step)) elements. Integers give the default
    integer, a float among the arguments the default float.
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ArgumentError("arange: step must not be 0")
    place = place_of(device)
    whole = all(isinstance(number, int) for number in (start, stop, step))
    natural = place.default_int if whole else place.default_float
    wanted = resolve(dtype, place) if dtype is not None else natural
    if whole:
        length = len(range(int(start), int(stop), int(step)))
    else:
        length = max(0, math.ceil((stop - start) / step))
    return _arange(place, start, step, length, wanted)


def empty(
    shape: Lengths, *, dtype: DTypeLike | None = None, device: ArrayDevice | None = None
) -> Array:
    """An array of that shape; its elements are zeros here, but say nothing."""
    return zeros(shape, dtype=dtype, device=device)


def empty_like(
    x: Array, /, *, dtype: DTypeLike | None = None, device: ArrayDevice | None = None
) -> Array:
    """`empty` with the shape, type and device of `x`."""
    return zeros_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: ArrayDevice | None = None,
) -> Array:
    """A matrix of ones on the diagonal `k` (above the main one if positive), zeros elsewhere."""
    rows, columns = shape_of((n_rows, n_rows if n_cols is None else n_cols), "eye")
    place = place_of(device)
    wanted = resolve(dtype, place) if dtype is not None else place.default_float
    row, column = _places(place, (rows, columns))
    k = _inside(k, rows, columns)
    return cast(binary(_EQUAL, binary(_ADD, row, k), column), wanted)


def full(
    shape: Lengths,
    fill_value: Number,
    *,
    dtype: DTypeLike | None = None,
    device: ArrayDevice | None = None,
) -> Array:
    """An array with every element `fill_value`, whose kind gives the default type."""
    place = place_of(device)
    if isinstance(fill_value, Array):
        value = fill_value if dtype is None else cast(fill_value, resolve(dtype, place))
        met = meeting_device(place, value.device)
        if met is None:
            raise mismatch("full", place, value.device)
        place = met
        return Array(
            place.record(_FULL, (value._tensor,), ShapeAttributes(shape_of(shape, "full"))), place
        )
    number = python_number(fill_value)
    if number is None:
        raise DTypeError(f"full: a number, not {type(fill_value).__name__}", operation="full")
    wanted = resolve(dtype, place) if dtype is not None else default_dtype(number, place)
    return _full(place, shape_of(shape, "full"), number, wanted)


def full_like(
    x: Array,
    /,
    fill_value: Number,
    *,
    dtype: DTypeLike | None = None,
    device: ArrayDevice | None = None,
) -> Array:
    """`full` with the shape, type and device of `x`."""
    expect_arrays("full_like", x)
    place = place_of(device) if device is not None else x.device
    return full(x.shape, fill_value, dtype=dtype if dtype is not None else x.dtype, device=place)


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: ArrayDevice | None = None,
    endpoint: bool = True,
) -> Array:
    """`num` evenly spaced numbers from `start` to `stop`, which is the last one if `endpoint`.

    A floating-point type; the default float, or the complex type of its size for complex bounds.
    """
    if num < 0:
        raise ArgumentError(f"linspace: num must not be negative, not {num}")
    place = place_of(device)
    complex_bounds = complex in (number_class(start), number_class(stop))
    natural = dt.complex_of(place.default_float) if complex_bounds else place.default_float
    wanted = resolve(dtype, place) if dtype is not None else natural
    if not wanted.is_floating:
        raise DTypeError(f"linspace gives floating-point numbers, not {wanted}")
    step = (stop - start) / max(num - 1 if endpoint else num, 1)
    count = cast(_arange(place, 0, 1, num, dt.real_of(wanted)), wanted)
    result = binary(_ADD, binary(_MULTIPLY, count, step), start)
    if not endpoint or num < 2:
        return result
    last = SliceAttributes((num - 1,), (1,), (1,))
    tensor = place.record(_SLICE_ASSIGN, (result._tensor, typed_scalar(stop, wanted)), last)
    return Array(tensor, place)


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """Coordinate grids of one-dimensional arrays: one array for each, all of the grid's shape.

    With "xy" the first two dimensions are swapped, as for plots; with "ij" they are in order.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f'meshgrid: indexing is "xy" or "ij", not {indexing!r}')
    expect_arrays("meshgrid", *arrays)
    if any(array.ndim > 1 for array in arrays):
        raise ShapeError("meshgrid wants one-dimensional arrays", operation="meshgrid")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = [1, 0]
    shape = [1] * len(arrays)
    for array, dimension in zip(arrays, order, strict=True):
        shape[dimension] = array.size
    grids: list[Array] = []
    for array, dimension in zip(arrays, order, strict=True):
        along = tuple(array.size if i == dimension else 1 for i in range(len(arrays)))
        grids.append(own(broadcasted(reshaped(array, along), tuple(shape)), array))
    return grids


def ones(
    shape: Lengths, *, dtype: DTypeLike | None = None, device: ArrayDevice | None = None
) -> Array:
    """An array of ones, by default of the default float."""
    place = place_of(device)
    wanted = resolve(dtype, place) if dtype is not None else place.default_float
    return _full(place, shape_of(shape, "ones"), 1, wanted)


def ones_like(
    x: Array, /, *, dtype: DTypeLike | None = None, device: ArrayDevice | None = None
) -> Array:
    """`ones` with the shape, type and device of `x`."""
    return full_like(x, 1, dtype=dtype, device=device)


def tril(x: Array, /, *, k: int = 0) -> Array:
    """The lower triangle of each matrix, up to the diagonal `k`; zeros above."""
    expect_arrays("tril", x)
    return _triangle(x, k, lower=True)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """The upper triangle of each matrix, from the diagonal `k`; zeros below."""
    expect_arrays("triu", x)
    return _triangle(x, k, lower=False)


def zeros(
    shape: Lengths, *, dtype: DTypeLike | None = None, device: ArrayDevice | None = None
) -> Array:
    """An array of zeros, by default of the default float."""
    place = place_of(device)
    wanted = resolve(dtype, place) if dtype is not None else place.default_float
    return _full(place, shape_of(shape, "zeros"), 0, wanted)


def zeros_like(
    x: Array, /, *, dtype: DTypeLike | None = None, device: ArrayDevice | None = None
) -> Array:
    """`zeros` with the shape, type and device of `x`."""
    return full_like(x, 0, dtype=dtype, device=device)


def _from_array(
    x: Array, dtype: DTypeLike | None, device: ArrayDevice | None, copy: bool | None
) -> Array:
    place = place_of(device) if device is not None else x.device
    wanted = resolve(dtype, place) if dtype is not None else x.dtype
    if copy is False and (place is not x.device or wanted is not x.dtype):
        raise ArgumentError("copy=False: another device or data type takes a copy")
    result = cast(x.to_device(place), wanted)
    return own(result, x) if copy else result


def _first_leaf(value: Any) -> Any:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return value


def _stacked(value: Any, device: ArrayDevice) -> Array:
    """Nested lists of arrays and numbers as one array."""
    if isinstance(value, list | tuple):
        return stack([_stacked(part, device) for part in value])
    return asarray(value, device=device)


def _arange(device: ArrayDevice, start: float, step: float, length: int, dtype: DType) -> Array:
    inputs = (typed_scalar(start, dtype), typed_scalar(step, dtype))
    return Array(device.record(_ARANGE, inputs, LengthAttributes(length)), device)


def _full(device: ArrayDevice, shape: Shape, value: Number, dtype: DType) -> Array:
    inputs = (typed_scalar(value, dtype),)
    return Array(device.record(_FULL, inputs, ShapeAttributes(shape)), device)


def _places(device: ArrayDevice, shape: Shape) -> tuple[Array, Array]:
    """Row numbers as a column and column numbers as a row."""
    rows, columns = shape
    row = _arange(device, 0, 1, rows, dt.int32)
    return reshaped(row, (rows, 1)), _arange(device, 0, 1, columns, dt.int32)


def _inside(k: int, rows: int, columns: int) -> int:
    """A diagonal's number, at most just outside the matrix: that is as good as further out."""
    return max(-rows, min(k, columns))


def _triangle(x: Array, k: int, *, lower: bool) -> Array:
    if x.ndim < 2:
        raise ShapeError(f"a triangle of shape {x.shape}: two dimensions at least are needed")
    row, column = _places(x.device, x.shape[-2:])
    k = _inside(k, *x.shape[-2:])
    inside = binary(_GREATER_EQUAL if lower else _LESS_EQUAL, binary(_ADD, row, k), column)
    inputs = (inside._tensor, x._tensor, typed_scalar(0, x.dtype))
    return Array(x.device.record(_WHERE, inputs, NO_ATTRIBUTES), x.device)
