"""Asking about data types, without a device."""

from __future__ import annotations

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.errors import ArgumentError, DTypeError
from gpuwire.ir.dtypes import ALL_DTYPES, DType

KINDS = {
    "bool": "bool",
    "signed integer": "int8 int16 int32 int64",
    "unsigned integer": "uint8 uint16 uint32 uint64",
    "integral": "int8 int16 int32 int64 uint8 uint16 uint32 uint64",
    "real floating": "float16 float32 float64",
    "complex floating": "complex64 complex128",
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str) -> None:
    assert {d.name for d in ALL_DTYPES if gw.isdtype(d, kind)} == set(KINDS[kind].split())


def test_isdtype_takes_types_and_tuples() -> None:
    assert gw.isdtype(gw.int8, gw.int8)
    assert not gw.isdtype(gw.int8, gw.uint8)
    assert gw.isdtype(gw.int8, ("bool", gw.int8))
    assert not gw.isdtype(gw.bool, "numeric")
    assert gw.isdtype(np.float32, "real floating")
    with pytest.raises(ArgumentError, match="no kind 'float'"):
        gw.isdtype(gw.int8, "float")


@pytest.mark.parametrize("dtype", [d for d in ALL_DTYPES if d.is_floating], ids=str)
def test_float_limits_are_numpy_s(dtype: DType) -> None:
    found, wanted = gw.finfo(dtype), np.finfo(dtype.name)
    assert (found.bits, found.eps, found.max, found.min, found.smallest_normal) == (
        wanted.bits,
        wanted.eps,
        wanted.max,
        wanted.min,
        wanted.smallest_normal,
    )
    assert type(found.eps) is float
    assert gw.isdtype(found.dtype, "real floating")


@pytest.mark.parametrize("dtype", [d for d in ALL_DTYPES if d.is_integer], ids=str)
def test_integer_limits_are_numpy_s(dtype: DType) -> None:
    found, wanted = gw.iinfo(dtype), np.iinfo(dtype.name)
    assert (found.bits, found.max, found.min) == (wanted.bits, wanted.max, wanted.min)


def test_limits_refuse_other_kinds() -> None:
    with pytest.raises(DTypeError, match="use iinfo"):
        gw.finfo(gw.int8)
    with pytest.raises(DTypeError, match="use finfo"):
        gw.iinfo(gw.float32)
    with pytest.raises(DTypeError, match="no data type"):
        gw.finfo("float31")


def test_result_type_promotes_types_and_not_by_python_numbers() -> None:
    assert gw.result_type(gw.int8, gw.uint8) is gw.int16
    assert gw.result_type(gw.int8, 1000) is gw.int8
    assert gw.result_type(gw.int8, 0.5) is gw.float32
    assert gw.result_type(gw.float16, 0.5) is gw.float16
    assert gw.result_type(gw.float64, 1j) is gw.complex128
    assert gw.result_type(gw.bool, True) is gw.bool
    with pytest.raises(DTypeError, match="uint64 and int8"):
        gw.result_type(gw.uint64, gw.int8)
    with pytest.raises(DTypeError, match="at least one"):
        gw.result_type(1, 2)


def test_can_cast_follows_promotion() -> None:
    assert gw.can_cast(gw.int8, gw.int16)
    assert gw.can_cast(gw.float32, gw.complex64)
    assert not gw.can_cast(gw.int16, gw.int8)
    assert not gw.can_cast(gw.uint64, gw.int64)
    assert not gw.can_cast(gw.float32, gw.int32)
