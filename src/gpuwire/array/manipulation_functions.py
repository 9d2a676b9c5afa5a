"""Other shapes of the same elements (Array API standard, "Manipulation functions").

Results share elements with their arguments until one of them is written; they are never views.
`ShapeError` for shapes and axes that do not fit. Nothing waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuwire.array import interop
from gpuwire.array.array_object import Array
from gpuwire.array.axes import Axes, Lengths, axes_in, axis_in, shape_of
from gpuwire.array.conversion import from_host
from gpuwire.array.recording import (
    broadcasted,
    expect_arrays,
    own,
    part,
    permuted,
    reshaped,
    same_device,
    unary,
)
from gpuwire.errors import ArgumentError, ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import AxisAttributes, SliceAttributes
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Shape
from gpuwire.ir.tensors import broadcast_shapes as broadcast_shapes

_CONCAT = OPERATIONS["concat"]
_SLICE = OPERATIONS["slice"]
_TAKE = OPERATIONS["take"]


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """All arrays repeated to the one shape they broadcast to."""
    if not arrays:
        return []
    expect_arrays("broadcast_arrays", *arrays)
    same_device("broadcast_arrays", arrays)
    shape = broadcast_shapes(*(array.shape for array in arrays))
    return [own(broadcasted(array, shape), array) for array in arrays]


def broadcast_to(x: Array, /, shape: Lengths) -> Array:
    """`x` repeated along new and length-1 dimensions to `shape`."""
    expect_arrays("broadcast_to", x)
    return own(broadcasted(x, shape_of(shape, "broadcast_to")), x)


def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """The arrays one after another along `axis`, all other dimensions equal; with None, all
    elements in one dimension. Types promote."""
    if not arrays:
        raise ArgumentError("concat wants at least one array")
    parts = tuple(arrays)
    expect_arrays("concat", *parts)
    if axis is None:
        parts = tuple(reshaped(part, (part.size,)) for part in parts)
        axis = 0
    place = axis_in(axis, parts[0].ndim, "concat")
    device = same_device("concat", parts)
    operands = tuple(part._tensor for part in parts)
    return Array(device.record(_CONCAT, operands, AxisAttributes(place)), device)


def expand_dims(x: Array, /, axis: Axes = 0) -> Array:
    """`x` with a dimension of length 1 at `axis` of the result, or at each of several."""
    expect_arrays("expand_dims", x)
    count = len(axis) if isinstance(axis, Sequence) else 1
    new = axes_in(axis, x.ndim + count, "expand_dims")
    lengths = iter(x.shape)
    shape = tuple(1 if i in new else next(lengths) for i in range(x.ndim + count))
    return own(reshaped(x, shape), x)


def flip(x: Array, /, *, axis: Axes | None = None) -> Array:
    """The elements in reverse order along `axis`, several axes, or all (None)."""
    expect_arrays("flip", x)
    flipped = range(x.ndim) if axis is None else axes_in(axis, x.ndim, "flip")
    backward = [i in flipped and length > 0 for i, length in enumerate(x.shape)]
    starts = tuple(n - 1 if back else 0 for n, back in zip(x.shape, backward, strict=True))
    steps = tuple(-1 if back else 1 for back in backward)
    return unary(_SLICE, x, SliceAttributes(starts, steps, x.shape))


def moveaxis(x: Array, source: Axes, destination: Axes, /) -> Array:
    """`x` with the dimensions `source` moved to the places `destination`, the others in order."""
    expect_arrays("moveaxis", x)
    sources = axes_in(source, x.ndim, "moveaxis")
    places = axes_in(destination, x.ndim, "moveaxis")
    if len(sources) != len(places):
        raise ShapeError(f"moveaxis: {len(sources)} dimensions to {len(places)} places")
    moved = dict(zip(places, sources, strict=True))
    others = iter(axis for axis in range(x.ndim) if axis not in sources)
    return permuted(x, tuple(moved[i] if i in moved else next(others) for i in range(x.ndim)))


def permute_dims(x: Array, /, axes: Sequence[int]) -> Array:
    """`x` with its dimensions in the order `axes`."""
    expect_arrays("permute_dims", x)
    return permuted(x, axes_in(axes, x.ndim, "permute_dims"))


def repeat(x: Array, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element of `x` repeated: along `axis`, or of all elements in one dimension (None).

    `repeats` is one count, or a list or array with a count for each element. An array on the
    device is read first, which waits: the result's shape depends on its values.
    """
    expect_arrays("repeat", x)
    if axis is None:
        x, axis = reshaped(x, (x.size,)), 0
    place = axis_in(axis, x.ndim, "repeat")
    counts = interop.read(repeats) if isinstance(repeats, Array) else np.asarray(repeats)
    if counts.dtype.kind not in "iu" or np.any(counts < 0) or counts.ndim > 1:
        raise ArgumentError("repeat: counts are integers from 0, one or one for each element")
    if counts.size == 1:
        return _repeat_evenly(x, int(counts.reshape(())), place)
    if counts.size != x.shape[place]:
        raise ShapeError(f"repeat: {counts.size} counts for {x.shape[place]} elements")
    places = np.repeat(np.arange(counts.size), counts)
    indices = from_host(places, dt.int32, x.device)
    return Array(x.device.record(_TAKE, (x._tensor, indices), AxisAttributes(place)), x.device)


