"""Reading `x[key]`: a key's selection turned into operations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuwire.array import interop
from gpuwire.array.conversion import from_host
from gpuwire.array.indexing import (
    Gather,
    IndexArray,
    Item,
    select,
)
from gpuwire.array.recording import (
    binary,
    broadcasted,
    brought,
    cast,
    meeting,
    own,
    part,
    reshaped,
    unary,
)
from gpuwire.errors import IndexingError, NotSupported, ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, AxisAttributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Shape, broadcast_shapes

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
class Key:
    """A key with its index arrays set apart; `shape` is what they broadcast to."""

    items: tuple[Item, ...]
    indices: tuple[Index, ...]
    shape: Shape


def read(x: Array, key: Any) -> Array:
    """`x[key]`; see `Array.__getitem__`."""
    x = _met(x, key)
    if _is_single_flag(x, key):
        flagged = reshaped(x, (1, *x.shape))
        return flagged if bool(interop.read(key)) else part(flagged, 0, 0, 0)
    parsed = parse(x, key)
    selection = select(parsed.items, x.shape, parsed.shape)
    result = x if selection.whole else unary(_SLICE, x, selection.slices)
    if selection.gather is not None:
        result = _gather(result, selection.gather, parsed.indices)
    return own(reshaped(result, selection.shape), x)


def _met(x: Array, key: Any) -> Array:
    """`x`, on the device where it meets the arrays of the key."""
    for item in key if key.__class__ is tuple else (key,):
        if item.__class__ is x.__class__ and item._device is not x._device:
            x = brought(x, meeting("indexing", x, item))
    return x


# --- Index arrays ----------------------------------------------------------------------------


def parse(x: Array, key: Any) -> Key:
    """A key for `x`; a mask is read, which waits, and stands for the indices of what it takes."""
    items: list[Item] = []
    indices: list[Index] = []
    for item in key if isinstance(key, tuple) else (key,):
        if not is_index_array(x, item):
            items.append(item)
            continue
        for index, mask_length in _index_arrays(x, item):
            items.append(IndexArray(mask_length))
            indices.append(index)
    if not indices:
        return Key(tuple(items), (), ())
    try:
        shape = broadcast_shapes(*(index.shape for index in indices))
    except ShapeError as error:
        raise IndexingError(f"index arrays: {error}") from None
    return Key(tuple(items), tuple(indices), shape)


def _is_single_flag(x: Array, key: Any) -> bool:
    """Whether a key is a zero-dimensional mask: it takes all of an array or nothing."""
    return key.__class__ is x.__class__ and key.dtype is dt.bool_ and not key.shape


def is_index_array(x: Array, item: object) -> bool:
    """Whether an item of a key is an array, of either side; lists count as arrays."""
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
        from_start_on_host(index, length)
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
        place = x._sibling(from_host(from_start_on_host(index, length), width, x._device))
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


def from_start_on_host(index: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """Indices from this machine, counted from the start; `IndexingError` if one is outside."""
    wide = index.astype(np.int64)
    if wide.size and not (-length <= wide.min() and wide.max() < length):
        raise IndexingError(
            f"index {int(wide.min() if wide.min() < -length else wide.max())} is out of bounds "
            f"for a dimension with length {length}"
        )
    return np.where(wide < 0, wide + length, wide)
