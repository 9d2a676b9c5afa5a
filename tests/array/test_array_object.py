"""Operators, indexing and conversion of arrays on a real device, against NumPy."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.errors import (
    ArgumentError,
    DeviceMismatch,
    DTypeError,
    IndexingError,
    NotSupported,
    ScalarOutOfRange,
    ShapeError,
)

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv]
ARITHMETIC += [operator.mod, operator.pow]
COMPARISON = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
IN_PLACE = ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"]

Send = Callable[..., gw.Array]
Check = Callable[..., None]
Function = Callable[..., Any]


@pytest.fixture(scope="module")
def floats() -> np.ndarray[Any, Any]:
    return np.array([[1.5, 2.25, 3.0], [0.5, 4.0, 2.0]], np.float32)


@pytest.fixture(scope="module")
def integers() -> np.ndarray[Any, Any]:
    return np.array([[1, 2, 3], [7, 4, 5]], np.int32)


# --- Operators -------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [*ARITHMETIC, *COMPARISON])
def test_operators_of_floats(
    function: Function, floats: np.ndarray[Any, Any], send: Send, check: Check
) -> None:
    x, row = send(floats), floats[1]
    check(function(x, send(row)), function(floats, row), rtol=1e-6)
    check(function(x, 2.0), function(floats, np.float32(2.0)), rtol=1e-6)
    check(function(2, x), function(np.float32(2), floats), rtol=1e-6)


@pytest.mark.parametrize("function", [*BITS, operator.add, operator.floordiv, operator.mod])
def test_operators_of_integers(
    function: Function, integers: np.ndarray[Any, Any], send: Send, check: Check
) -> None:
    x, row = send(integers), integers[0]
    check(function(x, send(row)), function(integers, row))
    check(function(x, 3), function(integers, np.int32(3)))
    check(function(3, x), function(np.int32(3), integers))


def test_unary_operators(floats: np.ndarray[Any, Any], send: Send, check: Check) -> None:
    x = send(floats)
    check(-x, -floats)
    check(+x, floats)
    check(abs(send(-floats)), floats)
    check(~send(np.array([1, -2], np.int16)), np.array([-2, 1], np.int16))
    check(~send([True, False]), [False, True])


def test_true_division_of_integers_gives_the_default_float(send: Send, check: Check) -> None:
    x = send(np.array([1, 2], np.int32))
    check(x / 4, np.array([0.25, 0.5], np.float32))
    check(1 / x, np.array([1, 0.5], np.float32))
    check(x / x, np.ones(2, np.float32))


def test_matmul(floats: np.ndarray[Any, Any], send: Send, check: Check) -> None:
    x, vector = send(floats), floats[0]
    check(x @ x.T, floats @ floats.T, rtol=1e-6)
    check(x @ send(vector), floats @ vector, rtol=1e-6)
    check(send(vector) @ x.T, vector @ floats.T, rtol=1e-6)
    with pytest.raises(TypeError, match="unsupported operand"):
        x @ "text"
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(2, 3\)"):
        x @ x


def test_python_numbers_do_not_widen(send: Send) -> None:
    assert (send([1], dtype=gw.int8) + 1).dtype is gw.int8
    assert (send([1], dtype=gw.int8) * 0.5).dtype is gw.float32
    assert (send([1.0], dtype=gw.float16) * 0.5).dtype is gw.float16
    assert (send([1.0], dtype=gw.float16) * np.float64(0.5)).dtype is gw.float16
    assert (send([1.0]) * 1j).dtype is gw.complex64
    assert (send([True]) + 1).dtype is send([1]).dtype
    assert (send([1], dtype=gw.int8) + send([1], dtype=gw.uint8)).dtype is gw.int16


def test_a_python_integer_that_does_not_fit_is_refused(send: Send) -> None:
    x = send([1], dtype=gw.uint8)
    for number in (256, -1):
        with pytest.raises(ScalarOutOfRange, match="uint8, which holds 0 to 255") as caught:
            x + number
        assert isinstance(caught.value, OverflowError)
        assert caught.value.fields["dtype"] == "uint8"
    with pytest.raises(ScalarOutOfRange, match="bits is outside float32"):
        send([1.0]) + 10**400


def test_negative_powers_of_integers_are_refused(send: Send) -> None:
    with pytest.raises(ArgumentError, match="no negative powers"):
        send([1, 2]) ** -1


def test_operators_leave_other_classes_their_turn(send: Send) -> None:
    class Other:
        def __radd__(self, other: object) -> str:
            return "other's"

    x = send([1.0])
    assert x + Other() == "other's"
    assert (x == None) is False  # noqa: E711
    assert (x != "text") is True
    for wrong in (None, "text", [1.0]):
        with pytest.raises(TypeError):
            x + wrong


def test_shapes_and_types_are_refused_at_the_call(send: Send) -> None:
    with pytest.raises(ShapeError, match="do not broadcast"):
        send([1, 2]) + send([1, 2, 3])
    with pytest.raises(DTypeError, match="integers or booleans"):
        send([1.0]) & send([1.0])
    with pytest.raises(DTypeError, match="uint64 and int64"):
        send([1], dtype=gw.uint64) + send([1], dtype=gw.int64)


# --- In place --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operators(
    name: str, floats: np.ndarray[Any, Any], send: Send, check: Check
) -> None:
    function = getattr(operator, name)
    x, wanted = send(floats), floats.copy()
    alias, copied = x, copy.copy(x)
    x = function(x, 2.0)
    wanted = function(wanted, np.float32(2.0))
    check(alias, wanted, rtol=1e-6)
    check(copied, floats)


def test_in_place_keeps_type_and_shape(send: Send, check: Check) -> None:
    x = send([1, 2], dtype=gw.int32)
    x += send([1, 1], dtype=gw.int8)
    x <<= 2
    x |= 1
    check(x, np.array([9, 13], np.int32))
    half = send([1.0, 2.0], dtype=gw.float16)
    half *= send([2.0, 2.0], dtype=gw.float32)
    check(half, np.array([2, 4], np.float16))
    for function, other in ((operator.itruediv, 2), (operator.imul, 0.5), (operator.iadd, 1j)):
        with pytest.raises(DTypeError, match="in place would make int32 into"):
            function(x, other)
    with pytest.raises(ShapeError, match="does not broadcast"):
        x += send([[1, 2], [3, 4]], dtype=gw.int32)
    square = send([[1.0, 1.0], [0.0, 1.0]])
    square @= square
    check(square, np.array([[1, 2], [0, 1]], np.float32))


def test_what_a_function_gives_is_not_changed_through_its_argument(
    send: Send, check: Check
) -> None:
    x = send([1.0, 2.0])
    others = [x[:], x[...], gw.reshape(x, (2,)), gw.astype(x, x.dtype), gw.clip(x)]
    others += [gw.broadcast_to(x, (2,)), gw.roll(x, 0), *gw.meshgrid(x), gw.asarray(x, copy=True)]
    x += 1
    for other in others:
        check(other, np.array([1, 2], np.float32))


# --- Indexing --------------------------------------------------------------------------------

KEYS: list[Any] = [
    1,
    -1,
    (0, 2),
    slice(None, None, -1),
    (slice(None), slice(None, None, -2)),
    (Ellipsis, 0),
    (None, slice(1, None), 1, None),
    (slice(3, 1), Ellipsis),
    [1, 0, 1, -1],
    (slice(None), [2, 0]),
    ([0, 1], [2, -3]),
    (slice(None), np.array([[0, 1], [2, 2]])),
    (np.array([[True, False, True], [False, False, True]]),),
    (slice(None), np.array([True, False, True])),
    (np.array([False, False]),),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_reading_selects_what_numpy_s_does(
    key: Any, floats: np.ndarray[Any, Any], send: Send, check: Check
) -> None:
    check(send(floats)[key], floats[key])


def test_index_arrays_on_the_device(floats: np.ndarray[Any, Any], send: Send, check: Check) -> None:
    x, rows, columns = send(floats), np.array([1, -2]), np.array([[0], [-1]])
    check(x[send(rows)], floats[rows])
    check(x[:, send(columns)], floats[:, columns])
    check(x[send(rows), send(columns)], floats[rows, columns])
    check(x[send(rows), columns], floats[rows, columns])
    check(x[x > 1.8], floats[floats > 1.8])
    check(x[send(1)], floats[1])
    check(x[send(True)], floats[None])
    check(x[send(False)], floats[np.array(False)])


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_writing_replaces_what_numpy_s_does(
    key: Any, floats: np.ndarray[Any, Any], send: Send, check: Check
) -> None:
    x, wanted = send(floats), floats.copy()
    before = x[:]
    x[key] = 9
    wanted[key] = 9
    check(x, wanted)
    value = np.arange(wanted[key].size)[::-1].reshape(wanted[key].shape)
    x[key] = send(value)
    wanted[key] = value
    check(x, wanted)
    check(before, floats)


def test_writing_by_masks_and_from_host_values(
    floats: np.ndarray[Any, Any], send: Send, check: Check
) -> None:
    x, wanted = send(floats), floats.copy()
    x[x > 2.0] = 0
    wanted[wanted > 2.0] = 0
    x[np.array([False, True])] = [7.5, 8, 9]
    wanted[np.array([False, True])] = [7.5, 8, 9]
    x[0] = np.array([1.0, 2.0, 3.0])
    wanted[0] = [1, 2, 3]
    x[:, 1] = send([[5], [6]])[:, 0]
    wanted[:, 1] = [5, 6]
    check(x, wanted)
    x[x > 5], wanted[wanted > 5] = x[x > 5] * 2, wanted[wanted > 5] * 2
    x[send([1, 0]), send([0, 0])], wanted[[1, 0], [0, 0]] = 1.5, 1.5
    x[:, [0, 2, 0]], wanted[:, [0, 2, 0]] = [[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]
    x[::-1, send([1])] += 1
    wanted[::-1, [1]] += 1
    check(x, wanted)
    integers = send([1, 2, 3], dtype=gw.int32)
    integers[0], integers[integers == 3] = 2.9, -1.5
    check(integers, np.array([2, 2, -1], np.int32))


def test_keys_and_values_that_cannot_be_are_refused(send: Send) -> None:
    x = send([[1, 2, 3], [4, 5, 6]], dtype=gw.int8)
    for key in (2, (0, 3), [2], (slice(None), [0, -4]), 1.5, [0.5], "a", (0, 0, 0)):
        with pytest.raises(IndexingError):
            x[key]
    with pytest.raises(IndexingError, match="mask of length 3"):
        x[np.array([True, False, True])]
    for key, value in ((0, [1, 2]), (x > 1, [1, 2, 3]), ([0, 1], [[1, 2]]), ([2], 0)):
        with pytest.raises(IndexingError):
            x[key] = value
    with pytest.raises(ScalarOutOfRange):
        x[0] = 1000
    with pytest.raises(DTypeError, match="complex"):
        x[0] = 1j
    with pytest.raises(DTypeError, match="imaginary"):
        x[0] = send([1j, 1j, 1j])


def test_length_iteration_and_membership(send: Send, check: Check) -> None:
    x = send([[1, 2], [3, 4]], dtype=gw.int32)
    assert len(x) == 2
    for row, wanted in zip(x, ([1, 2], [3, 4]), strict=True):
        check(row, np.array(wanted, np.int32))
    assert 3 in x
    assert 5 not in x
    single = send(1.0)
    for function in (len, iter):
        with pytest.raises(TypeError, match="zero-dimensional"):
            function(single)


# --- Attributes ------------------------------------------------------------------------------


def test_attributes(device: gw.Device, send: Send, check: Check) -> None:
    x = send(np.zeros((2, 3, 4), np.float16))
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes) == ((2, 3, 4), 3, 24, 2, 48)
    assert x.dtype is gw.float16
    assert x.device is device
    assert x.mT.shape == (2, 4, 3)
    assert x.__array_namespace__() is gw
    assert x.__array_namespace__(api_version="2023.12") is gw
    with pytest.raises(ArgumentError, match="2019"):
        x.__array_namespace__(api_version="2019")
    check(send([[1.0, 2.0]]).T, np.array([[1], [2]], np.float32))
    with pytest.raises(ShapeError, match=r"use \.mT"):
        x.T  # noqa: B018
    with pytest.raises(ShapeError, match="at least two"):
        send([1.0]).mT  # noqa: B018
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


def test_missing_methods_name_the_function(send: Send) -> None:
    x = send([1.0])
    with pytest.raises(AttributeError, match=r"no attribute 'sum'; use gpuwire.sum\(x, …\)"):
        x.sum()
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        x.nothing  # noqa: B018
    assert not hasattr(x, "__array_interface__")


# --- To Python -------------------------------------------------------------------------------


def test_numbers(send: Send) -> None:
    assert float(send(1.5)) == 1.5
    assert int(send(2.7)) == 2
    assert complex(send(1 + 2j)) == 1 + 2j
    assert [10, 20][send(1)] == 20
    assert bool(send([[True]])) is True
    assert send([[2.5]]).item() == 2.5
    assert send([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert f"{send(3.14159):.2f}" == "3.14"


def test_numbers_that_an_array_is_not(send: Send) -> None:
    with pytest.raises(TypeError, match="zero-dimensional"):
        float(send([1.0]))
    with pytest.raises(TypeError, match="only integers"):
        operator.index(send(1.0))
    with pytest.raises(TypeError, match="complex number"):
        float(send(1j))
    with pytest.raises(ValueError, match="neither true nor false; use any"):
        bool(send([True, False]))
    with pytest.raises(ValueError, match="one element"):
        send([1, 2]).item()


def test_copies_and_pickles(send: Send, check: Check) -> None:
    x = send([1.0, 2.0])
    for copied in (copy.copy(x), copy.deepcopy(x)):
        copied[0] = 5
        check(copied, np.array([5, 2], np.float32))
    check(x, np.array([1, 2], np.float32))
    with pytest.raises(NotSupported, match=r"pickle numpy.asarray\(x\)"):
        pickle.dumps(x)


def test_arrays_of_two_devices_do_not_meet(server_ticket: str, send: Send, check: Check) -> None:
    with gw.connect(server_ticket) as other:
        x, y = send([1.0]), gw.asarray([2.0], device=other)
        for function in (operator.add, operator.matmul, operator.iadd, gw.where):
            with pytest.raises(DeviceMismatch):
                function(x, y) if function is not gw.where else gw.where(x > 0, x, y)
        for both in ([x, y], (x, y)):
            with pytest.raises(DeviceMismatch, match="to_device"):
                gw.concat(both)
        check(x + y.to_device(x.device), np.array([3], np.float32))
        assert x.to_device(x.device) is x
