"""Reductions against NumPy: every operation, axes of every kind, both kernel forms, two stages."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import ArgReduceAttributes, Attributes, ReduceAttributes
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import TensorType
from gpuwire.lowering.host_reference import evaluate
from lowered import Array, Machine

_NAMES = ("sum", "prod", "mean", "min", "max", "any", "all", "argmin", "argmax")


def _values(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    if dtype is dt.bool_:
        return random.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        limits = np.iinfo(dtype.name)
        return random.integers(max(limits.min, -9), 9, shape).astype(dtype.numpy)
    values = random.uniform(-2, 2, shape)
    if dtype.kind is Kind.COMPLEX:
        return (values + 1j * random.uniform(-2, 2, shape)).astype(dtype.numpy)
    return values.astype(dtype.numpy)


def _result_dtype(name: str, dtype: DType) -> DType | None:
    """The type such a reduction usually has; None if there is none."""
    if name in ("any", "all"):
        return dt.bool_
    if dtype.kind is Kind.COMPLEX:
        return dtype if name in ("sum", "prod", "mean") else None
    if name.startswith("arg"):
        return dt.int32
    if name == "mean":
        return dtype if dtype.kind is Kind.FLOAT else None
    if name in ("sum", "prod") and dtype is dt.bool_:
        return dt.int32
    return dtype


def _check(
    machine: Machine, name: str, values: Array, axes: tuple[int, ...], result: DType
) -> None:
    attributes: Attributes = ReduceAttributes(axes, False, result)
    if name.startswith("arg"):
        attributes = ArgReduceAttributes(axes[0], False, result)
    got = machine.run(name, values, attributes=attributes)
    oracle, oracle_type = values, result
    if result.is_floating and name in ("sum", "prod", "mean"):
        oracle_type = dt.complex128 if result.kind is Kind.COMPLEX else dt.float64
        oracle = values.astype(oracle_type.numpy)
    want = evaluate(OPERATIONS[name], [oracle], attributes, TensorType(oracle_type, got.shape))
    assert got.dtype == result.numpy
    if oracle_type is result and not result.is_floating:
        np.testing.assert_array_equal(got, want)
        return
    unit = np.finfo(result.numpy).eps
    size = np.abs(oracle).sum(axis=axes) if name == "sum" else np.abs(want)
    count = max(2, values.size // max(1, got.size))
    slack = unit * np.log2(count) * (count if name == "prod" else 4)
    assert np.all(np.abs(got - want) <= slack * np.maximum(size, unit) + unit * np.abs(want))


_TYPES = {
    "sum": (dt.bool_, dt.int8, dt.float16, dt.float32, dt.complex64),
    "prod": (dt.int8, dt.float32),
    "mean": (dt.float16, dt.complex64),
    "min": (dt.bool_, dt.uint16),
    "max": (dt.int8, dt.float16, dt.float32),
    "any": (dt.bool_, dt.complex64),
    "all": (dt.int8,),
    "argmin": (dt.float32,),
    "argmax": (dt.int8,),
}


@pytest.mark.parametrize("name", _NAMES)
def test_reduction(machine: Machine, name: str) -> None:
    for dtype in _TYPES[name]:
        result = _result_dtype(name, dtype)
        if result is None:
            continue
        values = _values(dtype, (3, 5, 7))
        for axes in ((0,), (2,)) if name.startswith("arg") else ((0,), (0, 2)):
            _check(machine, name, values, axes, result)
        _check(machine, name, values.transpose(2, 0, 1)[::-1], (1,), result)


@pytest.mark.parametrize("dtype", (dt.int64, dt.uint64, dt.float64, dt.complex128), ids=str)
def test_wide_types(machine: Machine, dtype: DType) -> None:
    if dtype not in machine.lowering.dtypes:
        pytest.skip(f"the adapter has no {dtype}")
    for name in ("sum", "prod", "max", "argmin"):
        result = _result_dtype(name, dtype)
        if result is not None:
            _check(machine, name, _values(dtype, (4, 70)), (1,), result)


@pytest.mark.parametrize("shape", [(40_000,), (3, 9000), (9000, 3), (40, 100), (2, 300)])
def test_sizes_that_take_workgroups_and_two_stages(
    machine: Machine, shape: tuple[int, ...]
) -> None:
    values = _values(dt.float32, shape)
    for name, axis in itertools.product(("sum", "argmax", "min"), range(len(shape))):
        result = dt.int32 if name == "argmax" else dt.float32
        _check(machine, name, values, (axis,), result)
    whole = values.astype(np.int8)
    _check(machine, "sum", whole, (0,), dt.int8)
    _check(machine, "any", whole, (len(shape) - 1,), dt.bool_)
    _check(machine, "sum", whole, tuple(range(len(shape))), dt.int32)
    _check(machine, "mean", values.astype(np.float16), (0,), dt.float16)


def test_a_long_sum_is_accurate(machine: Machine) -> None:
    values = np.full(1_000_000, 0.1, np.float32)
    got = machine.run("sum", values, attributes=ReduceAttributes((0,), False, dt.float32))
    exact = float(np.float32(0.1)) * 1_000_000
    assert abs(float(got) - exact) <= 4 * float(np.spacing(np.float32(exact)))


def test_nan_wins_minima_maxima_and_their_places(machine: Machine) -> None:
    for count, nans in ((9, (4, 7)), (5000, (4321, 4400)), (70_000, (69_000, 3))):
        values = _values(dt.float32, (count,))
        values[list(nans)] = np.nan
        for name in ("min", "max"):
            reduce = ReduceAttributes((0,), False, dt.float32)
            assert np.isnan(machine.run(name, values, attributes=reduce))
            arg = ArgReduceAttributes(0, False, dt.int32)
            assert machine.run(f"arg{name}", values, attributes=arg) == min(nans)


def test_the_first_of_equal_extremes(machine: Machine) -> None:
    for count in (10, 3000, 100_000):
        values = np.zeros(count, np.int32)
        values[[count // 3, count // 2]] = 5
        arg = ArgReduceAttributes(0, True, dt.int32)
        assert machine.run("argmax", values, attributes=arg).tolist() == [count // 3]
        assert machine.run("argmin", values, attributes=arg).tolist() == [0]


def test_all_infinite(machine: Machine) -> None:
    values = np.full((2, 300), -np.inf, np.float32)
    reduce = ReduceAttributes((1,), False, dt.float32)
    np.testing.assert_array_equal(machine.run("max", values, attributes=reduce), [-np.inf] * 2)
    arg = ArgReduceAttributes(1, False, dt.int32)
    np.testing.assert_array_equal(machine.run("argmax", values, attributes=arg), [0, 0])


def test_nothing_reduces_to_the_identity(machine: Machine) -> None:
    values = np.empty((3, 0), np.float32)
    for name, want in (("sum", 0.0), ("prod", 1.0), ("mean", np.nan)):
        got = machine.run(name, values, attributes=ReduceAttributes((1,), False, dt.float32))
        np.testing.assert_array_equal(got, np.full(3, want, np.float32))
    for name, want in (("any", False), ("all", True)):
        got = machine.run(name, values, attributes=ReduceAttributes((1,), True, dt.bool_))
        np.testing.assert_array_equal(got, np.full((3, 1), want))


def test_no_axes(machine: Machine) -> None:
    values = np.array([0.0, 2.0, np.nan], np.float32)
    got = machine.run("sum", values, attributes=ReduceAttributes((), False, dt.float32))
    np.testing.assert_array_equal(got, values)
    got = machine.run("any", values, attributes=ReduceAttributes((), False, dt.bool_))
    np.testing.assert_array_equal(got, [False, True, True])


def test_a_sum_in_another_type(machine: Machine) -> None:
    values = np.array([[100, 100, 100]], np.int8)
    got = machine.run("sum", values, attributes=ReduceAttributes((1,), False, dt.int32))
    assert got.tolist() == [300]
    got = machine.run("sum", values, attributes=ReduceAttributes((1,), False, dt.float32))
    assert got.tolist() == [300.0]
    got = machine.run("sum", values, attributes=ReduceAttributes((1,), False, dt.int8))
    assert got.tolist() == [300 - 256]
