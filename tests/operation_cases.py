"""Inputs for the elementwise operations, what they should give, and how far off a result is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwire.errors import GpuwireError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.ir.operations import OPERATIONS, OpClass, OpDef
from gpuwire.ir.tensors import TensorType
from gpuwire.lowering.host_reference import evaluate

Array = npt.NDArray[Any]

COUNT = 96
"""Elements of a sample: enough for the special values and as many ordinary ones."""

_SPECIAL = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 0.5, -0.5, 2.5, 3.5, 1e-3, -2e-5, 1e-9]
_SPECIAL += [7.0, -3.0, 88.0, -88.0, 1e10, -1e20, 100.25, 3.0, 2.0, 10.0, 1000.0]

_WIDER: dict[DType, np.dtype[Any]] = {
    dt.float16: np.dtype(np.float64),
    dt.float32: np.dtype(np.float64),
    dt.float64: np.dtype(np.longdouble),
    dt.complex64: np.dtype(np.complex128),
    dt.complex128: np.dtype(np.clongdouble),
}

# Where NumPy has no wider type to compute in, or its own rounding is what is wanted.
_EXACT = ("nextafter", "round", "remainder", "floor_divide")


def elementwise_pairs(dtypes: Sequence[DType]) -> Iterator[tuple[OpDef, DType]]:
    """Every elementwise operation with every type that its rule allows for all its operands."""
    for definition, dtype in itertools.product(OPERATIONS.values(), dtypes):
        if definition.op_class is not OpClass.ELEMENTWISE or definition.name in ("cast", "where"):
            continue
        try:
            result_type(definition, dtype)
        except GpuwireError:
            continue
        yield definition, dtype


def result_type(definition: OpDef, dtype: DType) -> DType:
    """The type of the operation's result on operands of one type."""
    assert definition.arity is not None
    types = (TensorType(dtype, (COUNT,)),) * definition.arity
    return definition.result_type(types, NO_ATTRIBUTES).dtype


def operands(definition: OpDef, dtype: DType) -> list[Array]:
    """Operands that meet each other's special values."""
    assert definition.arity is not None
    arrays = [sample(dtype, seed) for seed in range(definition.arity)]
    random = np.random.default_rng(3)
    if definition.name == "pow" and dtype.is_integer:
        arrays[1][:] = random.integers(-2 if dtype.kind is Kind.SIGNED else 0, 9, COUNT)
    if definition.name.endswith("_shift"):
        arrays[1][::2] = random.integers(0, 70, COUNT // 2)
    if definition.name in ("acos", "asin", "atanh"):
        arrays[0][32:] = random.uniform(-1, 1, COUNT - 32)
    if dtype.kind is Kind.COMPLEX and definition.name in ("multiply", "square"):
        for (
            array
        ) in arrays:  # Squares that overflow are inf - inf, which a wider type does not see.
            array[np.abs(array) > 1e15] = 3
    return arrays


def sample(dtype: DType, seed: int = 0) -> Array:
    """`COUNT` elements: limits and special values, small and large ordinary ones."""
    random = np.random.default_rng(seed)
    if dtype.kind is Kind.BOOL:
        return random.integers(0, 2, COUNT).astype(bool)
    if dtype.is_integer:
        limits = np.iinfo(dtype.name)
        whole = random.integers(limits.min, limits.max, COUNT, dtype.numpy, endpoint=True)  # type: ignore[arg-type]
        whole[::2] = random.integers(max(limits.min, -9), 10, COUNT // 2)
        whole[:6] = [0, 1, limits.max, limits.min, 2, 3]
        return whole
    if dtype.kind is Kind.COMPLEX:
        part = dt.real_of(dtype)
        numbers = np.empty(COUNT, dtype.numpy)
        numbers.real, numbers.imag = sample(part, seed), sample(part, seed + 50)
        return numbers
    special = random.permutation(_SPECIAL) if seed % 2 else np.array(_SPECIAL)
    ordinary = random.normal(size=COUNT - len(special))
    ordinary[::2] *= 10.0 ** random.integers(-3, 3, len(ordinary[::2]))
    with np.errstate(over="ignore"):
        return np.concatenate([special, ordinary]).astype(dtype.numpy)


def expected(definition: OpDef, arrays: Sequence[Array], result: DType) -> Array:
    """The results, computed in a wider type where that is better."""
    dtype = dt.dtype_of_numpy(arrays[0].dtype)
    if not dtype.is_floating or definition.name in _EXACT or result.kind is Kind.BOOL:
        return evaluate(definition, arrays, NO_ATTRIBUTES, TensorType(result, (COUNT,)))
    wide = _WIDER[dtype]
    arrays = [array.astype(wide) for array in arrays]
    with np.errstate(all="ignore"):
        name = _NUMPY_FUNCTIONS.get(definition.name, definition.name)
        return np.asarray(getattr(np, name)(*arrays))


def most_units(operation: str, result: DType) -> float:
    """How far off a result may be, in units in the last place."""
    if operation == "logaddexp":  # Near 0 it is as good as e^x is; NumPy's float32 is no better.
        return 400.0
    return 1.0 if result is dt.float16 else 2.5


_NUMPY_FUNCTIONS = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "pow": "power",
}


def units_off(got: Array, want: Array, dtype: DType) -> Array:
    """How far each result is from the wanted one, in units in the last place of its type; of the
    larger part for complex numbers. 0 where both round to the same value, or where a subnormal
    result is 0 (devices may have none); infinite where one is NaN or infinite, or a zero has the
    wrong sign."""
    if dtype.kind is Kind.COMPLEX:
        part = dt.real_of(dtype)
        size = np.maximum(np.abs(want.real), np.abs(want.imag))
        return np.maximum(
            _units_off(got.real, want.real, part, size), _units_off(got.imag, want.imag, part, size)
        )
    return _units_off(got, want, dtype, np.abs(want))


def _units_off(got: Array, want: Array, dtype: DType, size: Array) -> Array:
    with np.errstate(all="ignore"):
        rounded = want.astype(dtype.numpy)
        unit = np.spacing(np.nan_to_num(size, posinf=1.0).astype(dtype.numpy)).astype(np.longdouble)
        off = np.abs(got.astype(np.longdouble) - want.astype(np.longdouble)) / unit
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        off = np.where(same, 0, np.where(np.isfinite(off), off, np.inf))
        flushed = (got == 0) & (np.abs(want) < np.finfo(dtype.numpy).tiny) & (want != 0)
        off = np.where(flushed & (dtype is dt.float32), 0, off)
        wrong_zero = (rounded == 0) & (np.signbit(got) != np.signbit(rounded)) & same
    return np.where(wrong_zero, np.inf, off).astype(np.float64)


def castable(dtype: DType) -> Array:
    """Values whose conversion to some other type is not plain."""
    if dtype.is_integer:
        limits = np.iinfo(dtype.name)
        return np.array([0, 1, 100, limits.max, limits.min, limits.max - 3], dtype.numpy)
    if dtype.kind is Kind.BOOL:
        return np.array([True, False, True])
    numbers = [0.0, -0.0, 1.5, -1.5, 127.9, -129.0, 255.5, 300.0, -1.0, 40000.0, np.nan, np.inf]
    numbers += [-np.inf, 2.0**31, 2.0**33, -(2.0**31), 2.0**40, 0.3, 65520.0, 1e-7]
    with np.errstate(over="ignore"):
        return np.array(numbers).astype(dtype.numpy)
