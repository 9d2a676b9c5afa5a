"""Views as steps on strides."""

from __future__ import annotations

import numpy as np

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import PermuteAttributes, SliceAttributes
from gpuwire.ir.tensors import TensorType
from gpuwire.lowering.fusion.views import (
    View,
    is_each_element,
    is_each_row,
    per_row,
    seen_through,
)
from gpuwire.lowering.layouts import Placed

TURN = View("permute_dims", (6, 4), PermuteAttributes((1, 0)))
BACK = View("permute_dims", (4, 6), PermuteAttributes((1, 0)))


def _elements(placed: Placed | None) -> np.ndarray:
    assert placed is not None
    memory = np.arange(1000)
    return np.lib.stride_tricks.as_strided(
        memory[placed.offset :], placed.shape, [8 * stride for stride in placed.strides]
    )


def test_a_chain_reads_what_numpy_reads() -> None:
    placed = Placed(0, TensorType(dt.float32, (4, 6)), (6, 1), 0)
    chain = (
        TURN,
        View("slice", (3, 4), SliceAttributes((5, 0), (-2, 1), (3, 4))),
        View("reshape", (3, 2, 2)),
        View("broadcast_to", (5, 3, 2, 2)),
    )
    values = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(
        _elements(seen_through(placed, chain)),
        np.broadcast_to(values.T[5::-2].reshape(3, 2, 2), (5, 3, 2, 2)),
    )


def test_a_reshape_that_strides_cannot_say() -> None:
    placed = Placed(0, TensorType(dt.float32, (4, 6)), (6, 1), 0)
    assert seen_through(placed, (TURN, View("reshape", (24,)))) is None


def test_each_element_by_itself() -> None:
    assert is_each_element((4, 6), ())
    assert is_each_element((4, 6), (TURN, BACK))
    assert not is_each_element((4, 4), (View("permute_dims", (4, 4), PermuteAttributes((1, 0))),))
    assert not is_each_element((4, 1), (View("broadcast_to", (4, 6)),))
    assert is_each_element((4, 6), (View("reshape", (24,)), View("reshape", (4, 6))))


def test_each_row_by_itself() -> None:
    aligned = View("broadcast_to", (4, 6))
    assert is_each_row((4, 1), (aligned,), (4, 6), (1,))
    assert is_each_row((4,), (View("reshape", (4, 1)), aligned), (4, 6), (1,))
    assert is_each_row((6,), (aligned,), (4, 6), (0,))
    assert not is_each_row((4,), (View("broadcast_to", (4, 4)),), (4, 4), (1,))
    for kept in ((4, 1), (4,)):
        assert is_each_row(kept, per_row(kept, (4, 6), (1,)), (4, 6), (1,))
