"""An array as text: NumPy's form, reading no more than is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuwire.array.interop import read
from gpuwire.array.recording import part
from gpuwire.client.aio import AsyncDevice
from gpuwire.errors import GpuwireError, NotSupported, TracingError
from gpuwire.ir.attributes import AxisAttributes
from gpuwire.ir.operations import OPERATIONS

if TYPE_CHECKING:
    from gpuwire.array.array_object import Array

_CONCAT = OPERATIONS["concat"]


_NEW_LINE = "\n" + " " * len("Array(")


def array_repr(x: Array) -> str:
    """`Array([...], dtype=float32)`; for values that cannot be had, the shape and the reason."""
    try:
        values = _shown(x)
    except TracingError:
        return _traced(x)
    except GpuwireError as error:
        return _without_values(x, error)
    body = np.array2string(
        values, separator=", ", prefix="Array(", suffix=",", threshold=_threshold(x)
    )
    facts = f"dtype={x.dtype})"
    if _is_summarised(x) or (x.size == 0 and x.shape != (0,)):
        facts = f"shape={x.shape}, {facts}"
    last_line = f"Array({body}".rpartition("\n")[2]
    fits = len(last_line) + len(facts) + 2 <= np.get_printoptions()["linewidth"]
    return f"Array({body},{' ' if fits else _NEW_LINE}{facts}"


def array_str(x: Array) -> str:
    """The values as `print` of a NumPy array shows them."""
    try:
        values = _shown(x)
    except TracingError:
        return _traced(x)
    except GpuwireError as error:
        return _without_values(x, error)
    return np.array2string(values, threshold=_threshold(x)) if x.shape else str(values[()])


def _is_summarised(x: Array) -> bool:
    return x.size > int(np.get_printoptions()["threshold"])


def _threshold(x: Array) -> int:
    """The option for the part that is shown: its dots stand for what was not read."""
    return 0 if _is_summarised(x) else int(np.get_printoptions()["threshold"])


def _shown(x: Array) -> np.ndarray[Any, Any]:
    if isinstance(x._device, AsyncDevice):
        raise NotSupported("`await x.to_numpy()` gives the values")
    return read(_edges(x, int(np.get_printoptions()["edgeitems"])) if _is_summarised(x) else x)


def _without_values(x: Array, error: GpuwireError) -> str:
    return f"Array(shape={x.shape}, dtype={x.dtype}; {type(error).__name__}: {error})"


def _traced(x: Array) -> str:
    return f"Array(shape={x.shape}, dtype={x.dtype}, without values while its function is traced)"


def _edges(x: Array, edge: int) -> Array:
    """Of each long dimension the first elements, one more that the text elides, and the last."""
    for axis, length in enumerate(x.shape):
        if length > 2 * edge + 1:
            first, last = part(x, axis, 0, edge + 1), part(x, axis, length - edge, length)
            operands: tuple[Any, ...] = (first._tensor, last._tensor)
            x = x._sibling(x._device.record(_CONCAT, operands, AxisAttributes(axis)))
    return x
