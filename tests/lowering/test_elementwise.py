"""Elementwise operations against NumPy in a wider type.

Every operation runs in its most telling types here; `tests/conformance/sweep_operations.py` runs
every operation in every type.
"""

from __future__ import annotations

import numpy as np
import pytest

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import CastAttributes
from gpuwire.ir.dtypes import ALL_DTYPES, DType, Kind
from gpuwire.ir.operations import OpDef
from gpuwire.ir.tensors import Scalar
from gpuwire.lowering.host_operations import runs_on_host
from gpuwire.lowering.host_reference import convert
from lowered import Machine
from operation_cases import (
    castable,
    elementwise_pairs,
    expected,
    most_units,
    operands,
    result_type,
    units_off,
)

_NARROW = ("abs", "add", "bitwise_invert", "bitwise_left_shift", "floor_divide", "multiply")
_NARROW += ("negative", "pow", "square", "subtract", "bitwise_right_shift", "remainder", "less")

_WIDE = ("acos", "asin", "atan2", "cos", "exp", "expm1", "floor_divide", "hypot", "less", "log")
_WIDE += (
    "log1p",
    "log2",
    "log10",
    "maximum",
    "nextafter",
    "pow",
    "remainder",
    "sin",
    "tan",
    "tanh",
)

_PAIRS = [
    (definition, dtype)
    for definition, dtype in elementwise_pairs(ALL_DTYPES)
    if not runs_on_host(definition.name, dtype)
    and (
        dtype in (dt.bool_, dt.int32, dt.float32, dt.complex64)
        or (dtype is dt.float64 and definition.name in _WIDE)
        or (dtype is dt.int8 and definition.name in _NARROW)
        or (dtype in (dt.uint16, dt.uint64) and definition.name in ("multiply", "pow", "less"))
        or (dtype is dt.float16 and definition.name in ("add", "exp", "nextafter", "maximum"))
    )
]


@pytest.mark.parametrize(
    ("definition", "dtype"), _PAIRS, ids=lambda part: getattr(part, "name", None)
)
def test_operation(machine: Machine, definition: OpDef, dtype: DType) -> None:
    _require(machine, dtype)
    result = result_type(definition, dtype)
    arrays = operands(definition, dtype)
    got = machine.run(definition.name, *arrays)
    want = expected(definition, arrays, result)
    assert got.dtype == result.numpy
    if not result.is_floating:
        np.testing.assert_array_equal(got, want)
        return
    if definition.name in (
        "maximum",
        "minimum",
        "nextafter",
    ):  # Which of two zeros is open, in NumPy too.
        got, want = got + 0, want + 0
    off = units_off(got, want, result)
    worst = int(np.argmax(off))
    most = most_units(definition.name, result)
    told = [array[worst] for array in arrays]
    assert off[worst] <= most, f"{definition.name}{told}: {got[worst]}, not {want[worst]}"


@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_cast(machine: Machine, source: DType) -> None:
    _require(machine, source)
    values = castable(source)
    for target in ALL_DTYPES:
        if target not in machine.lowering.dtypes:
            continue
        if source.kind is Kind.COMPLEX and target.kind is not Kind.COMPLEX:
            continue
        got = machine.run("cast", values, attributes=CastAttributes(target))
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, convert(values, target), f"{source} to {target}")


def test_operands_of_different_types_are_promoted(machine: Machine) -> None:
    small = np.array([-100, 100, 7], np.int8)
    wide = np.array([60000, 3, 9], np.uint16)
    half = np.array([0.5, 2.0, -3.0], np.float16)
    got = machine.run("multiply", small, wide)
    np.testing.assert_array_equal(got, small.astype(np.int32) * wide)
    np.testing.assert_array_equal(
        machine.run("add", small, half), (small + half).astype(np.float16)
    )
    np.testing.assert_array_equal(machine.run("less", small, wide), small.astype(int) < wide)
    np.testing.assert_array_equal(
        machine.run("where", np.array([True, False, True]), small, wide),
        np.where([True, False, True], small.astype(np.int32), wide),
    )


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_a_scalar_is_a_parameter_and_no_new_kernel(machine: Machine, dtype: DType) -> None:
    _require(machine, dtype)
    values = np.array([0, 1, 1, 0, 1, 0, 0, 1, 0], dtype.numpy)
    kernels = None
    for number in (1, 0):
        scalar = Scalar(dtype.numpy.type(number).item(), dtype)
        got = machine.run("equal", values, scalar)
        np.testing.assert_array_equal(got, values == number)
        kernels = kernels or machine.lowering.kernel_count
    assert machine.lowering.kernel_count == kernels