def reshape(x: Array, /, shape: Lengths, *, copy: bool | None = None) -> Array:
    """The elements in row-major order as another shape; one length may be -1, what is left.

    `copy=False` is accepted: elements are shared until one is written.
    """
    expect_arrays("reshape", x)
    wanted = _filled(x, shape)
    return own(reshaped(x, wanted), x)


def roll(x: Array, /, shift: Axes, *, axis: Axes | None = None) -> Array:
    """The elements moved forward by `shift` places along `axis`, those beyond the end coming in at
    the start; several shifts along several axes; or along all elements in order (None)."""
    expect_arrays("roll", x)
    if axis is None:
        if isinstance(shift, Sequence):
            raise ArgumentError("roll: several shifts want several axes")
        return own(reshaped(_roll(reshaped(x, (x.size,)), int(shift), 0), x.shape), x)
    axes = axes_in(axis, x.ndim, "roll") if not isinstance(axis, Sequence) else axis
    shifts = shift if isinstance(shift, Sequence) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ArgumentError(f"roll: {len(shifts)} shifts along {len(axes)} axes")
    result = x
    for one, along in zip(shifts, axes, strict=True):
        result = _roll(result, int(one), axis_in(along, x.ndim, "roll"))
    return own(result, x)


def squeeze(x: Array, /, axis: Axes) -> Array:
    """`x` without the dimension `axis`, or several, which must have length 1."""
    expect_arrays("squeeze", x)
    dropped = axes_in(axis, x.ndim, "squeeze")
    for place in dropped:
        if x.shape[place] != 1:
            raise ShapeError(f"squeeze: dimension {place} has length {x.shape[place]}, not 1")
    shape = tuple(length for i, length in enumerate(x.shape) if i not in dropped)
    return own(reshaped(x, shape), x)


def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """Arrays of one shape along a new dimension at `axis` of the result. Types promote."""
    if not arrays:
        raise ArgumentError("stack wants at least one array")
    expect_arrays("stack", *arrays)
    if any(array.shape != arrays[0].shape for array in arrays):
        raise ShapeError(
            f"stack wants one shape, not {', '.join(str(array.shape) for array in arrays)}"
        )
    place = axis_in(axis, arrays[0].ndim + 1, "stack")
    return concat([expand_dims(array, axis=place) for array in arrays], axis=place)


def tile(x: Array, repetitions: Sequence[int], /) -> Array:
    """`x` laid side by side `repetitions[i]` times along each dimension i; the shorter of shape and
    repetitions is filled up with ones in front."""
    expect_arrays("tile", x)
    counts = shape_of(repetitions, "tile")
    rank = max(x.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - x.ndim) + x.shape
    spread = tuple(length for n, count in zip(shape, counts, strict=True) for length in (count, n))
    ones = tuple(length for n in shape for length in (1, n))
    wanted = tuple(n * count for n, count in zip(shape, counts, strict=True))
    return own(reshaped(broadcasted(reshaped(x, ones), spread), wanted), x)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The arrays along `axis`, each without it."""
    expect_arrays("unstack", x)
    if x.ndim == 0:
        raise ShapeError("unstack of a zero-dimensional array")
    place = axis_in(axis, x.ndim, "unstack")
    shape = (*x.shape[:place], *x.shape[place + 1 :])
    return tuple(
        reshaped(part(x, place, index, index + 1), shape) for index in range(x.shape[place])
    )


def _repeat_evenly(x: Array, count: int, axis: int) -> Array:
    head, length, tail = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    spread = broadcasted(reshaped(x, (*head, length, 1, *tail)), (*head, length, count, *tail))
    return reshaped(spread, (*head, length * count, *tail))


def _filled(x: Array, shape: Lengths) -> Shape:
    lengths = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    unknown = [i for i, length in enumerate(lengths) if length == -1]
    if not unknown:
        return shape_of(lengths, "reshape")
    known = shape_of([length for length in lengths if length != -1], "reshape")
    size = math.prod(known)
    if len(unknown) > 1 or size == 0 or x.size % size:
        raise ShapeError(
            f"reshape of shape {x.shape} ({x.size} elements) to {lengths}: no one length for -1",
            operation="reshape",
        )
    place = unknown[0]
    return (*known[:place], x.size // size, *known[place:])


def _roll(x: Array, shift: int, axis: int) -> Array:
    length = x.shape[axis]
    places = shift % length if length else 0
    if not places:
        return x
    head, tail = part(x, axis, length - places, length), part(x, axis, 0, length - places)
    return concat([head, tail], axis=axis)
