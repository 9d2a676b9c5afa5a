"""The ways to name a data type."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuwire.array.devices import ArrayDevice
from gpuwire.errors import DTypeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, dtype_by_name, dtype_of_numpy

DTypeLike = DType | str | type | np.dtype[Any]
"""A gpuwire data type, its name, a NumPy data type, or bool, int, float, complex (the defaults)."""


def resolve(dtype: DTypeLike, device: ArrayDevice) -> DType:
    """The data type that `dtype` names on `device`; `DTypeError` if it names none."""
    if isinstance(dtype, DType):
        return dtype
    if dtype is bool:
        return dt.bool_
    if dtype is int:
        return device.default_int
    if dtype is float:
        return device.default_float
    if dtype is complex:
        return dt.complex_of(device.default_float)
    if isinstance(dtype, str):
        return dtype_by_name(dtype)
    try:
        return dtype_of_numpy(np.dtype(dtype))
    except TypeError as error:
        raise DTypeError(f"{dtype!r} is no data type: {error}") from None
