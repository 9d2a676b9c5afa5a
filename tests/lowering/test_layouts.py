"""Operands that are views: strides of every kind, offsets, sizes that fill no word, and none."""

from __future__ import annotations

import numpy as np
import pytest

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    PermuteAttributes,
    ReduceAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import DType
from gpuwire.ir.tensors import Scalar
from gpuwire.lowering.layouts import collapsed
from gpuwire.lowering.plan_shapes import reshaped_strides
from lowered import Array, Machine

_DTYPES = (dt.bool_, dt.int8, dt.uint16, dt.float16, dt.float32, dt.int64, dt.complex128)


def _base(dtype: DType) -> Array:
    numbers = np.random.default_rng(1).integers(0, 120, 6 * 8 * 20)
    return (numbers % 2 if dtype is dt.bool_ else numbers).astype(dtype.numpy)


def _views(base: Array) -> dict[str, Array]:
    cube = base.reshape(6, 8, 20)
    return {
        "contiguous": cube,
        "odd": base[:87],
        "one": base[5:6],
        "zero-dimensional": cube[2, 3, 4],
        "offset": base[3:103],
        "aligned offset": base[64:164],
        "transposed": cube.transpose(2, 0, 1),
        "inner transposed": cube.transpose(1, 0, 2),
        "negative": base[::-1],
        "negative rows": cube[::-1, :, ::-2],
        "stepped": base[1::3],
        "rows": cube[1:5, 2:7],
        "columns": cube[:, :, 4:12],
        "odd columns": cube[:, :, 3:10],
        "broadcast": np.broadcast_to(cube[0, 0], (5, 20)),
        "broadcast column": np.broadcast_to(cube[:, :1, 0], (6, 4)),
        "empty": cube[:, 3:3],
    }


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_copies_of_views(machine: Machine, dtype: DType) -> None:
    for name, view in _views(_base(dtype)).items():
        got = machine.download(machine.view(np.asarray(view)))
        np.testing.assert_array_equal(got, view, name)


@pytest.mark.parametrize("dtype", (dt.int8, dt.float16, dt.float32), ids=str)
def test_two_operands_of_different_layouts(machine: Machine, dtype: DType) -> None:
    cube = _base(dtype).reshape(6, 8, 20)
    other = _base(dtype)[::-1].copy()
    for left, right in (
        (cube, other[:20]),
        (cube, other[:8].reshape(8, 1)),
        (cube, other[:6].reshape(6, 1, 1)),
        (cube, other[7:8]),
        (cube.transpose(0, 2, 1), other.reshape(6, 20, 8)),
        (cube[:, ::-1], other.reshape(6, 8, 20)),
        (cube[:, :, 1:6], other[:40].reshape(8, 5)),
        (cube[0, 0].reshape(20, 1), other[:20]),
        (cube[3, 2, 1], cube),
        (cube[:, :0], other[:20]),
    ):
        got = machine.run("add", np.asarray(left), np.asarray(right))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(got, left + right)


def test_results_that_fill_no_word_leave_their_neighbours(machine: Machine) -> None:
    for count in range(1, 10):
        values = np.arange(count, dtype=np.int8)
        for dtype in (np.int8, np.int16, np.bool_):
            array = values.astype(dtype)
            got = machine.run("equal", array, array.copy())
            np.testing.assert_array_equal(got, np.ones(count, bool))
            np.testing.assert_array_equal(machine.run("where", array == array, array, array), array)


