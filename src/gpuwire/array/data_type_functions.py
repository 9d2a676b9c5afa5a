"""Data types: conversion, promotion, limits (Array API standard, "Data type functions")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwire.array.array_object import Array
from gpuwire.array.connecting import place_of
from gpuwire.array.data_types import DTypeLike, resolve
from gpuwire.array.devices import ArrayDevice
from gpuwire.array.recording import cast, expect_arrays, own
from gpuwire.array.scalar_expressions import number_class
from gpuwire.array.scalars import python_number
from gpuwire.errors import ArgumentError, DTypeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind, PythonScalar, dtype_of_numpy, promote, promote_all


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """What a floating-point type holds; of a complex type, its parts."""

    bits: int
    eps: float
    """The distance from 1 to the next number."""
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class IntegerLimits:
    """What an integer type holds."""

    bits: int
    max: int
    min: int
    dtype: DType


def astype(
    x: Array, dtype: DTypeLike, /, *, copy: bool = True, device: ArrayDevice | None = None
) -> Array:
    """`x` with its elements converted to `dtype`, of the same shape.

    Floats to integers truncate toward zero; what the target cannot hold is unspecified, as in C.
    Complex to real raises `DTypeError`: take `real(x)`. With `copy=False`, `x` itself is returned
    where nothing has to be done.
    """
    expect_arrays("astype", x)
    place = place_of(device) if device is not None else x.device
    moved = x.to_device(place)
    result = cast(moved, resolve(dtype, place))
    return own(result, x) if copy else result


def can_cast(from_: DTypeLike | Array, to: DTypeLike, /) -> bool:
    """Whether promotion of the two types gives `to`, so that no conversion back is needed."""
    source, target = _dtype(from_), _dtype(to)
    try:
        return promote(source, target) is target
    except DTypeError:
        return False


def finfo(type: DTypeLike | Array, /) -> FloatLimits:
    """The limits of a floating-point type, or of an array's; `DTypeError` for other kinds."""
    dtype = _dtype(type)
    if not dtype.is_floating:
        raise DTypeError(f"finfo is for floating-point types, not {dtype}; use iinfo")
    limits = np.finfo(dtype.name)
    return FloatLimits(
        bits=int(limits.bits),
        eps=float(limits.eps),
        max=float(limits.max),
        min=float(limits.min),
        smallest_normal=float(limits.smallest_normal),
        dtype=dt.real_of(dtype),
    )


def iinfo(type: DTypeLike | Array, /) -> IntegerLimits:
    """The limits of an integer type, or of an array's; `DTypeError` for other kinds."""
    dtype = _dtype(type)
    if not dtype.is_integer:
        raise DTypeError(f"iinfo is for integer types, not {dtype}; use finfo")
    least, greatest = dt.integer_limits(dtype)
    return IntegerLimits(bits=8 * dtype.itemsize, max=greatest, min=least, dtype=dtype)


_KINDS = {
    "bool": (Kind.BOOL,),
    "signed integer": (Kind.SIGNED,),
    "unsigned integer": (Kind.UNSIGNED,),
    "integral": (Kind.SIGNED, Kind.UNSIGNED),
    "real floating": (Kind.FLOAT,),
    "complex floating": (Kind.COMPLEX,),
    "numeric": (Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT, Kind.COMPLEX),
}


def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> bool:
    """Whether `dtype` is of a kind, or is a type, or any of several: "bool", "signed integer",
    "unsigned integer", "integral", "real floating", "complex floating", "numeric"."""
    found = _dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, one) for one in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ArgumentError(f"there is no kind {kind!r}; there are {', '.join(_KINDS)}")
        return found.kind in _KINDS[kind]
    return found is _dtype(kind)


def result_type(*arrays_and_dtypes: Array | DTypeLike | PythonScalar) -> DType:
    """The type that an operation over all of these gives; Python numbers do not widen it.

    Raises `DTypeError` where there is none, and for Python numbers alone.
    """
    dtypes: list[DType] = []
    numbers: list[PythonScalar] = []
    for item in arrays_and_dtypes:
        number = None if isinstance(item, Array | DType) else python_number(item)
        if number is None:
            dtypes.append(_dtype(item))  # type: ignore[arg-type]
        else:
            numbers.append(number)
    if not dtypes:
        raise DTypeError("result_type wants at least one array or data type")
    result = promote_all(tuple(dtypes))
    devices = [item.device for item in arrays_and_dtypes if isinstance(item, Array)]
    for number in numbers:
        result = _with_number(result, number, devices[0] if devices else None)
    return result


def _with_number(dtype: DType, number: PythonScalar, device: ArrayDevice | None) -> DType:
    default_float = device.default_float if device is not None else dt.float32
    kind = number_class(number)
    if issubclass(kind, complex):
        return dt.complex_of(dtype if dtype.is_floating else default_float)
    if issubclass(kind, float):
        return dtype if dtype.is_floating else default_float
    if dtype is dt.bool_ and kind is not bool:
        return device.default_int if device is not None else dt.int64
    return dtype


def _dtype(item: DTypeLike | Array) -> DType:
    if isinstance(item, Array):
        return item.dtype
    if isinstance(item, DType):
        return item
    if isinstance(item, str):
        return dt.dtype_by_name(item)
    try:
        return dtype_of_numpy(np.dtype(item))
    except TypeError as error:
        raise DTypeError(f"{item!r} is no data type: {error}") from None
