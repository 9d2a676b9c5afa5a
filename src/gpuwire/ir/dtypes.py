"""The data types of arrays, and how two of them become one.

Promotion follows the Array API standard (2023.12, "Type Promotion Rules"). Where the standard
leaves a pair open, the rule is: bool gives way to any number, an integer gives way to any float
or complex type (whose width stands), and uint64 with a signed integer is refused, because no
integer type holds both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np

from gpuwire.errors import DTypeError

PythonScalar = bool | int | float | complex


class Kind(Enum):
    """The families of data types, in promotion order."""

    BOOL = "bool"
    UNSIGNED = "unsigned integer"
    SIGNED = "signed integer"
    FLOAT = "real floating"
    COMPLEX = "complex floating"


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One data type. Compared by identity: there is one object for each.

    `code` is its number on the wire, `itemsize` its size in bytes; elements lie in memory as NumPy
    lays them out, little-endian.
    """

    name: str
    code: int
    kind: Kind
    itemsize: int

    def __repr__(self) -> str:
        return f"gpuwire.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return (dtype_by_name, (self.name,))

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy data type with the same layout."""
        return _NUMPY[self.code]

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def is_floating(self) -> bool:
        """Real or complex floating."""
        return self.kind in (Kind.FLOAT, Kind.COMPLEX)

    @property
    def is_numeric(self) -> bool:
        return self.kind is not Kind.BOOL


bool_ = DType("bool", 1, Kind.BOOL, 1)
int8 = DType("int8", 2, Kind.SIGNED, 1)
int16 = DType("int16", 3, Kind.SIGNED, 2)
int32 = DType("int32", 4, Kind.SIGNED, 4)
int64 = DType("int64", 5, Kind.SIGNED, 8)
uint8 = DType("uint8", 6, Kind.UNSIGNED, 1)
uint16 = DType("uint16", 7, Kind.UNSIGNED, 2)
uint32 = DType("uint32", 8, Kind.UNSIGNED, 4)
uint64 = DType("uint64", 9, Kind.UNSIGNED, 8)
float16 = DType("float16", 10, Kind.FLOAT, 2)
float32 = DType("float32", 11, Kind.FLOAT, 4)
float64 = DType("float64", 12, Kind.FLOAT, 8)
complex64 = DType("complex64", 13, Kind.COMPLEX, 8)
complex128 = DType("complex128", 14, Kind.COMPLEX, 16)

ALL_DTYPES = (
    bool_,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float16,
    float32,
    float64,
    complex64,
    complex128,
)
_BY_CODE = {dtype.code: dtype for dtype in ALL_DTYPES}
_BY_NAME = {dtype.name: dtype for dtype in ALL_DTYPES}
_NUMPY = {dtype.code: np.dtype(dtype.name) for dtype in ALL_DTYPES}

_SIGNED_BY_SIZE = {1: int8, 2: int16, 4: int32, 8: int64}
_COMPLEX_OF = {float16: complex64, float32: complex64, float64: complex128}
_REAL_OF = {complex64: float32, complex128: float64}


def dtype_by_code(code: int) -> DType | None:
    """The data type with that wire code, or None."""
    return _BY_CODE.get(code)


def dtype_by_name(name: str) -> DType:
    """The data type of that name; `DTypeError` if there is none."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise DTypeError(
            f"there is no data type {name!r}; there are {', '.join(_BY_NAME)}"
        ) from None


def dtype_of_numpy(dtype: np.dtype[np.generic]) -> DType:
    """The data type with the same elements as a NumPy one, whatever its byte order.

    Strings, objects, records and times have no counterpart: `DTypeError`.
    """
    found = _BY_NAME.get(dtype.newbyteorder("=").name)
    if found is None:
        raise DTypeError(f"NumPy dtype {dtype!r} has no counterpart on a device; convert it first")
    return found


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    bits = 8 * dtype.itemsize
    if dtype.kind is Kind.UNSIGNED:
        return 0, 2**bits - 1
    assert dtype.kind is Kind.SIGNED
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def real_of(dtype: DType) -> DType:
    """The type of the real part: float32 of complex64; a real type is its own."""
    return _REAL_OF.get(dtype, dtype)


def complex_of(dtype: DType) -> DType:
    """The complex type that holds a floating type's values."""
    return dtype if dtype.kind is Kind.COMPLEX else _COMPLEX_OF[dtype]


@cache
def promote(left: DType, right: DType) -> DType:
    """The type in which both can be computed; `DTypeError` if there is none."""
    if left is right:
        return left
    kinds = {left.kind, right.kind}
    if left.kind is right.kind:
        return left if left.itemsize >= right.itemsize else right
    if Kind.BOOL in kinds:
        return right if left.kind is Kind.BOOL else left
    if kinds == {Kind.SIGNED, Kind.UNSIGNED}:
        return _promote_signs(left, right)
    floating = left if left.is_floating else right
    other = right if floating is left else left
    if kinds == {Kind.FLOAT, Kind.COMPLEX}:
        complex_, real = (left, right) if left.kind is Kind.COMPLEX else (right, left)
        return promote(complex_, complex_of(real))
    assert other.is_integer
    return floating


def _promote_signs(left: DType, right: DType) -> DType:
    signed, unsigned = (left, right) if left.kind is Kind.SIGNED else (right, left)
    if unsigned.itemsize == 8:
        raise DTypeError(
            f"no integer type holds both {left} and {right}; cast one of them with astype()"
        )
    return _SIGNED_BY_SIZE[max(signed.itemsize, 2 * unsigned.itemsize)]


def promote_all(dtypes: tuple[DType, ...]) -> DType:
    """`promote` over one or more types, from left to right."""
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = promote(result, dtype)
    return result
