"""Reading and writing of `x[key]`: a key's selection turned into operations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuwire.array import interop
from gpuwire.array.conversion import from_host
from gpuwire.array.devices import Operand
from gpuwire.array.indexing import (
    Gather,
    IndexArray,
    Item,
    select,
    value_shape,
)
from gpuwire.array.recording import (
    binary,
    broadcasted,
    cast,
    own,
    part,
    reshaped,
    unary,
)
from gpuwire.array.scalars import python_number, typed_scalar
from gpuwire.errors import IndexingError, NotSupported, ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, AxisAttributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar, Shape, broadcast_shapes

if TYPE_CHECKING:
    from gpuwire.array.array_object import Array

_ADD = OPERATIONS["add"]
_LESS = OPERATIONS["less"]
_MULTIPLY = OPERATIONS["multiply"]
_SLICE = OPERATIONS["slice"]
_SLICE_ASSIGN = OPERATIONS["slice_assign"]
_TAKE = OPERATIONS["take"]
_WHERE = OPERATIONS["where"]

# A tuple: isinstance() with a union of types costs several times as much.
_HOST_INDEX = (np.ndarray, list)

Index = Any
"""An index array of a key: an `Array` or a NumPy array, of integers."""


@dataclass(frozen=True, slots=True)
class _Key:
    """A key with its index arrays set apart; `shape` is what they broadcast to."""

    items: tuple[Item, ...]
    indices: tuple[Index, ...]
    shape: Shape


def read(x: Array, key: Any) -> Array:
    """`x[key]`; see `Array.__getitem__`."""
    if _is_single_flag(x, key):
        flagged = reshaped(x, (1, *x.shape))
        return flagged if bool(interop.read(key)) else part(flagged, 0, 0, 0)
    parsed = _parse(x, key)
    selection = select(parsed.items, x.shape, parsed.shape)
    result = x if selection.whole else unary(_SLICE, x, selection.slices)
    if selection.gather is not None:
        result = _gather(result, selection.gather, parsed.indices)
    return own(reshaped(result, selection.shape), x)


def written(x: Array, key: Any, value: Any) -> Array:
    """`x` as `x[key] = value` leaves it; see `Array.__setitem__`."""
    mask = _whole_mask(x, key)
    if mask is not None:
        return _written_by_mask(x, mask, value)
    items = key if isinstance(key, tuple) else (key,)
    if any(_is_index_array(x, item) for item in items):
        raise NotSupported(
            "writing through an integer array, or through a mask beside other indices, is not "
            "supported; write a slice, or make a mask of the array's shape and use x[mask] = value"
        )
    selection = select(items, x.shape)
    new = _value(x, value)
    operand: Operand
    if isinstance(new, Scalar):
        operand = new
    else:
        wanted = value_shape(selection, new.shape)
        operand = (reshaped(new, wanted) if new.shape else new)._tensor
    tensor = x._device.record(_SLICE_ASSIGN, (x._tensor, operand), selection.slices)
    return x._sibling(tensor)


def _value(x: Array, value: Any) -> Array | Scalar:
    """What is to be written: an array of a device, or a number in `x`'s type. NumPy arrays and
    lists are sent."""
    if value.__class__ is x.__class__:
        array: Array = value
        return array
    number = python_number(value)
    if number is not None:
        return typed_scalar(number, x.dtype)
    return x._sibling(from_host(value, None, x._device))


# --- Index arrays ----------------------------------------------------------------------------


def _parse(x: Array, key: Any) -> _Key:
    items: list[Item] = []
    indices: list[Index] = []
    for item in key if isinstance(key, tuple) else (key,):
        if not _is_index_array(x, item):
            items.append(item)
            continue
        for index, mask_length in _index_arrays(x, item):
            items.append(IndexArray(mask_length))
            indices.append(index)
    if not indices:
        return _Key(tuple(items), (), ())
    try:
        shape = broadcast_shapes(*(index.shape for index in indices))
    except ShapeError as error:
        raise IndexingError(f"index arrays: {error}") from None
    return _Key(tuple(items), tuple(indices), shape)


def _is_single_flag(x: Array, key: Any) -> bool:
    """Whether a key is a zero-dimensional mask: it takes all of an array or nothing."""
    return key.__class__ is x.__class__ and key.dtype is dt.bool_ and not key.shape


def _is_index_array(x: Array, item: object) -> bool:
    return item.__class__ is x.__class__ or isinstance(item, _HOST_INDEX)


def _index_arrays(x: Array, item: Any) -> list[tuple[Index, int | None]]:
    """The integer arrays that an item of a key stands for, a mask for one of each dimension, with
    the length of that dimension."""
    on_device = item.__class__ is x.__class__
    if not on_device:
        item = np.asarray(item)
        if item.size == 0 and item.dtype == np.float64:
            item = item.astype(np.int32)
    dtype: DType = item.dtype if on_device else dt.dtype_of_numpy(item.dtype)
    if dtype.is_integer:
        return [(item, None)]
    if dtype is not dt.bool_:
        raise IndexingError(f"an index array holds integers or booleans, not {dtype}")
    mask: np.ndarray[Any, Any] = interop.read(item) if on_device else item
    if mask.ndim == 0:
        raise NotSupported("a zero-dimensional mask is not supported beside other indices")
    return list(zip(np.nonzero(mask), mask.shape, strict=True))


def _gather(x: Array, gather: Gather, indices: tuple[Index, ...]) -> Array:
    """Elements of dimensions `gather.first` to `gather.last`, by one take along all of them."""
    shape = x.shape
    merged = math.prod(shape[gather.first : gather.last])
    width = dt.int32 if merged < 2**31 else dt.int64
    place = _sum_of_indices(x, gather, indices, width)
    flat = reshaped(x, (*shape[: gather.first], merged, *shape[gather.last :]))
    place = reshaped(place, (math.prod(gather.shape),))
    tensor = x._device.record(_TAKE, (flat._tensor, place._tensor), AxisAttributes(gather.first))
    return x._sibling(tensor)


def _sum_of_indices(x: Array, gather: Gather, indices: tuple[Index, ...], width: DType) -> Array:
    on_host = [
        _checked(index, length)
        for index, length in zip(indices, gather.lengths, strict=True)
        if isinstance(index, np.ndarray)
    ]
    if len(on_host) == len(indices):
        total: np.ndarray[Any, Any] = np.zeros(gather.shape, np.int64)
        for index, stride in zip(on_host, gather.strides, strict=True):
            total = total + index * stride
        return x._sibling(from_host(total, width, x._device))
    terms = [
        _term(x, index, length, stride, width, is_alone=len(indices) == 1)
        for index, length, stride in zip(indices, gather.lengths, gather.strides, strict=True)
    ]
    total_on_device = terms[0]
    for term in terms[1:]:
        total_on_device = binary(_ADD, total_on_device, term)
    return broadcasted(total_on_device, gather.shape)


def _term(
    x: Array, index: Index, length: int, stride: int, width: DType, *, is_alone: bool
) -> Array:
    """What one index array adds to the place in the merged dimensions."""
    if isinstance(index, np.ndarray):
        place = x._sibling(from_host(_checked(index, length), width, x._device))
    elif is_alone:
        place = index
    else:
        # take() counts a negative index from the end only where it is the whole index.
        place = from_start(cast(index, width), length)
    return place if stride == 1 else binary(_MULTIPLY, place, stride)


def from_start(index: Array, length: int) -> Array:
    """Signed indices on the device, those below 0 counted from the end of `length`."""
    negative, shifted = binary(_LESS, index, 0), binary(_ADD, index, length)
    inputs = (negative._tensor, shifted._tensor, index._tensor)
    return index._sibling(index._device.record(_WHERE, inputs, NO_ATTRIBUTES))


def _checked(index: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """Indices from this machine, counted from the start; `IndexingError` if one is outside."""
    wide = index.astype(np.int64)
    if wide.size and not (-length <= wide.min() and wide.max() < length):
        raise IndexingError(
            f"index {int(wide.min() if wide.min() < -length else wide.max())} is out of bounds "
            f"for a dimension with length {length}"
        )
    return np.where(wide < 0, wide + length, wide)


# --- Masks -----------------------------------------------------------------------------------


def _whole_mask(x: Array, key: Any) -> Array | None:
    """The mask that is all of a key; None if the key is something else."""
    if isinstance(key, tuple) and len(key) == 1:
        (key,) = key
    if isinstance(key, list):
        key = np.asarray(key)
    if isinstance(key, np.ndarray) and key.dtype == np.bool_:
        key = x._sibling(from_host(key, None, x._device))
    if key.__class__ is not x.__class__ or key.dtype is not dt.bool_:
        return None
    mask: Array = key
    if mask.shape != x.shape[: mask.ndim]:
        raise IndexingError(f"a mask of shape {mask.shape} does not fit an array of {x.shape}")
    return mask


def _written_by_mask(x: Array, mask: Array, value: Any) -> Array:
    rest = x.shape[mask.ndim :]
    new = _value(x, value)
    operand: Operand
    if isinstance(new, Scalar):
        operand = new
    elif len(new.shape) > len(rest) or broadcast_shapes(new.shape, rest) != rest:
        raise NotSupported(
            f"x[mask] = value wants a value that broadcasts to {rest or 'one element'}, not shape "
            f"{new.shape}; use x[...] = where(mask, value_of_full_shape, x)"
        )
    else:
        operand = cast(new, x.dtype)._tensor
    wide = reshaped(mask, (*mask.shape, *(1 for _ in rest)))
    tensor = x._device.record(_WHERE, (wide._tensor, operand, x._tensor), NO_ATTRIBUTES)
    return x._sibling(tensor)
