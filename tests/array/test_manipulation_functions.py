"""Other shapes of the same elements, on a real device, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.errors import ArgumentError, ShapeError

Send = Callable[..., gw.Array]
Check = Callable[..., None]

GRID = np.arange(24, dtype=np.int32).reshape(2, 3, 4)

CASES: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("reshape", lambda xp, x: xp.reshape(x, (4, 6))),
    ("reshape unknown", lambda xp, x: xp.reshape(x, (2, -1, 3))),
    ("reshape flat", lambda xp, x: xp.reshape(x, -1)),
    ("reshape same", lambda xp, x: xp.reshape(x, (2, 3, 4))),
    ("permute_dims", lambda xp, x: xp.permute_dims(x, (2, 0, -2))),
    ("moveaxis", lambda xp, x: xp.moveaxis(x, 0, -1)),
    ("moveaxis several", lambda xp, x: xp.moveaxis(x, (0, 1), (-1, 0))),
    ("expand_dims", lambda xp, x: xp.expand_dims(x, axis=1)),
    ("expand_dims several", lambda xp, x: xp.expand_dims(x, axis=(0, -1))),
    ("squeeze", lambda xp, x: xp.squeeze(x[:1, :, :1], axis=(0, 2))),
    ("flip", lambda xp, x: xp.flip(x)),
    ("flip some", lambda xp, x: xp.flip(x, axis=(0, -1))),
    ("flip none", lambda xp, x: xp.flip(x[:, :0], axis=1)),
    ("roll", lambda xp, x: xp.roll(x, 5)),
    ("roll axis", lambda xp, x: xp.roll(x, -1, axis=1)),
    ("roll several", lambda xp, x: xp.roll(x, (1, 6), axis=(0, 2))),
    ("roll twice", lambda xp, x: xp.roll(x, (1, 2), axis=(2, 2))),
    ("broadcast_to", lambda xp, x: xp.broadcast_to(x[:, :1], (3, 2, 5, 4))),
    ("concat", lambda xp, x: xp.concat([x, x[:, :1], x[:, :0]], axis=1)),
    ("concat flat", lambda xp, x: xp.concat([x, x[0]], axis=None)),
    ("stack", lambda xp, x: xp.stack([x[0], x[1], x[0]], axis=-1)),
    ("repeat", lambda xp, x: xp.repeat(x, 2)),
    ("repeat axis", lambda xp, x: xp.repeat(x, 3, axis=1)),
    ("repeat each", lambda xp, x: xp.repeat(x, np.array([2, 0, 1]), axis=1)),
    ("tile", lambda xp, x: xp.tile(x, (2, 1, 3))),
    ("tile fewer", lambda xp, x: xp.tile(x, (2,))),
    ("tile more", lambda xp, x: xp.tile(x[0], (2, 1, 1, 2))),
]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[name for name, _ in CASES])
def test_results_are_numpy_s(
    name: str, case: Callable[[Any, Any], Any], send: Send, check: Check
) -> None:
    check(case(gw, send(GRID)), case(np, GRID))


def test_types_promote(send: Send, check: Check) -> None:
    parts = [np.array([1], np.int8), np.array([2], np.uint8)]
    check(gw.concat([send(part) for part in parts]), np.array([1, 2], np.int16))
    check(gw.stack([send(part) for part in parts]), np.array([[1], [2]], np.int16))


def test_repeat_by_counts_on_the_device(send: Send, check: Check) -> None:
    counts = np.array([2, 0, 1, 3])
    check(gw.repeat(send(GRID), send(counts), axis=-1), np.repeat(GRID, counts, axis=-1))


def test_unstack_and_broadcast_arrays(send: Send, check: Check) -> None:
    for found, wanted in zip(
        gw.unstack(send(GRID), axis=-2), np.unstack(GRID, axis=1), strict=True
    ):
        check(found, wanted)
    several = gw.broadcast_arrays(send(GRID[:1]), send(GRID[0, 0]), send(1))
    assert [array.shape for array in several] == [(1, 3, 4)] * 3
    check(several[1], np.broadcast_to(GRID[0, 0], (1, 3, 4)))
    assert gw.broadcast_arrays() == []


def test_arguments_that_cannot_be_are_refused(send: Send) -> None:
    x = send(GRID)
    for wrong in (
        lambda: gw.reshape(x, (5, -1)),
        lambda: gw.reshape(x, (-1, -1)),
        lambda: gw.reshape(x, (2, 3)),
        lambda: gw.permute_dims(x, (0, 1)),
        lambda: gw.permute_dims(x, (0, 1, 1)),
        lambda: gw.squeeze(x, axis=0),
        lambda: gw.flip(x, axis=3),
        lambda: gw.stack([x, x[0]]),
        lambda: gw.concat([x, x[0]]),
        lambda: gw.broadcast_to(x, (3, 4)),
        lambda: gw.moveaxis(x, (0, 1), 0),
        lambda: gw.repeat(x, [1, 2], axis=1),
        lambda: gw.unstack(send(1)),
    ):
        with pytest.raises(ShapeError):
            wrong()
    for wrong in (
        lambda: gw.concat([]),
        lambda: gw.stack([]),
        lambda: gw.roll(x, (1, 2)),
        lambda: gw.roll(x, (1, 2), axis=0),
        lambda: gw.repeat(x, -1),
        lambda: gw.repeat(x, 1.5),
    ):
        with pytest.raises(ArgumentError):
            wrong()
