"""Products against NumPy: types, batches, strides, every tile."""

from __future__ import annotations

import numpy as np
import pytest

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind
from lowered import Array, Machine


@pytest.fixture(scope="module", params=("software", "gpu"))
def kind(machine: Machine, request: pytest.FixtureRequest) -> Machine:
    """The device as what it is, and as one that is given tiles in workgroup memory."""
    return machine.assuming(is_software=request.param == "software")


def _matrix(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    random = np.random.default_rng(seed)
    if dtype.is_integer:
        return random.integers(0, 9, shape).astype(dtype.numpy)
    values = random.uniform(-1, 1, shape)
    if dtype.kind is Kind.COMPLEX:
        return (values + 1j * random.uniform(-1, 1, shape)).astype(dtype.numpy)
    return values.astype(dtype.numpy)


def _check(machine: Machine, left: Array, right: Array) -> None:
    got = machine.run("matmul", left, right)
    dtype = np.result_type(left, right)
    if np.issubdtype(dtype, np.integer):
        np.testing.assert_array_equal(got, np.matmul(left.astype(dtype), right.astype(dtype)))
        return
    wide = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
    want = np.matmul(left.astype(wide), right.astype(wide))
    size = np.matmul(np.abs(left).astype(np.float64), np.abs(right).astype(np.float64))
    assert got.dtype == dtype
    assert np.all(np.abs(got - want) <= 4 * np.finfo(dtype).eps * (size + np.abs(want)))


@pytest.mark.parametrize(
    "dtype",
    (dt.int8, dt.uint16, dt.int32, dt.int64, dt.float16, dt.float32, dt.float64, dt.complex64),
    ids=str,
)
def test_types(kind: Machine, dtype: DType) -> None:
    if dtype not in kind.lowering.dtypes:
        pytest.skip(f"the adapter has no {dtype}")
    _check(kind, _matrix(dtype, (5, 19), 0), _matrix(dtype, (19, 7), 1))
    _check(kind, _matrix(dtype, (1, 3), 0), _matrix(dtype, (3, 1), 1))


@pytest.mark.parametrize("shape", [(130, 40, 67), (64, 16, 256), (1024, 12, 1152), (1, 300, 1)])
def test_sizes(kind: Machine, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    _check(kind, _matrix(dt.float32, (m, k), 0), _matrix(dt.float32, (k, n), 1))


def test_strides_of_every_kind(kind: Machine) -> None:
    left, right = _matrix(dt.float32, (70, 33), 0), _matrix(dt.float32, (33, 65), 1)
    _check(kind, left.T.copy().T, right)
    _check(kind, left, right.T.copy().T)
    _check(kind, left[::-1, ::2], right[::-2])
    _check(kind, np.broadcast_to(left[0], (4, 33)), right[:, 3:9])


@pytest.mark.parametrize("order", ("CC", "CF", "FC", "FF"))
def test_operands_that_are_read_in_fours(kind: Machine, order: str) -> None:
    """Sides that are multiples of four, but not of the blocks that a lane computes."""
    left = (
        _matrix(dt.float32, (12, 20), 0) if order[0] == "C" else _matrix(dt.float32, (20, 12), 0).T
    )
    right = (
        _matrix(dt.float32, (20, 24), 1) if order[1] == "C" else _matrix(dt.float32, (24, 20), 1).T
    )
    _check(kind, left, right)
    _check(kind, left[4:, 8:], right[8:, 4:16])
    _check(kind, left[2:, 6:], right[6:, 1:21])


@pytest.mark.parametrize("dtype", (dt.uint8, dt.float16, dt.float64, dt.complex64), ids=str)
def test_types_that_are_read_in_fours(kind: Machine, dtype: DType) -> None:
    if dtype not in kind.lowering.dtypes:
        pytest.skip(f"the adapter has no {dtype}")
    _check(kind, _matrix(dtype, (8, 4), 0), _matrix(dtype, (4, 8), 1))


def test_sums_longer_than_a_software_adapters_loops(machine: Machine) -> None:
    """llvmpipe ends the loops of an invocation after 65,535 rounds, and says nothing."""
    ones = np.ones((2, 70_001), np.float32)
    np.testing.assert_array_equal(machine.run("matmul", ones, ones.T), np.full((2, 2), 70_001))
    ones = np.ones((1, 140_000), np.int32)
    np.testing.assert_array_equal(machine.run("matmul", ones, ones.T), [[140_000]])


def test_batches_broadcast(kind: Machine) -> None:
    left, right = _matrix(dt.float32, (2, 3, 4, 5), 0), _matrix(dt.float32, (3, 5, 6), 1)
    _check(kind, left, right)
    _check(kind, left, right[0])
    _check(kind, left[:, :1], right)
    _check(kind, left.transpose(1, 0, 2, 3), right[:, None])
    _check(kind, left[0, 0], right)
    _check(kind, _matrix(dt.float16, (3, 4, 5), 0), _matrix(dt.float16, (5, 3), 1))


def test_mixed_types(kind: Machine) -> None:
    _check(kind, _matrix(dt.int8, (3, 4), 0), _matrix(dt.float32, (4, 5), 1))
    _check(kind, _matrix(dt.float32, (3, 4), 0), _matrix(dt.complex64, (4, 5), 1))


def test_empty_products(kind: Machine) -> None:
    none = np.empty((3, 0), np.float32)
    np.testing.assert_array_equal(kind.run("matmul", none, none.T), np.zeros((3, 3)))
    assert kind.run("matmul", none.T, np.ones((3, 2), np.float32)).shape == (0, 2)
