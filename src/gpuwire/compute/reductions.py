"""Reductions over ranks, on the host: the same bits whoever does them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np

from gpuwire.compute.exchange import Bytes
from gpuwire.errors import ArgumentError


class Reduction(Enum):
    """What becomes of the ranks' values. Means of integers are rounded down; minimum and maximum
    propagate NaN and do not exist for complex numbers."""

    SUM = "sum"
    MEAN = "mean"
    PROD = "prod"
    MIN = "min"
    MAX = "max"


def reducer(
    reduction: Reduction, dtype: np.dtype[np.generic], ranks: int
) -> Callable[[Sequence[Bytes]], Bytes]:
    """Reduces the ranks' bytes, in their order. Half floats are summed and multiplied in single.

    Raises ArgumentError for a type that has no such reduction.
    """
    if dtype.kind not in "iufc" or (
        dtype.kind == "c" and reduction in (Reduction.MIN, Reduction.MAX)
    ):
        raise ArgumentError(f"there is no {reduction.value} of {dtype}")
    wide = np.dtype(np.float32) if dtype == np.float16 else dtype
    combine = {
        Reduction.SUM: np.add,
        Reduction.MEAN: np.add,
        Reduction.PROD: np.multiply,
        Reduction.MIN: np.minimum,
        Reduction.MAX: np.maximum,
    }[reduction]

    def reduce(parts: Sequence[Bytes]) -> Bytes:
        total = parts[0].view(dtype).astype(wide)
        with np.errstate(all="ignore"):
            for part in parts[1:]:
                combine(total, part.view(dtype), out=total, casting="same_kind")
            if reduction is Reduction.MEAN:
                total = total // ranks if dtype.kind in "iu" else total / wide.type(ranks)
            return np.ascontiguousarray(total.astype(dtype, copy=False)).view(np.uint8)

    return reduce
