"""Writing `x[key] = value`.

Slices are written by one operation, and a mask of leading dimensions with a value that fits every
place by one `where`. Through index arrays, and through a mask with a value for each place, the
places are worked out on this machine: index arrays of the device are read first, which waits. Of
a place that is named twice the last value stays, as in NumPy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuwire.array import interop
from gpuwire.array.conversion import from_host
from gpuwire.array.devices import Operand
from gpuwire.array.indexing import Gather, select, value_shape
from gpuwire.array.recording import broadcasted, cast, check_inside, own, reshaped, unary
from gpuwire.array.scalars import python_number, typed_scalar
from gpuwire.array.selection import Key, from_start_on_host, is_index_array, parse
from gpuwire.errors import IndexingError, ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, AxisAttributes, SliceAttributes
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar, Shape, broadcast_shapes

if TYPE_CHECKING:
    from gpuwire.array.array_object import Array

_SLICE = OPERATIONS["slice"]
_SLICE_ASSIGN = OPERATIONS["slice_assign"]
_TAKE = OPERATIONS["take"]
_WHERE = OPERATIONS["where"]


def written(x: Array, key: Any, value: Any) -> Array:
    """`x` as `x[key] = value` leaves it; see `Array.__setitem__`."""
    items = key if isinstance(key, tuple) else (key,)
    check_inside("x[key] = value", x, value, *items)
    new = _value(x, value)
    if any(is_index_array(x, item) for item in items):
        mask = _leading_mask(x, items)
        if mask is not None and _fits_every_place(new, x.shape[mask.ndim :]):
            return _written_by_mask(x, mask, new)
        return _written_by_places(x, parse(x, key), new)
    selection = select(items, x.shape)
    if not isinstance(new, Scalar):
        wanted = value_shape(selection, new.shape)
        new = reshaped(new, wanted) if new.shape else new
    return _sliced(x, new, selection.slices)


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


def _sliced(x: Array, new: Array | Scalar, slices: SliceAttributes) -> Array:
    # The operation itself converts to x's type.
    inputs = (x._tensor, new if isinstance(new, Scalar) else new._tensor)
    return x._sibling(x._device.record(_SLICE_ASSIGN, inputs, slices))


# --- Masks -----------------------------------------------------------------------------------


def _leading_mask(x: Array, items: tuple[Any, ...]) -> Array | None:
    """The mask that is all of a key; None if the key is something else."""
    if len(items) > 1:
        return None
    (key,) = items
    if key.__class__ is not x.__class__:
        host = np.asarray(key)
        if host.dtype != np.bool_:
            return None
        key = x._sibling(from_host(host, None, x._device))
    if key.dtype is not dt.bool_:
        return None
    mask: Array = key
    if mask.shape != x.shape[: mask.ndim]:
        raise IndexingError(f"a mask of shape {mask.shape} does not fit an array of {x.shape}")
    return mask


def _fits_every_place(new: Array | Scalar, rest: Shape) -> bool:
    """Whether a value has no dimension along the places that a mask takes."""
    if isinstance(new, Scalar) or not new.shape:
        return True
    return len(new.shape) <= len(rest) and broadcast_shapes(new.shape, rest) == rest


def _written_by_mask(x: Array, mask: Array, new: Array | Scalar) -> Array:
    wide = reshaped(mask, (*mask.shape, *(1 for _ in x.shape[mask.ndim :])))
    return _chosen(wide, new, x)


def _chosen(mask: Array, new: Array | Scalar, x: Array) -> Array:
    """`new` where the mask is true, `x` elsewhere, in `x`'s type."""
    operand: Operand = new if isinstance(new, Scalar) else cast(new, x.dtype)._tensor
    inputs = (mask._tensor, operand, x._tensor)
    return x._sibling(x._device.record(_WHERE, inputs, NO_ATTRIBUTES))


# --- Index arrays ----------------------------------------------------------------------------


def _written_by_places(x: Array, key: Key, new: Array | Scalar) -> Array:
    selection = select(key.items, x.shape, key.shape)
    gather = selection.gather
    assert gather is not None
    places = _places(key, gather)
    lengths = selection.slices.lengths
    head, tail = lengths[: gather.first], lengths[gather.last :]
    merged = math.prod(lengths[gather.first : gather.last])
    if not isinstance(new, Scalar):
        if _broadcast_or_none(new.shape, selection.shape) != selection.shape:
            raise IndexingError(
                f"a value of shape {new.shape} does not broadcast to the selection's "
                f"{selection.shape}"
            )
        new = reshaped(broadcasted(new, selection.shape), (*head, places.size, *tail))
    if not math.prod(selection.shape):
        return x._sibling(x._tensor)
    mask, source = np.zeros(merged, np.bool_), np.zeros(merged, np.int32)
    mask[places], source[places] = True, np.arange(places.size)
    if not isinstance(new, Scalar):
        indices = from_host(source, dt.int32, x._device)
        attributes = AxisAttributes(gather.first)
        new = x._sibling(x._device.record(_TAKE, (new._tensor, indices), attributes))
    part = x if selection.whole else unary(_SLICE, x, selection.slices)
    wide = reshaped(x._sibling(from_host(mask, None, x._device)), (merged, *(1 for _ in tail)))
    replaced = reshaped(_chosen(wide, new, reshaped(part, (*head, merged, *tail))), lengths)
    return own(replaced, x) if selection.whole else _sliced(x, replaced, selection.slices)


def _places(key: Key, gather: Gather) -> np.ndarray[Any, Any]:
    """The places in the merged dimensions that a key names, in order."""
    total: np.ndarray[Any, Any] = np.zeros(gather.shape, np.int64)
    for index, length, stride in zip(key.indices, gather.lengths, gather.strides, strict=True):
        host = index if isinstance(index, np.ndarray) else interop.read(index)
        total = total + from_start_on_host(host, length) * stride
    return total.reshape(-1)


def _broadcast_or_none(shape: Shape, other: Shape) -> Shape | None:
    try:
        return broadcast_shapes(shape, other)
    except ShapeError:
        return None
