"""From the key of `x[key]` to slices: pure, without a device.

Every key becomes one slice over all dimensions (`SliceAttributes`), then at most one gather over
neighbouring dimensions, then a reshape that drops the dimensions an integer took and adds those
a None asked for. Meaning as in NumPy; what would need a different order of the result's
dimensions is refused rather than answered differently.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from types import EllipsisType
from typing import SupportsIndex

from gpuwire.errors import IndexingError, NotSupported
from gpuwire.ir.attributes import SliceAttributes
from gpuwire.ir.tensors import Shape


@dataclass(frozen=True, slots=True)
class IndexArray:
    """An integer array's place in a key. `mask_length` is the length of the mask's dimension that
    the array stands for; it must be the array's own."""

    mask_length: int | None = None


Item = SupportsIndex | slice | EllipsisType | IndexArray | None


@dataclass(frozen=True, slots=True)
class Gather:
    """Dimensions `first` to `last` (exclusive) of the sliced array, read as one, are indexed by
    the sum of array `n` times `strides[n]`, in elements; `lengths[n]` bounds array `n`."""

    first: int
    last: int
    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    shape: Shape


@dataclass(frozen=True, slots=True)
class Selection:
    """What a key selects. `layout` names for each dimension of the result the dimension of the
    array it comes from, None for a new one; with a gather it is not meaningful."""

    slices: SliceAttributes
    whole: bool
    """The slices take everything, in order."""
    gather: Gather | None
    layout: tuple[int | None, ...]
    shape: Shape


def select(items: tuple[Item, ...], shape: Shape, index_shape: Shape = ()) -> Selection:
    """The selection that a key makes in an array of `shape`; `index_shape` is what the key's index
    arrays broadcast to.

    Raises `IndexingError` for an index out of bounds, too many indices or a wrong kind of index,
    `NotSupported` for index arrays that are not next to each other.
    """
    expanded = _expand(items, len(shape))
    starts: list[int] = []
    steps: list[int] = []
    lengths: list[int] = []
    layout: list[int | None] = []
    result: list[int] = []
    arrays: list[int] = []
    for item in expanded:
        dimension = len(starts)
        if item is None:
            layout.append(None)
            result.append(1)
            continue
        length = shape[dimension]
        if isinstance(item, IndexArray):
            if item.mask_length not in (None, length):
                raise IndexingError(
                    f"a mask of length {item.mask_length} along dimension {dimension}, which has "
                    f"length {length}"
                )
            if not arrays:
                result.extend(index_shape)
            arrays.append(dimension)
            part = (0, 1, length)
        elif isinstance(item, slice):
            part = _slice(item, length)
            layout.append(dimension)
            result.append(part[2])
        else:
            part = (_integer(item, length, dimension), 1, 1)
        starts.append(part[0])
        steps.append(part[1])
        lengths.append(part[2])
    slices = SliceAttributes(tuple(starts), tuple(steps), tuple(lengths))
    return Selection(
        slices,
        slices.lengths == shape and steps.count(1) == len(steps),
        _gather(items, arrays, slices.lengths, index_shape) if arrays else None,
        tuple(layout),
        tuple(result),
    )


def value_shape(selection: Selection, shape: Shape) -> Shape:
    """The shape a value of `shape` needs, with as many dimensions as the slices have, to be
    assigned to a selection without a gather. Raises `IndexingError` if it does not broadcast."""
    extra = len(shape) - len(selection.shape)
    fits = all(length == 1 for length in shape[: max(extra, 0)])
    padded = shape[extra:] if extra > 0 else (1,) * -extra + shape
    fits = fits and all(a in (1, b) for a, b in zip(padded, selection.shape, strict=True))
    if not fits:
        raise IndexingError(
            f"a value of shape {shape} does not broadcast to the selection's {selection.shape}"
        )
    lengths = [1] * len(selection.slices.lengths)
    for dimension, length in zip(selection.layout, padded, strict=True):
        if dimension is not None:
            lengths[dimension] = length
    return tuple(lengths)


def _expand(items: tuple[Item, ...], rank: int) -> list[Item]:
    """The key with its Ellipsis written out and every dimension named."""
    named, ellipses = 0, 0
    for item in items:
        if item is Ellipsis:
            ellipses += 1
        elif item is not None:
            named += 1
    if ellipses > 1:
        raise IndexingError("an index may have only one Ellipsis ('...')")
    if named > rank:
        raise IndexingError(f"{named} indices for an array of {rank} dimensions")
    fill: list[Item] = [slice(None)] * (rank - named)
    if not ellipses:
        return [*items, *fill]
    place = next(i for i, item in enumerate(items) if item is Ellipsis)
    return [*items[:place], *fill, *items[place + 1 :]]


def _slice(item: slice, length: int) -> tuple[int, int, int]:
    """Start, step, count. One form for each selection, so that equal work is an equal graph."""
    try:
        start, stop, step = item.indices(length)
    except TypeError:
        raise IndexingError(f"slice bounds must be integers or None, not {item}") from None
    except ValueError:
        raise IndexingError("a slice's step cannot be 0") from None
    count = len(range(start, stop, step))
    if count == 0:
        return 0, 1, 0
    return (start, step, count) if count > 1 else (start, 1, 1)


def _integer(item: SupportsIndex | EllipsisType, length: int, dimension: int) -> int:
    if isinstance(item, bool):
        raise NotSupported("True and False are no indices here; index with an array of booleans")
    try:
        index = operator.index(item)  # type: ignore[arg-type]
    except TypeError:
        raise IndexingError(
            f"an index is an integer, a slice, '...', None, or an array of integers or booleans, "
            f"not {type(item).__name__}"
        ) from None
    if not -length <= index < length:
        raise IndexingError(
            f"index {index} is out of bounds for dimension {dimension} with length {length}"
        )
    return index + length if index < 0 else index


def _gather(
    items: tuple[Item, ...], arrays: list[int], lengths: Shape, index_shape: Shape
) -> Gather:
    advanced = [
        place
        for place, item in enumerate(items)
        if not (item is None or item is Ellipsis or isinstance(item, slice))
    ]
    if advanced != list(range(advanced[0], advanced[-1] + 1)):
        raise NotSupported(
            "integers and index arrays that a slice, '...' or None separates are not supported; "
            "bring the dimensions together with permute_dims first, or index in two steps"
        )
    first, last = arrays[0], arrays[-1] + 1
    strides: dict[int, int] = {}
    stride = 1
    for dimension in reversed(range(first, last)):
        strides[dimension] = stride
        stride *= lengths[dimension]
    return Gather(
        first,
        last,
        tuple(lengths[dimension] for dimension in arrays),
        tuple(strides[dimension] for dimension in arrays),
        index_shape,
    )
