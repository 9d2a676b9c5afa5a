"""An array as text: NumPy's form, reading no more than is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuwire.array.interop import read
from gpuwire.array.recording import part
from gpuwire.client.aio import AsyncDevice
from gpuwire.errors import GpuwireError
from gpuwire.ir.attributes import AxisAttributes
from gpuwire.ir.operations import OPERATIONS

if TYPE_CHECKING:
    from gpuwire.array.array_object import Array

_CONCAT = OPERATIONS["concat"]


def array_repr(x: Array) -> str:
    """`Array([...], dtype=float32)`; for values that cannot be had, the shape and the reason."""
    return _text(x, "Array(", f", dtype={x.dtype})")


def array_str(x: Array) -> str:
    """The values as `print` of a NumPy array shows them."""
    return _text(x, "", "")


def _text(x: Array, prefix: str, suffix: str) -> str:
    if isinstance(x._device, AsyncDevice):
        return _without_values(x, "`await x.to_numpy()` gives the values")
    options = np.get_printoptions()
    edge, threshold = int(options["edgeitems"]), int(options["threshold"])
    summarised = x.size > threshold
    try:
        values = read(_edges(x, edge) if summarised else x)
    except GpuwireError as error:
        return _without_values(x, f"no values: {type(error).__name__}: {error}")
    body = np.array2string(
        values, separator=", " if prefix else " ", prefix=prefix, suffix=suffix,
        threshold=edge if summarised else threshold,
    )  # fmt: skip
    if prefix and (summarised or (x.size == 0 and x.shape != (0,))):
        suffix = f", shape={x.shape}{suffix}"
    return f"{prefix}{body}{suffix}"


def _without_values(x: Array, reason: str) -> str:
    return f"Array(shape={x.shape}, dtype={x.dtype}; {reason})"


def _edges(x: Array, edge: int) -> Array:
    """Of each long dimension the first elements, one more that the text elides, and the last."""
    for axis, length in enumerate(x.shape):
        if length > 2 * edge + 1:
            first, last = part(x, axis, 0, edge + 1), part(x, axis, length - edge, length)
            operands: tuple[Any, ...] = (first._tensor, last._tensor)
            x = x._sibling(x._device.record(_CONCAT, operands, AxisAttributes(axis)))
    return x
