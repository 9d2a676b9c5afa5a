"""Numbers as a kernel's parameters: one 32-bit word each.

A kernel that a user wrote reads parameter i as `params[i / 4][i % 4]`, a u32; `bitcast<f32>(…)` and
`bitcast<i32>(…)` read it as what it is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from gpuwire.errors import DTypeError, ScalarOutOfRange

_I32_LOWEST = -(1 << 31)
_U32_HIGHEST = (1 << 32) - 1


def parameter_words(values: Sequence[object]) -> bytes:
    """The words of these numbers, little-endian.

    An int is an i32, or from 2³¹ on a u32; a float an f32; a bool 0 or 1. NumPy's scalars of up to
    32 bits are what they are. Raises `DTypeError` for anything else, `ScalarOutOfRange` for a
    number that no word holds.
    """
    return b"".join(map(_word, values))


def _word(value: object) -> bytes:
    if isinstance(value, bool | np.bool_):
        return struct.pack("<I", bool(value))
    if isinstance(value, int) or (isinstance(value, np.integer) and value.itemsize <= 4):
        return _integer(int(value))
    if isinstance(value, float | np.float32 | np.float16):
        try:
            return struct.pack("<f", float(value))
        except OverflowError as error:
            raise ScalarOutOfRange(f"{float(value):g} is no float32", dtype="float32") from error
    raise _unfit(value)


def _integer(number: int) -> bytes:
    if not _I32_LOWEST <= number <= _U32_HIGHEST:
        raise ScalarOutOfRange(
            f"a kernel's parameter is a 32-bit word, and {number} does not fit; pass it in an array"
        )
    return (number & _U32_HIGHEST).to_bytes(4, "little")


def _unfit(value: object) -> DTypeError:
    if isinstance(value, np.ndarray):
        return DTypeError(
            "a kernel takes arrays of its device, not NumPy's: use gpuwire.asarray(x, device=…)"
        )
    return DTypeError(
        f"a kernel's parameter is an int, a float, a bool, or a NumPy scalar of up to 32 bits, not "
        f"{type(value).__name__}; convert it, or pass it in an array"
    )