def test_views_cost_nothing(machine: Machine) -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    whole = machine.upload(values)
    kernels = machine.lowering.kernel_count
    swapped = machine.apply("permute_dims", whole, attributes=PermuteAttributes((2, 0, 1)))
    part = machine.apply(
        "slice", swapped, attributes=SliceAttributes((3, 0, 2), (-1, 1, -2), (3, 2, 2))
    )
    spread = machine.apply("broadcast_to", part, attributes=ShapeAttributes((5, 3, 2, 2)))
    flat = machine.apply("reshape", whole, attributes=ShapeAttributes((4, 6)))
    grouped = machine.apply("reshape", swapped, attributes=ShapeAttributes((2, 2, 2, 3, 1)))
    assert machine.lowering.kernel_count == kernels
    assert {v.handle for v in (swapped, part, spread, flat, grouped)} == {whole.handle}
    want = values.transpose(2, 0, 1)[3:0:-1, :, ::-2]
    np.testing.assert_array_equal(machine.download(part), want)
    np.testing.assert_array_equal(machine.download(spread), np.broadcast_to(want, (5, 3, 2, 2)))
    np.testing.assert_array_equal(machine.download(flat), values.reshape(4, 6))
    np.testing.assert_array_equal(
        machine.download(grouped), values.transpose(2, 0, 1).reshape(2, 2, 2, 3, 1)
    )


def test_reshape_copies_where_strides_cannot_say_it(machine: Machine) -> None:
    values = np.arange(24, dtype=np.int16).reshape(4, 6)
    for view, shape in ((values.T, (24,)), (values[:, ::-1], (3, 8)), (values.T, (3, 2, 4))):
        got = machine.run("reshape", view, attributes=ShapeAttributes(shape))
        np.testing.assert_array_equal(got, view.reshape(shape))


def test_a_new_shape_or_stride_is_no_new_kernel(machine: Machine) -> None:
    values = np.arange(10_000, dtype=np.float32)
    machine.run("subtract", values[:1200].reshape(12, 100).T, Scalar(1.0, dt.float32))
    kernels = machine.lowering.kernel_count
    got = machine.run("subtract", values[:2400].reshape(60, 40).T, Scalar(3.0, dt.float32))
    assert machine.lowering.kernel_count == kernels
    np.testing.assert_array_equal(got, values[:2400].reshape(60, 40).T - 3)


def test_reshaped_strides_agree_with_numpy() -> None:
    random = np.random.default_rng(0)
    shapes = [(4, 6, 2), (2, 2, 12), (48,), (8, 6), (3, 16), (1, 48, 1), (4, 1, 12), (2, 3, 2, 4)]
    agreed = 0
    for _ in range(300):
        old, new = (shapes[i] for i in random.integers(0, len(shapes), 2))
        axes = random.permutation(len(old))
        view = np.zeros(old, np.int8).transpose(axes)[tuple(slice(None, None, 1) for _ in old)]
        strides = reshaped_strides(view.shape, view.strides, new)
        again = view.reshape(new)
        is_view = again.base is not None and np.shares_memory(again, view)
        assert (strides is not None) == is_view
        if strides is not None:
            agreed += 1
            assert all(
                mine == theirs
                for mine, theirs, length in zip(strides, again.strides, new, strict=True)
                if length != 1
            )
    assert agreed > 50


def test_collapsed_merges_what_walks_as_one() -> None:
    assert collapsed((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ((24,), [(1,), (1,)])
    assert collapsed((2, 3, 4), [(12, 4, 1), (4, 0, 1)]) == ((2, 3, 4), [(12, 4, 1), (4, 0, 1)])
    assert collapsed((2, 1, 4), [(4, 99, 1)]) == ((8,), [(1,)])
    assert collapsed((5, 5), [(0, 0)]) == ((25,), [(0,)])
    assert collapsed((1, 1), [(7, 3)]) == ((), [()])


def test_empty_tensors(machine: Machine) -> None:
    empty = np.empty((3, 0), np.float32)
    assert machine.run("add", empty, np.ones((3, 1), np.float32)).shape == (3, 0)
    assert machine.run("sin", np.empty(0, np.complex64)).shape == (0,)
    got = machine.run("sum", empty, attributes=ReduceAttributes((0,), False, dt.float32))
    assert got.shape == (0,)
