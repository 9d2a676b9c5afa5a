"""Linear algebra and gathering, on a real device, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.errors import ArgumentError, DTypeError, ShapeError

Send = Callable[..., gw.Array]
Check = Callable[..., None]

RANDOM = np.random.default_rng(2)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


SHAPES = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((5, 1, 2, 3), (4, 3, 2)),
    ((3,), (5, 3, 2)),
    ((5, 2, 3), (3,)),
    ((2, 0), (0, 3)),
    ((0, 3), (3,)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], send: Send, check: Check) -> None:
    x, y = normal(*left), normal(*right)
    wanted = x.astype(np.float64) @ y.astype(np.float64)
    check(gw.matmul(send(x), send(y)), wanted, dtype="float32", rtol=1e-5)


def test_matmul_of_integers_and_mixed_types(send: Send, check: Check) -> None:
    x, y = np.array([[1, 2], [3, 4]], np.int32), np.array([[5, 6], [7, 8]], np.int32)
    check(send(x) @ send(y), x @ y)
    check(send(x) @ send(y.astype(np.float32)), (x @ y).astype(np.float32))


@pytest.mark.parametrize(("left", "right"), [((2, 3), (4, 3)), ((), (3,)), ((3,), (4,))], ids=str)
def test_matmul_refuses(left: tuple[int, ...], right: tuple[int, ...], send: Send) -> None:
    with pytest.raises(ShapeError, match="matmul"):
        gw.matmul(send(normal(*left)), send(normal(*right)))


@pytest.mark.parametrize("axes", [0, 1, 2, ((0,), (1,)), ((-1, 0), (0, 1)), ((), ())], ids=str)
def test_tensordot(axes: Any, send: Send, check: Check) -> None:
    x, y = normal(3, 2, 4), normal(4, 3)
    if axes == 2:
        x, y = normal(5, 4, 3), normal(4, 3, 2)
    wanted = np.tensordot(x.astype(np.float64), y.astype(np.float64), axes)
    check(gw.tensordot(send(x), send(y), axes=axes), wanted, dtype="float32", rtol=1e-5)


def test_vecdot_and_outer(send: Send, check: Check) -> None:
    x, y = normal(2, 3, 4), normal(3, 4)
    check(gw.vecdot(send(x), send(y)), np.vecdot(x, y), rtol=1e-5)
    check(gw.vecdot(send(x), send(y), axis=-2), np.vecdot(x, y, axis=-2), rtol=1e-5)
    z = np.array([1 + 2j, 3 - 1j], np.complex64)
    check(gw.vecdot(send(z), send(z)), np.vecdot(z, z), rtol=1e-5)
    check(gw.outer(send(x[0, 0]), send(y[0])), np.outer(x[0, 0], y[0]), rtol=1e-6)
    check(gw.matrix_transpose(send(x)), x.mT)
    small = np.array([100, 100], np.int8)
    assert gw.vecdot(send(small), send(small)).dtype is gw.int8


def test_products_refuse(send: Send) -> None:
    x, y = send(normal(2, 3)), send(normal(4, 3))
    for wrong in (
        lambda: gw.tensordot(x, y, axes=1),
        lambda: gw.tensordot(x, y, axes=3),
        lambda: gw.tensordot(x, y, axes=((0,), (0,))),
        lambda: gw.vecdot(x, y),
        lambda: gw.outer(x, y),
    ):
        with pytest.raises(ShapeError):
            wrong()
    with pytest.raises(ArgumentError, match="negative"):
        gw.vecdot(x, x, axis=0)


def test_take(send: Send, check: Check) -> None:
    x = normal(3, 4)
    indices = np.array([2, 0, -1], np.int16)
    check(gw.take(send(x), send(indices), axis=0), x[indices])
    check(gw.take(send(x), send(indices), axis=-1), x[:, indices])
    check(gw.take(send(x[0]), send(indices)), x[0][indices])
    check(gw.take(send(x), send([[1, 0], [3, 2]]), axis=1), x[:, [[1, 0], [3, 2]]])
    with pytest.raises(ShapeError, match="name an axis"):
        gw.take(send(x), send(indices))
    with pytest.raises(DTypeError, match="integer indices"):
        gw.take(send(x), send([1.0]), axis=0)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along_axis(axis: int, send: Send, check: Check) -> None:
    x = normal(3, 2, 4)
    order = np.argsort(x, axis=axis)
    check(gw.take_along_axis(send(x), send(order), axis=axis), np.take_along_axis(x, order, axis))
    back = order - x.shape[axis]
    check(gw.take_along_axis(send(x), send(back), axis=axis), np.take_along_axis(x, back, axis))


def test_take_along_axis_broadcasts_the_rest(send: Send, check: Check) -> None:
    x, indices = normal(3, 4), np.array([[3, 0]])
    wanted = np.take_along_axis(x, np.broadcast_to(indices, (3, 2)), 1)
    check(gw.take_along_axis(send(x), send(indices), axis=1), wanted)
    with pytest.raises(ShapeError, match="1 dimensions of indices for 2"):
        gw.take_along_axis(send(x), send([1]))
    with pytest.raises(DTypeError, match="integer"):
        gw.take_along_axis(send(x), send([[1.0]]))
