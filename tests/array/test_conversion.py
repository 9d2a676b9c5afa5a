"""Arrays from Python and NumPy values, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.errors import ArgumentError, DTypeError, ScalarOutOfRange
from gpuwire.ir.dtypes import ALL_DTYPES, DType

Send = Callable[..., gw.Array]
Check = Callable[..., None]

GRID = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array = array.copy()
    array.flags.writeable = False
    return array


NUMPY_FORMS = {
    "contiguous": GRID,
    "every second": GRID[::2, 1:, ::2],
    "backward": GRID[::-1, :, ::-1],
    "transposed": GRID.transpose(2, 0, 1),
    "Fortran": np.asfortranarray(GRID),
    "broadcast": np.broadcast_to(GRID[:, :1], (2, 3, 4)),
    "big-endian": GRID.astype(">f4"),
    "big-endian column": GRID.astype(">f4")[:, 1],
    "read-only": read_only(GRID),
    "zero size": GRID[:, :0],
    "zero dimensions": np.array(2.5, np.float32),
    "scalar": np.float32(2.5),
    "odd bytes": np.arange(7, dtype=np.int8)[1:],
    "unaligned": np.frombuffer(b"\0" + bytes(range(16)), np.uint8)[1:].view("<i4"),
}


@pytest.mark.parametrize("form", NUMPY_FORMS)
def test_numpy_arrays_of_every_form_come_back_equal(form: str, send: Send, check: Check) -> None:
    array = NUMPY_FORMS[form]
    check(send(array), array, dtype=np.asarray(array).dtype.newbyteorder("=").name)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_every_data_type_comes_back_equal(dtype: DType, send: Send, check: Check) -> None:
    values = np.array([0, 1, 1, 0, 1]).astype(dtype.name)
    if dtype.is_integer:
        values[0], values[1] = np.iinfo(dtype.name).min, np.iinfo(dtype.name).max
    elif dtype.is_floating:
        values[0], values[1], values[2] = np.inf, np.nan, np.finfo(dtype.name).smallest_subnormal
    found = np.asarray(send(values))
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


def test_a_large_array_comes_back_equal(send: Send) -> None:
    values = np.random.default_rng(0).standard_normal((300, 700)).astype(np.float32)
    x = send(values)
    before = values.copy()
    values[:] = 0
    np.testing.assert_array_equal(np.asarray(x), before)


def test_what_was_sent_is_as_it_was_at_the_call(send: Send, check: Check) -> None:
    values = np.ones(5, np.float32)
    x = send(values)
    values[:] = 7
    check(x, np.ones(5, np.float32))


def test_python_values_get_the_default_types(device: gw.Device, send: Send, check: Check) -> None:
    integer = device.default_int.name
    check(send(3), 3, dtype=integer)
    check(send([1, 2]), [1, 2], dtype=integer)
    check(send([[1.0], [2.5]]), [[1.0], [2.5]], dtype="float32")
    check(send((True, False)), [True, False])
    check(send([1, 2.5]), [1, 2.5], dtype="float32")
    check(send([1, 2j]), [1, 2j], dtype="complex64")
    check(send([]), [], dtype="float32")
    check(send(range(3)), [0, 1, 2], dtype=integer)
    check(send([np.float32(1), np.float32(2)]), np.array([1, 2], np.float32))
    check(send([np.zeros(2, np.int8), np.ones(2, np.int8)]), np.array([[0, 0], [1, 1]], np.int8))


def test_asked_types(send: Send, check: Check) -> None:
    check(send([1, 2], dtype=gw.uint8), np.array([1, 2], np.uint8))
    check(send(np.array([1.7, -1.7]), dtype="int32"), np.array([1, -1], np.int32))
    check(send([0, 2], dtype=bool), [False, True])
    check(send([1], dtype=np.float16), np.array([1], np.float16))
    check(send([1], dtype=float), np.array([1], np.float32))
    check(send([1], dtype=complex), np.array([1], np.complex64))


@pytest.mark.parametrize(
    "value",
    [
        "text",
        b"bytes",
        ["a", "b"],
        [None],
        [[1, 2], [3]],
        object,
        np.array(["2020-01-01"], "M8[D]"),
        np.zeros(2, [("a", "i4"), ("b", "f4")]),
        np.array([{}], object),
    ],
    ids=str,
)
def test_elements_that_are_no_numbers_are_refused(value: Any, send: Send) -> None:
    with pytest.raises(DTypeError) as caught:
        send(value)
    assert isinstance(caught.value, TypeError)


def test_numbers_that_the_type_cannot_hold_are_refused(send: Send) -> None:
    with pytest.raises(ScalarOutOfRange, match="uint8, which holds 0 to 255"):
        send([255, 256], dtype=gw.uint8)
    with pytest.raises(ScalarOutOfRange, match="more than 64 bits"):
        send([2**70])
    with pytest.raises(ScalarOutOfRange, match="int64"):
        send([2**63])
    with pytest.raises(DTypeError, match="imaginary part"):
        send([1j], dtype=gw.float32)
    with pytest.raises(DTypeError, match="no data type 'float8'"):
        send([1], dtype="float8")


def test_copy(send: Send) -> None:
    x = send([1.0, 2.0])
    assert gw.asarray(x) is x
    assert gw.asarray(x, copy=False) is x
    assert gw.asarray(x, copy=True) is not x
    assert gw.asarray(x, dtype=gw.float16).dtype is gw.float16
    for value, options in (([1.0], {}), (np.ones(2), {}), (x, {"dtype": gw.float16})):
        with pytest.raises(ArgumentError, match="copy=False"):
            gw.asarray(value, device=x.device, copy=False, **options)


def test_lists_of_arrays_are_stacked(send: Send, check: Check) -> None:
    x = send([1.0, 2.0])
    check(gw.asarray([x, x]), np.array([[1, 2], [1, 2]], np.float32))
    check(gw.asarray([[x[0], 3], (x[1], 4)]), np.array([[1, 3], [2, 4]], np.float32))
    check(gw.asarray((x[0],), dtype=gw.int8), np.array([1], np.int8))


def test_numpy_gets_a_copy_of_its_own(send: Send) -> None:
    x = send([1.0, 2.0])
    first, second = np.asarray(x), x.to_numpy()
    first[0] = 9
    assert second[0] == 1
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.array(x)[0] == 1
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(x, copy=False)
