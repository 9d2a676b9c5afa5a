"""concat, slice_assign, take, full and arange against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    AxisAttributes,
    LengthAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import DType
from gpuwire.ir.tensors import Scalar
from lowered import Machine

_DTYPES = (dt.bool_, dt.int8, dt.float16, dt.float32, dt.int64, dt.complex64)


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_concat(machine: Machine, dtype: DType) -> None:
    values = (np.arange(60) % 2 if dtype is dt.bool_ else np.arange(60)).astype(dtype.numpy)
    cube = values.reshape(3, 4, 5)
    for axis in range(3):
        parts = [cube, cube[::-1], cube[:, ::-1]]
        got = machine.run("concat", *parts, attributes=AxisAttributes(axis))
        np.testing.assert_array_equal(got, np.concatenate(parts, axis))
    parts = [values[:3], values[:0], values[5:10], values[:1]]
    got = machine.run("concat", *parts, attributes=AxisAttributes(0))
    np.testing.assert_array_equal(got, np.concatenate(parts))


def test_concat_of_more_parts_than_a_kernel_binds(machine: Machine) -> None:
    parts = [np.full((2, 1 + i % 3), i, np.int16) for i in range(40)]
    got = machine.run("concat", *parts, attributes=AxisAttributes(1))
    np.testing.assert_array_equal(got, np.concatenate(parts, 1))


def test_concat_of_one_and_of_mixed_types(machine: Machine) -> None:
    one = np.arange(3, dtype=np.int8)
    np.testing.assert_array_equal(machine.run("concat", one, attributes=AxisAttributes(0)), one)
    got = machine.run("concat", one, np.array([0.5], np.float32), attributes=AxisAttributes(0))
    np.testing.assert_array_equal(got, np.array([0, 1, 2, 0.5], np.float32))


@pytest.mark.parametrize("dtype", (dt.int8, dt.float16, dt.float32, dt.float64), ids=str)
def test_slice_assign(machine: Machine, dtype: DType) -> None:
    old = np.arange(7 * 9).reshape(7, 9).astype(dtype.numpy)
    for target, attributes in (
        (np.s_[2:5, 1:8], SliceAttributes((2, 1), (1, 1), (3, 7))),
        (np.s_[6:0:-2, ::3], SliceAttributes((6, 0), (-2, 3), (3, 3))),
        (np.s_[3:4, :], SliceAttributes((3, 0), (1, 1), (1, 9))),
        (np.s_[2:2, :], SliceAttributes((2, 0), (1, 1), (0, 9))),
    ):
        shape = old[target].shape
        for value in (
            np.arange(100, 100 + shape[0] * shape[1]).reshape(shape).astype(np.int8),
            np.arange(shape[1], dtype=np.float32),
            np.array(5, dtype.numpy),
        ):
            want = old.copy()
            want[target] = value.astype(dtype.numpy)
            got = machine.run("slice_assign", old, value, attributes=attributes)
            np.testing.assert_array_equal(got, want)
    got = machine.run(
        "slice_assign", old.T, Scalar(1, dtype), attributes=SliceAttributes((8, 0), (-8, 6), (2, 2))
    )
    want = old.T.copy()
    want[::8, ::6] = 1
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("index", (np.int8, np.uint16, np.int32, np.int64))
def test_take(machine: Machine, index: type) -> None:
    values = np.arange(5 * 6 * 3, dtype=np.int16).reshape(5, 6, 3)
    places = [0, 2, 2, 4] if index is np.uint16 else [0, -1, 2, -5, 4]
    indices = np.array(places, index)
    for axis in range(2):
        got = machine.run("take", values, indices, attributes=AxisAttributes(axis))
        np.testing.assert_array_equal(got, np.take(values, places, axis))
    got = machine.run("take", values[::-1], indices[::-1], attributes=AxisAttributes(0))
    np.testing.assert_array_equal(got, np.take(values[::-1], places[::-1], 0))


def test_take_out_of_range_is_clamped(machine: Machine) -> None:
    values = np.arange(4, dtype=np.float32)
    indices = np.array([7, -9, 3], np.int32)
    got = machine.run("take", values, indices, attributes=AxisAttributes(0))
    np.testing.assert_array_equal(got, [3, 0, 3])


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_full(machine: Machine, dtype: DType) -> None:
    number = 1 if dtype is dt.bool_ else 7
    got = machine.run("full", Scalar(number, dtype), attributes=ShapeAttributes((3, 5)))
    np.testing.assert_array_equal(got, np.full((3, 5), number, dtype.numpy))
    value = np.array(number, dtype.numpy)
    got = machine.run("full", value, attributes=ShapeAttributes((2, 0, 5)))
    assert got.shape == (2, 0, 5)
    got = machine.run("full", value, attributes=ShapeAttributes((7,)))
    np.testing.assert_array_equal(got, np.full(7, number, dtype.numpy))


def test_arange_as_numpy_rounds_it(machine: Machine) -> None:
    for dtype, start, step, length in (
        (dt.int8, -5, 3, 11),
        (dt.uint16, 7, 1000, 9),
        (dt.int32, 10, -7, 1001),
        (dt.float16, 0.1, 0.3, 50),
        (dt.float32, 0.0, 0.1, 500),
        (dt.int64, 2**40, -(2**33), 5),
        (dt.float64, -1.0, 1 / 3, 50),
        (dt.float32, 3.0, 1.0, 0),
    ):
        if dtype not in machine.lowering.dtypes:
            continue
        got = machine.run(
            "arange", Scalar(start, dtype), Scalar(step, dtype), attributes=LengthAttributes(length)
        )
        numbers = np.arange(length)
        if dtype.is_integer:
            want = (start + numbers * step).astype(dtype.numpy)
        else:
            want = np.arange(start, start + step * (length - 0.5), step, dtype.numpy)
        np.testing.assert_allclose(
            got, want, rtol=np.finfo(dtype.numpy).eps if dtype.is_floating else 0
        )
        assert got.dtype == dtype.numpy
