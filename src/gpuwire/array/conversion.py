"""From Python and NumPy values to a device: any strides, any byte order, nested lists.

Everything is checked and converted here, before a byte is sent.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from gpuwire.array.data_types import DTypeLike, resolve
from gpuwire.array.devices import ArrayDevice, ArrayTensor
from gpuwire.array.scalar_expressions import expression_of
from gpuwire.array.scalars import default_dtype, python_number, typed_scalar
from gpuwire.errors import DTypeError, ScalarOutOfRange
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import ShapeAttributes
from gpuwire.ir.dtypes import DType, Kind, dtype_of_numpy
from gpuwire.ir.operations import OPERATIONS

_FULL = OPERATIONS["full"]


def from_host(value: Any, dtype: DTypeLike | None, device: ArrayDevice) -> ArrayTensor:
    """`value` on the device: a NumPy array, a number, nested sequences, or an object that NumPy can
    read (`__array__`, `__dlpack__` of host memory, the buffer protocol).

    Without `dtype`, NumPy's arrays and scalars keep theirs; Python numbers get the defaults.
    Raises `DTypeError` for elements that are no numbers, `UnsupportedDType` for a type that the
    device lacks, `ScalarOutOfRange` for Python integers outside the type.
    """
    if expression_of(value) is not None:
        kind = resolve(dtype, device) if dtype is not None else default_dtype(value, device)
        return device.record(_FULL, (typed_scalar(value, kind),), ShapeAttributes(()))
    array = _as_numpy(value)
    wanted = resolve(dtype, device) if dtype is not None else _natural(value, array, device)
    device.require(wanted, "asarray")
    return device.upload(_converted(value, array, wanted))


def _as_numpy(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.VisibleDeprecationWarning)
            array = np.asarray(value)
    except (ValueError, TypeError, np.exceptions.VisibleDeprecationWarning) as error:
        raise DTypeError(f"asarray cannot read this {type(value).__name__}: {error}") from error
    if array.dtype == np.object_ and _holds_integers(array):
        raise ScalarOutOfRange(
            "the value has integers of more than 64 bits, which no data type holds"
        )
    return array


def _holds_integers(array: np.ndarray[Any, Any]) -> bool:
    return array.size > 0 and all(isinstance(element, int) for element in array.flat)


def _natural(value: Any, array: np.ndarray[Any, Any], device: ArrayDevice) -> DType:
    """The type of a value for which none was asked."""
    found = dtype_of_numpy(array.dtype)
    if not _is_python(value):
        return found
    if found.is_integer:
        return device.default_int
    if found is dt.float64:
        return device.default_float
    return dt.complex_of(device.default_float) if found is dt.complex128 else found


def _is_python(value: Any) -> bool:
    """Whether the elements are Python's own: NumPy arrays and small scalar types inside a list
    bring their data type along."""
    while isinstance(value, list | tuple) and len(value):
        value = value[0]
    if isinstance(value, np.generic):
        # float64, complex128: NumPy's scalars of these types are Python's, to Python.
        return isinstance(value, float | complex)
    return isinstance(value, list | tuple | range) or python_number(value) is not None


def _converted(value: Any, array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Contiguous, little-endian, of `dtype`; `value` itself where it is that already, because the
    upload takes its own copy."""
    found = dtype_of_numpy(array.dtype)
    if found.kind is Kind.COMPLEX and dtype.kind is not Kind.COMPLEX:
        raise DTypeError(f"{found} to {dtype} would drop the imaginary part; send value.real")
    if dtype.is_integer and array.size and not isinstance(value, np.ndarray | np.generic):
        _check_range(array, dtype)
    # Values of other types are converted as NumPy's astype does, with its silence on overflow.
    with np.errstate(invalid="ignore", over="ignore"):
        return np.array(array, dtype=dtype.numpy.newbyteorder("<"), order="C", copy=None)


def _check_range(array: np.ndarray[Any, Any], dtype: DType) -> None:
    least, greatest = dt.integer_limits(dtype)
    low, high = array.min(), array.max()
    if not (least <= low and high <= greatest):
        raise ScalarOutOfRange(
            f"values from {low} to {high} do not fit {dtype}, which holds {least} to {greatest}; "
            "pass a wider dtype",
            dtype=dtype.name,
        )
