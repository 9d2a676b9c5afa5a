"""Arrays as text: NumPy's form, and a word where there are no values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuwire as gw

Send = Callable[..., gw.Array]

ARRAYS = {
    "row": np.array([1.5, -2.0, np.nan], np.float32),
    "number": np.array(2, np.float32),
    "matrix": np.arange(6, dtype=np.int32).reshape(2, 3),
    "empty": np.zeros(0, np.float32),
    "empty rows": np.zeros((0, 3), np.float32),
    "booleans": np.array([True, False]),
    "complex": np.array([1 + 2j], np.complex64),
    "long": np.arange(5000, dtype=np.int32),
    "long rows": np.arange(9000, dtype=np.float32).reshape(3000, 3),
    "long columns": np.arange(9000, dtype=np.float32).reshape(3, 3000),
    "large": np.arange(20 * 30 * 10, dtype=np.int16).reshape(20, 30, 10),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_text_is_numpy_s(name: str, send: Send) -> None:
    array = ARRAYS[name]
    x = send(array)
    assert str(x) == str(array)
    # NumPy leaves the data type out where it is the obvious one.
    values = np.array2string(array, separator=", ", prefix="Array(", suffix=",")
    assert repr(x).startswith(f"Array({values}")
    assert repr(x).endswith(f"dtype={array.dtype.name})")
    assert (f"shape={array.shape}" in repr(x)) == (f"shape={array.shape}" in repr(array))
    assert max(len(line) for line in repr(x).splitlines()) <= 75


def test_of_a_large_array_only_the_edges_are_read(device: gw.Device) -> None:
    x = gw.zeros((1000, 1000), device=device)
    device.sync()
    before = device.stats().bytes_received
    assert "..." in repr(x)
    assert device.stats().bytes_received - before < 50_000


def test_print_options_are_numpy_s(send: Send) -> None:
    with np.printoptions(threshold=5, edgeitems=1, precision=2):
        array = np.array([1.23456, 2, 3, 4, 5, 6], np.float32)
        assert str(send(array)) == str(array)


def test_a_closed_device_shows_no_values_and_raises_nothing(server_ticket: str) -> None:
    with gw.connect(server_ticket) as device:
        x = gw.ones((2, 3), device=device)
    text = repr(x)
    assert "shape=(2, 3), dtype=float32" in text
    assert "DeviceClosed" in text
    assert "DeviceClosed" in str(x)


@pytest.mark.parametrize("spec", ["", ">8"])
def test_format(spec: str, send: Send) -> None:
    assert format(send(2.5), spec) == format(np.array(2.5), spec)
    wanted: Any = np.array([1.0], np.float32)
    assert format(send(wanted)) == str(wanted)
