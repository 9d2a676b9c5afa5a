"""Promotion, against the standard's table and NumPy's."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from gpuwire.errors import DTypeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import ALL_DTYPES, DType, Kind, promote

PAIRS = list(itertools.product(ALL_DTYPES, repeat=2))

# Array API 2023.12, "Type Promotion Rules", tables of mixed integer types.
MIXED_SIGNS = {
    ("uint8", "int8"): "int16",
    ("uint8", "int16"): "int16",
    ("uint8", "int32"): "int32",
    ("uint8", "int64"): "int64",
    ("uint16", "int8"): "int32",
    ("uint16", "int16"): "int32",
    ("uint16", "int32"): "int32",
    ("uint16", "int64"): "int64",
    ("uint32", "int8"): "int64",
    ("uint32", "int16"): "int64",
    ("uint32", "int32"): "int64",
    ("uint32", "int64"): "int64",
}


def expected(left: DType, right: DType) -> str | None:
    """The standard's answer, and ours where it leaves the pair open; None for a refusal."""
    kinds = {left.kind, right.kind}
    if kinds == {Kind.SIGNED, Kind.UNSIGNED}:
        unsigned, signed = (left, right) if left.kind is Kind.UNSIGNED else (right, left)
        return MIXED_SIGNS.get((unsigned.name, signed.name))
    floating = [dtype for dtype in (left, right) if dtype.is_floating]
    if len(floating) == 1:
        return floating[0].name
    return np.promote_types(left.numpy, right.numpy).name


@pytest.mark.parametrize(("left", "right"), PAIRS, ids=str)
def test_promotion_is_the_standard_s(left: DType, right: DType) -> None:
    wanted = expected(left, right)
    if wanted is None:
        with pytest.raises(DTypeError, match=f"{left} and {right}.*astype"):
            promote(left, right)
    else:
        assert promote(left, right).name == wanted
        assert promote(right, left) is promote(left, right)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_a_data_type_is_one_object_and_lies_in_memory_as_numpy_s(dtype: DType) -> None:
    assert dt.dtype_by_code(dtype.code) is dtype
    assert dt.dtype_by_name(dtype.name) is dtype
    assert dt.dtype_of_numpy(dtype.numpy) is dtype
    assert dt.dtype_of_numpy(dtype.numpy.newbyteorder(">")) is dtype
    assert dtype.numpy.itemsize == dtype.itemsize
    assert pickle.loads(pickle.dumps(dtype)) is dtype


@pytest.mark.parametrize("spelling", ["S3", "U3", "O", "M8[s]", "m8[s]", "V4", "g", "i4,f4"])
def test_numpy_types_without_a_counterpart_are_refused(spelling: str) -> None:
    with pytest.raises(DTypeError, match="no counterpart"):
        dt.dtype_of_numpy(np.dtype(spelling))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DTypeError, match=r"'float8'.*float16"):
        dt.dtype_by_name("float8")


@pytest.mark.parametrize("dtype", [d for d in ALL_DTYPES if d.is_integer], ids=str)
def test_integer_limits(dtype: DType) -> None:
    limits = np.iinfo(dtype.name)
    assert dt.integer_limits(dtype) == (limits.min, limits.max)


def test_real_and_complex_counterparts() -> None:
    assert dt.complex_of(dt.float16) is dt.complex64
    assert dt.complex_of(dt.float64) is dt.complex128
    assert dt.real_of(dt.complex64) is dt.float32
    assert dt.real_of(dt.int8) is dt.int8
