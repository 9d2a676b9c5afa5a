"""Tensor descriptions: what a tensor is, without its bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuwire.errors import ShapeError
from gpuwire.ir.dtypes import DType, Kind, PythonScalar

Shape = tuple[int, ...]

MAX_RANK = 32
"""The most dimensions a tensor may have; NumPy 2 allows 64, kernels stay legible with fewer."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Data type and shape. Every tensor on the wire is contiguous, row-major, little-endian."""

    dtype: DType
    shape: Shape

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number in a zero-dimensional tensor's place; a binding, not part of a graph."""

    value: PythonScalar
    dtype: DType

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, ())


def scalar(value: PythonScalar, dtype: DType) -> Scalar:
    """A scalar of that type, its value converted to the type's Python class."""
    match dtype.kind:
        case Kind.BOOL:
            return Scalar(bool(value), dtype)
        case Kind.SIGNED | Kind.UNSIGNED:
            assert not isinstance(value, complex)
            return Scalar(int(value), dtype)
        case Kind.FLOAT:
            assert not isinstance(value, complex)
            return Scalar(float(value), dtype)
        case Kind.COMPLEX:
            return Scalar(complex(value), dtype)


def row_major_strides(shape: Shape) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor."""
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape all broadcast to (Array API, "Broadcasting"); `ShapeError` if there is none."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    rank = max(len(shape) for shape in shapes)
    result = [1] * rank
    for shape in shapes:
        for axis, length in enumerate(shape, start=rank - len(shape)):
            if length == 1 or length == result[axis]:
                continue
            if result[axis] != 1:
                listed = " and ".join(str(shape) for shape in shapes)
                raise ShapeError(
                    f"shapes {listed} do not broadcast: {result[axis]} against {length}"
                )
            result[axis] = length
    return tuple(result)
