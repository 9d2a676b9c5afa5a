"""Python numbers as operands: they take the array's data type and never widen it.

Array API standard, "Type Promotion Rules", mixing arrays with Python scalars; beyond it, an
integer or boolean array with a float gives the default float, and a boolean array with an int
the default integer, as a NumPy user expects. NumPy's scalars count as Python's: a number that
happens to come from the host, `1 / np.sqrt(d)` say, is no reason to compute in float64.
"""

from __future__ import annotations

import numpy as np

from gpuwire.array.devices import ArrayDevice
from gpuwire.array.scalar_expressions import ScalarExpression, expression_of, number_class
from gpuwire.errors import DTypeError, ScalarOutOfRange
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind, PythonScalar
from gpuwire.ir.tensors import Scalar

_BOOL, _FLOAT, _COMPLEX = Kind.BOOL, Kind.FLOAT, Kind.COMPLEX

# A tuple: isinstance() with a union of types costs several times as much.
_PYTHON = (bool, int, float, complex, ScalarExpression)

_RANGES = {dtype: dt.integer_limits(dtype) for dtype in dt.ALL_DTYPES if dtype.is_integer}


def scalar_operand(value: object, dtype: DType, device: ArrayDevice) -> Scalar | None:
    """`value` as the partner of an array of `dtype`; None if it is no number.

    `ScalarOutOfRange` if an integer type cannot hold it.
    """
    if value.__class__ is float and dtype.kind is _FLOAT:
        return Scalar(value, dtype)
    number = python_number(value)
    if number is None:
        return None
    wanted = weak_dtype(number, dtype, device)
    return typed_scalar(number, wanted)


def python_number(value: object) -> PythonScalar | None:
    """The Python number that `value` is or wraps; None if it is none. What stands for a number in
    a compiled function counts as one: where it is told apart, `number_class` asks for its kind."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, _PYTHON) else None  # type: ignore[return-value]


def weak_dtype(value: PythonScalar, dtype: DType, device: ArrayDevice) -> DType:
    """The type in which a Python number meets an array of `dtype`."""
    kind = dtype.kind
    number = number_class(value)
    if issubclass(number, complex):
        return dt.complex_of(dtype if dtype.is_floating else device.default_float)
    if issubclass(number, float):
        return dtype if kind is _FLOAT or kind is _COMPLEX else device.default_float
    if kind is _BOOL and number is not bool:
        return device.default_int
    return dtype


def default_dtype(value: PythonScalar, device: ArrayDevice) -> DType:
    """The type that a Python number has by itself."""
    number = number_class(value)
    if number is bool:
        return dt.bool_
    if issubclass(number, int):
        return device.default_int
    if issubclass(number, float):
        return device.default_float
    return dt.complex_of(device.default_float)


def typed_scalar(value: PythonScalar, dtype: DType) -> Scalar:
    """`value` converted to `dtype`'s Python class; `ScalarOutOfRange` if it does not fit. What
    stands for a number is kept, to be converted when there is one."""
    expression = expression_of(value)
    if expression is not None:
        if expression.kind is complex and dtype.kind is not _COMPLEX:
            raise DTypeError(f"{value} is complex and {dtype} is not")
        return Scalar(value, dtype)
    if isinstance(value, complex) and dtype.kind is not _COMPLEX:
        raise DTypeError(f"{value} is complex and {dtype} is not")
    bounds = _RANGES.get(dtype)
    if bounds is not None:
        if isinstance(value, float) and not value.is_integer():
            value = _truncated(value, dtype)
        number = int(value.real)
        if not bounds[0] <= number <= bounds[1]:
            raise ScalarOutOfRange(
                f"{value} is outside {dtype}, which holds {bounds[0]} to {bounds[1]}; "
                "use a wider data type",
                dtype=dtype.name,
            )
        return Scalar(number, dtype)
    if dtype.kind is _BOOL:
        return Scalar(bool(value), dtype)
    try:
        return Scalar(complex(value) if dtype.kind is _COMPLEX else float(value.real), dtype)
    except OverflowError:
        raise ScalarOutOfRange(
            f"an integer of {int(value.real).bit_length()} bits is outside {dtype}",
            dtype=dtype.name,
        ) from None


def _truncated(value: float, dtype: DType) -> float:
    if value != value or value in (float("inf"), float("-inf")):
        raise ScalarOutOfRange(f"{value} has no value in {dtype}", dtype=dtype.name)
    return float(int(value))
