"""Statistical, searching and utility functions, on a real device, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.errors import ArgumentError, AxisError, DTypeError, ShapeError

Send = Callable[..., gw.Array]
Check = Callable[..., None]

GRID = np.random.default_rng(1).normal(3, 2, (3, 4, 5)).astype(np.float32)
AXES: list[Any] = [None, 0, -1, (0, 2), (1, 0, 2), ()]


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_reductions_over_axes(axis: Any, send: Send, check: Check) -> None:
    x, wide = send(GRID), GRID.astype(np.float64)
    for name in ("sum", "mean", "prod"):
        wanted = getattr(np, name)(wide, axis=axis)
        check(getattr(gw, name)(x, axis=axis), wanted, dtype="float32", rtol=1e-5)
    for name in ("min", "max"):
        check(getattr(gw, name)(x, axis=axis), getattr(np, name)(GRID, axis=axis))
    flags = GRID > 3
    for name in ("any", "all"):
        check(getattr(gw, name)(send(flags), axis=axis), getattr(np, name)(flags, axis=axis))


def test_dimensions_are_kept_on_request(send: Send, check: Check) -> None:
    x = send(GRID)
    check(gw.sum(x, axis=(0, 2), keepdims=True), GRID.sum((0, 2), keepdims=True), rtol=1e-5)
    check(gw.max(x, keepdims=True), GRID.max(keepdims=True))
    assert gw.argmax(x, keepdims=True).shape == (1, 1, 1)
    assert gw.argmax(x, axis=1, keepdims=True).shape == (3, 1, 5)


@pytest.mark.parametrize("correction", [0, 1, 1.5])
def test_variance_and_deviation(correction: float, send: Send, check: Check) -> None:
    x, wide = send(GRID + 1000), (GRID + np.float32(1000)).astype(np.float64)
    for name in ("var", "std"):
        wanted = getattr(np, name)(wide, axis=(0, 1), ddof=correction)
        found = getattr(gw, name)(x, axis=(0, 1), correction=correction)
        check(found, wanted, dtype="float32", rtol=1e-4)
    check(gw.var(x, keepdims=True), wide.var(keepdims=True), dtype="float32", rtol=1e-4)


def test_variance_of_complex_numbers_and_of_too_few(send: Send, check: Check) -> None:
    x = np.array([1 + 1j, 2 - 1j, 0], np.complex64)
    check(gw.var(send(x)), np.var(x), rtol=1e-5)
    assert np.isnan(gw.var(send([1.0]), correction=1).item())


def test_result_types(device: gw.Device, send: Send, check: Check) -> None:
    integer = device.default_int
    assert gw.sum(send([1, 2], dtype=gw.int8)).dtype is integer
    assert gw.prod(send([1, 2], dtype=gw.uint8)).dtype is (
        gw.uint64 if integer is gw.int64 else gw.uint32
    )
    assert gw.sum(send([True, True])).dtype is integer
    assert gw.sum(send([1.0], dtype=gw.float16)).dtype is gw.float16
    assert gw.sum(send([1.0], dtype=gw.float64)).dtype is gw.float64
    check(gw.sum(send([100, 100, 100], dtype=gw.int8)), np.int64(300), dtype=integer.name)
    check(gw.sum(send([1.5, 2.5]), dtype=gw.int32), np.int32(3))
    check(gw.sum(send([100, 100], dtype=gw.uint8), dtype=gw.float32), np.float32(200))
    check(gw.mean(send([1, 2])), np.float32(1.5))
    check(gw.max(send([True, False])), np.True_)
    assert gw.mean(send([1.0], dtype=gw.float64)).dtype is gw.float64


def test_no_elements(send: Send, check: Check) -> None:
    x = send(np.zeros((0, 2), np.float32))
    check(gw.sum(x, axis=0), np.zeros(2, np.float32))
    check(gw.prod(x), np.float32(1))
    check(gw.any(x), np.False_)
    check(gw.all(x), np.True_)
    assert np.isnan(gw.mean(x).item())
    for function in (gw.max, gw.argmin):
        with pytest.raises(ShapeError, match="no elements"):
            function(x)


def test_searching(device: gw.Device, send: Send, check: Check) -> None:
    x, integer = send(GRID), device.default_int.name
    for axis in (None, 0, -1):
        check(gw.argmax(x, axis=axis), GRID.argmax(axis), dtype=integer)
        check(gw.argmin(x, axis=axis), GRID.argmin(axis), dtype=integer)
    zeros = np.where(GRID > 3, GRID, np.float32(0))
    check(gw.count_nonzero(send(zeros)), np.count_nonzero(zeros), dtype=integer)
    check(gw.count_nonzero(x > 3, axis=1), np.count_nonzero(GRID > 3, axis=1), dtype=integer)


def test_where(send: Send, check: Check) -> None:
    x = send(GRID)
    check(gw.where(x > 3, x, -x), np.where(GRID > 3, GRID, -GRID))
    check(gw.where(x > 3, x, 0), np.where(GRID > 3, GRID, np.float32(0)))
    check(gw.where(x[0] > 3, 1.5, x), np.where(GRID[0] > 3, np.float32(1.5), GRID))
    check(gw.where(x > 3, 1.0, 0), np.where(GRID > 3, np.float32(1), np.float32(0)))
    with pytest.raises(DTypeError, match="boolean condition"):
        gw.where(x, x, x)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", [0, 1, 5, 8])
def test_searchsorted(side: Any, length: int, device: gw.Device, send: Send, check: Check) -> None:
    ordered = np.sort(np.array([3, 1, 4, 1, 5, 9, 2, 6], np.float32)[:length])
    values = np.array([[0, 1, 4.5], [9, 10, 2]], np.float32)
    wanted = np.searchsorted(ordered, values, side)
    found = gw.searchsorted(send(ordered), send(values), side=side)
    check(found, wanted, dtype=device.default_int.name)
    backward = gw.arange(length - 1, -1, -1, device=device)
    if length:
        found = gw.searchsorted(send(ordered[::-1]), send(values), side=side, sorter=backward)
        check(found, wanted, dtype=device.default_int.name)


@pytest.mark.parametrize("length", [0, 1, 5, 8])
def test_cumulative_sums_and_products(
    length: int, device: gw.Device, send: Send, check: Check
) -> None:
    x = np.arange(1, 2 * length + 1, dtype=np.float32).reshape(length, 2) / 4
    check(gw.cumulative_sum(send(x), axis=0), np.cumulative_sum(x, axis=0), rtol=1e-6)
    check(gw.cumulative_prod(send(x), axis=0), np.cumulative_prod(x, axis=0), rtol=1e-6)
    integers = np.arange(length, dtype=np.int32)
    check(
        gw.cumulative_sum(send(integers), include_initial=True),
        np.cumulative_sum(integers, include_initial=True),
        dtype=device.default_int.name,
    )


def test_differences(send: Send, check: Check) -> None:
    x = send(GRID)
    check(gw.diff(x), np.diff(GRID))
    check(gw.diff(x, axis=0, n=2), np.diff(GRID, axis=0, n=2))
    check(gw.diff(x, n=9), np.diff(GRID, n=9))
    check(gw.diff(x, n=0), GRID)
    first = GRID[..., :1]
    check(gw.diff(x, prepend=send(first), append=x), np.diff(GRID, prepend=first, append=GRID))
    check(gw.diff(send([True, False, False])), [True, False])


def test_arguments_that_cannot_be_are_refused(send: Send) -> None:
    x = send(GRID)
    for wrong in (
        lambda: gw.sum(x, axis=3),
        lambda: gw.sum(x, axis=(0, 0)),
        lambda: gw.argmax(x, axis=-4),
    ):
        with pytest.raises(AxisError) as caught:
            wrong()
        assert isinstance(caught.value, IndexError)
        assert isinstance(caught.value, ValueError)
    for wrong in (
        lambda: gw.cumulative_sum(x),
        lambda: gw.searchsorted(x, x),
    ):
        with pytest.raises(ShapeError):
            wrong()
    with pytest.raises(DTypeError, match="an axis is an integer"):
        gw.sum(x, axis=1.5)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="max takes real numbers"):
        gw.max(send([1j]))
    with pytest.raises(DTypeError, match="numbers, not bool"):
        gw.cumulative_sum(send([True]))
    with pytest.raises(ArgumentError, match='"left" or "right"'):
        gw.searchsorted(x[0, 0], x, side="middle")
    with pytest.raises(ArgumentError, match="negative"):
        gw.diff(x, n=-1)
