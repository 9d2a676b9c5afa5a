"""Values: what lowering hands around.

A `Value` is a strided view over a handle's memory, as NumPy's arrays are over theirs. Permuting,
slicing, broadcasting and most reshapes give another view over the same handle; no kernel runs and
no byte moves.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.compute.handles import Handle
from gpuwire.ir.tensors import TensorType, row_major_strides

Lie = tuple[TensorType, tuple[int, ...], int]
"""How a tensor lies in its memory: type, strides and offset, both in elements."""


@dataclass(slots=True, eq=False)
class Value:
    """A tensor on the device: type, and where element (0, …, 0) and the others lie in the handle.

    `strides` (one for each dimension, may be zero or negative) and `offset` are in elements of
    the type, counted from the handle's first byte. Not to be changed; a frozen class would cost
    twice as much to make, and each run makes its results.
    """

    handle: Handle
    type: TensorType
    strides: tuple[int, ...]
    offset: int

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie row-major without gaps; the offset may be anything. Strides of
        dimensions of length 1 do not count, and an empty tensor is contiguous."""
        return is_row_major(self.type.shape, self.strides)


def is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides, in elements, are those of a contiguous tensor."""
    if 0 in shape:
        return True
    step = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1:
            if stride != step:
                return False
            step *= length
    return True


def contiguous_value(handle: Handle, type_: TensorType) -> Value:
    """The value that fills a handle from its first byte on."""
    return Value(handle, type_, row_major_strides(type_.shape), 0)
