"""Making arrays, on a real device, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.errors import ArgumentError, DTypeError, ScalarOutOfRange, ShapeError

Send = Callable[..., gw.Array]
Check = Callable[..., None]


def test_constant_arrays(device: gw.Device, check: Check) -> None:
    check(gw.zeros((2, 3), device=device), np.zeros((2, 3), np.float32))
    check(gw.zeros(4, dtype=gw.int8, device=device), np.zeros(4, np.int8))
    check(gw.ones((2, 0), dtype="bool", device=device), np.ones((2, 0), bool))
    check(gw.empty((), device=device), np.zeros((), np.float32))
    check(gw.full((2, 2), 7, device=device), np.full((2, 2), 7), dtype=device.default_int.name)
    check(gw.full(2, 1.5, device=device), np.full(2, 1.5, np.float32))
    check(gw.full(2, True, device=device), [True, True])
    check(gw.full(1, 1j, device=device), np.array([1j], np.complex64))
    check(gw.full(2, gw.ones((), device=device), device=device), np.ones(2, np.float32))


def test_arrays_like_others(send: Send, check: Check) -> None:
    x = send(np.zeros((2, 3), np.int16))
    check(gw.ones_like(x), np.ones((2, 3), np.int16))
    check(gw.zeros_like(x, dtype=gw.float32), np.zeros((2, 3), np.float32))
    check(gw.full_like(x, 5), np.full((2, 3), 5, np.int16))
    assert gw.empty_like(x).shape == (2, 3)
    assert gw.ones_like(x).device is x.device


@pytest.mark.parametrize(
    "arguments", [(5,), (2, 7), (7, 2, -2), (0, 1, 0.25), (1.5,), (3, 3), (5, 2), (0, 10, 3)]
)
def test_arange(arguments: tuple[float, ...], device: gw.Device, check: Check) -> None:
    wanted = np.arange(*arguments)
    dtype = "float32" if wanted.dtype == np.float64 else device.default_int.name
    check(gw.arange(*arguments, device=device), wanted, dtype=dtype)


def test_arange_of_a_given_type(device: gw.Device, check: Check) -> None:
    check(gw.arange(3, dtype=gw.float16, device=device), np.arange(3, dtype=np.float16))
    with pytest.raises(ArgumentError, match="step must not be 0"):
        gw.arange(1, 5, 0, device=device)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((0, 1, 11), {}),
        ((1, -3.3, 4), {}),
        ((0, 10, 4), {"endpoint": False}),
        ((2, 5, 1), {}),
        ((2, 5, 0), {}),
        ((0, 1j, 3), {}),
    ],
)
def test_linspace(
    arguments: tuple[Any, ...], options: dict[str, Any], device: gw.Device, check: Check
) -> None:
    wanted = np.linspace(*arguments, **options)
    found = gw.linspace(*arguments, device=device, **options)
    check(found, wanted, dtype="complex64" if wanted.dtype.kind == "c" else "float32", rtol=1e-6)
    if len(wanted) > 1 and not options:
        assert found[-1].item() == np.asarray(arguments[1], np.asarray(found).dtype)


@pytest.mark.parametrize("k", [-(2**40), -3, -1, 0, 2, 5, 2**31])
def test_diagonals_and_triangles(k: int, send: Send, device: gw.Device, check: Check) -> None:
    grid = np.arange(1, 25, dtype=np.int32).reshape(2, 3, 4)
    check(gw.tril(send(grid), k=k), np.tril(grid, k))
    check(gw.triu(send(grid), k=k), np.triu(grid, k))
    check(gw.eye(3, 4, k=k, device=device), np.eye(3, 4, k, dtype=np.float32))


def test_eye_of_one_length(device: gw.Device, check: Check) -> None:
    check(gw.eye(2, dtype=gw.int8, device=device), np.eye(2, dtype=np.int8))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid(indexing: Any, send: Send, check: Check) -> None:
    arrays = [np.arange(n, dtype=np.float32) for n in (2, 3, 4)]
    wanted = np.meshgrid(*arrays, indexing=indexing)
    found = gw.meshgrid(*(send(array) for array in arrays), indexing=indexing)
    for one, other in zip(found, wanted, strict=True):
        check(one, other)


def test_arguments_that_cannot_be_are_refused(send: Send, device: gw.Device) -> None:
    with pytest.raises(ArgumentError, match="negative lengths"):
        gw.zeros((2, -1), device=device)
    with pytest.raises(DTypeError, match="a shape is integers"):
        gw.zeros(2.5, device=device)  # type: ignore[arg-type]
    with pytest.raises(ScalarOutOfRange):
        gw.full(2, 300, dtype=gw.uint8, device=device)
    with pytest.raises(DTypeError, match="not str"):
        gw.full(2, "a", device=device)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="floating-point numbers, not int32"):
        gw.linspace(0, 1, 3, dtype=gw.int32, device=device)
    with pytest.raises(ShapeError, match="two dimensions"):
        gw.tril(send([1, 2]))
    with pytest.raises(ShapeError, match="one-dimensional"):
        gw.meshgrid(send([[1]]))