def test_scalars_that_need_all_their_bits(machine: Machine) -> None:
    for dtype, number in (
        (dt.int64, -(2**62) - 1),
        (dt.uint64, 2**64 - 3),
        (dt.float64, 1 / 3),
        (dt.complex128, complex(1 / 3, -1 / 7)),
        (dt.int8, -128),
        (dt.float16, 65504.0),
    ):
        _require(machine, dtype)
        got = machine.run("add", np.zeros(3, dtype.numpy), Scalar(number, dtype))
        np.testing.assert_array_equal(got, np.full(3, number, dtype.numpy))


def test_a_nan_of_any_sign_and_payload_is_a_nan(machine: Machine) -> None:
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF812345, 0x7F800000], np.uint32)
    values = bits.view(np.float32)
    np.testing.assert_array_equal(machine.run("isnan", values), np.isnan(values))
    np.testing.assert_array_equal(machine.run("not_equal", values, values.copy()), values != values)
    np.testing.assert_array_equal(
        machine.run("maximum", values, np.ones(5, np.float32)), np.maximum(values, 1)
    )


def test_whole_quotients_are_whole(machine: Machine) -> None:
    random = np.random.default_rng(0)
    divisor = random.integers(1, 5000, 4096).astype(np.float32)
    quotient = random.integers(1, 3000, 4096).astype(np.float32)
    np.testing.assert_array_equal(machine.run("divide", divisor * quotient, divisor), quotient)
    np.testing.assert_array_equal(
        machine.run("floor_divide", divisor * quotient, divisor), quotient
    )
    np.testing.assert_array_equal(machine.run("sqrt", quotient * quotient), quotient)


def test_float_functions_over_their_range(machine: Machine) -> None:
    random = np.random.default_rng(0)
    everywhere = np.concatenate(
        [random.uniform(-1e4, 1e4, 4000), 10.0 ** random.uniform(-30, 30, 4000)]
    ).astype(np.float32)
    near_one = random.uniform(0.7, 1.4, 8000).astype(np.float32)
    moderate = random.uniform(-87, 88, 8000).astype(np.float32)
    for name, values in (
        ("sin", everywhere),
        ("cos", everywhere),
        ("log", near_one),
        ("log2", near_one),
        ("exp", moderate),
        ("expm1", moderate),
        ("tanh", moderate / 40),
    ):
        want = getattr(np, name)(values.astype(np.float64))
        got = machine.run(name, values)
        assert units_off(got, want, dt.float32).max() <= most_units(name, dt.float32), name


def test_complex_numbers_over_false(machine: Machine) -> None:
    values = np.array([1 + 2j, -1 - 1j, 0], np.complex64)
    with np.errstate(all="ignore"):
        wanted = values / np.zeros(3, np.complex64)
    np.testing.assert_array_equal(machine.run("divide", values, np.zeros(3, bool)), wanted)


@pytest.mark.parametrize("name", ["sin", "pow", "log2"])
def test_complex_functions_of_the_host(machine: Machine, name: str) -> None:
    assert runs_on_host(name, dt.complex64)
    values = np.array([1 + 2j, -0.5j, 3.0, -2 + 1j], np.complex64)
    if name == "pow":
        np.testing.assert_allclose(machine.run(name, values, values), np.power(values, values))
    else:
        got = machine.run(name, values[::-1])
        np.testing.assert_allclose(got, getattr(np, name)(values[::-1]), rtol=1e-6)


def test_host_operations_continue_on_the_device(machine: Machine) -> None:
    values = np.array([1 + 2j, -0.5j, 3.0], np.complex64)
    middle = machine.apply("sin", machine.upload(values))
    got = machine.download(machine.apply("add", middle, Scalar(1.0, dt.complex64)))
    np.testing.assert_allclose(got, np.sin(values) + 1, rtol=1e-6)


def _require(machine: Machine, dtype: DType) -> None:
    if dtype not in machine.lowering.dtypes:
        pytest.skip(f"the adapter has no {dtype}")
