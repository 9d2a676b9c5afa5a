"""Scalars as parameter words, and the sizes that buffers are addressed in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import ALL_DTYPES, DType, Kind
from gpuwire.kernels.shader_types import QUAD, encode_scalar, shader_type

_INTEGERS = [dtype for dtype in ALL_DTYPES if dtype.is_integer]


@settings(derandomize=True, deadline=None)
@given(st.sampled_from(_INTEGERS), st.integers(-(2**64), 2**64))
def test_integers_wrap_to_their_width(dtype: DType, value: int) -> None:
    words = np.frombuffer(encode_scalar(value, dtype), np.uint32)
    assert len(words) == shader_type(dtype).parameter_words
    wrapped = value & ((1 << 8 * dtype.itemsize) - 1)
    want = np.array([wrapped], np.uint64).astype(dtype.numpy)
    wide = want.astype(np.int64 if dtype.kind is Kind.SIGNED else np.uint64)
    assert words.tobytes() == wide.tobytes()[: 4 * len(words)]


@settings(derandomize=True, deadline=None)
@given(st.floats(), st.floats())
def test_floats_round_to_their_type(real: float, imaginary: float) -> None:
    with np.errstate(over="ignore"):
        assert _same(encode_scalar(real, dt.float64), np.float64(real))
        assert _same(encode_scalar(real, dt.float32), np.float32(real))
        assert _same(encode_scalar(real, dt.float16), np.float32(np.float16(real)))
        pair = np.array([real, imaginary], np.float32)
        assert _same(encode_scalar(complex(real, imaginary), dt.complex64), pair)


def _same(data: bytes, want: np.ndarray | np.generic) -> bool:
    got = np.frombuffer(data, want.dtype)
    return bool(np.array_equal(got, np.atleast_1d(want), equal_nan=True))


def test_truth_is_one_word() -> None:
    assert encode_scalar(True, dt.bool_) == b"\1\0\0\0"
    assert encode_scalar(False, dt.bool_) == bytes(4)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_four_elements_fill_their_units(dtype: DType) -> None:
    types = shader_type(dtype)
    sizes = {"u32": 4, "f32": 4, "i32": 4, "f64": 8, "i64": 8, "u64": 8}
    count, _, name = types.quad_storage.rstrip(">").rpartition("<")
    lanes = int(count.removeprefix("vec")) if count else 1
    unit = lanes * sizes[name or types.quad_storage]
    assert unit * types.quad_units == QUAD * dtype.itemsize
    assert len(types.load_quad("b", "g", "q")[1]) == QUAD
    assert len(types.store_quad("b", "g", ["x"] * QUAD)) == types.quad_units
