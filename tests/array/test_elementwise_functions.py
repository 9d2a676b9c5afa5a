"""Functions of each element, on a real device, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.errors import ArgumentError, DTypeError

Send = Callable[..., gw.Array]
Check = Callable[..., None]

ANY = np.array([-2.5, -1.5, -0.75, 0.0, 0.5, 1.0, 2.5, 3.0], np.float32)
POSITIVE = np.array([0.125, 0.5, 1.0, 2.0, 3.5], np.float32)
UNIT = np.array([-0.9, -0.25, 0.0, 0.5, 0.875], np.float32)
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0], np.float32)

UNARY = [
    (ANY, "abs atan asinh ceil cos cosh exp expm1 floor negative positive round sign sin sinh"),
    (ANY, "square tan tanh trunc conj real logical_not reciprocal"),
    (POSITIVE, "log log10 log1p log2 sqrt"),
    (UNIT, "acos asin atanh"),
    (POSITIVE + 1, "acosh"),
    (SPECIAL, "isfinite isinf isnan signbit"),
]
DOMAINS = {name: values for values, names in UNARY for name in names.split()}
BINARY = (
    "add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal "
    "logaddexp logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal "
    "remainder subtract"
)
INTEGER_BINARY = (
    "add bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift floor_divide "
    "remainder multiply pow maximum minimum equal less"
)


@pytest.mark.parametrize("name", DOMAINS)
def test_functions_of_one(name: str, send: Send, check: Check) -> None:
    x = DOMAINS[name]
    with np.errstate(divide="ignore"):
        wanted = getattr(np, name)(x.astype(np.float64))
    dtype = "bool" if wanted.dtype == np.bool_ else "float32"
    check(getattr(gw, name)(send(x)), wanted, dtype=dtype, rtol=2e-6)


@pytest.mark.parametrize("name", BINARY.split())
def test_functions_of_two(name: str, send: Send, check: Check) -> None:
    x, y = ANY, ANY[::-1].copy() + np.float32(0.25)
    wanted = getattr(np, name)(x, y)
    function = getattr(gw, name)
    check(function(send(x), send(y)), wanted, rtol=2e-6)
    check(function(send(x), 2.0), getattr(np, name)(x, np.float32(2)), rtol=2e-6)
    check(function(2.0, send(y)), getattr(np, name)(np.float32(2), y), rtol=2e-6)


@pytest.mark.parametrize("name", INTEGER_BINARY.split())
def test_functions_of_two_integers(name: str, send: Send, check: Check) -> None:
    x = np.array([1, 2, 3, 100, -7], np.int32) if name != "pow" else np.array([1, 2, 3], np.int32)
    y = np.array([3, 1, 2, 7, 4], np.int32)[: x.size]
    check(getattr(gw, name)(send(x), send(y)), getattr(np, name)(x, y))


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "multiply", "maximum", "less"])
def test_integers_of_two_widths(name: str, send: Send, check: Check) -> None:
    x = np.array([7, -7, 6, -6, 1, -1])
    for one, other, divisor in (
        ("int64", "int32", -2),
        ("int8", "int64", 3),
        ("int16", "int8", -3),
    ):
        left, right = x.astype(one), np.full(x.size, divisor, other)
        check(getattr(gw, name)(send(left), send(right)), getattr(np, name)(left, right))


def test_pow_and_clip(send: Send, check: Check) -> None:
    x = send(ANY)
    check(gw.pow(x, 2), ANY**2, rtol=2e-6)
    check(gw.pow(send(POSITIVE), 0.5), POSITIVE**0.5, rtol=2e-6)
    check(gw.pow(2.0, x), 2.0**ANY, rtol=2e-6)
    check(gw.clip(x, -1, 1.5), np.clip(ANY, -1, 1.5))
    check(gw.clip(x, max=send(ANY[::-1].copy())), np.minimum(ANY, ANY[::-1]))
    with pytest.raises(ArgumentError, match="no negative powers"):
        gw.pow(send([1, 2]), -2)


def test_calculus_over_integers_gives_the_default_float(send: Send, check: Check) -> None:
    x = np.array([1, 4, 9], np.int64)
    check(gw.sqrt(send(x)), np.array([1, 2, 3], np.float32), rtol=2e-6)
    check(gw.hypot(send(x), 0), x.astype(np.float32), rtol=2e-6)
    check(gw.exp(send([True, False])), np.exp(np.array([1, 0], np.float32)), rtol=2e-6)
    check(gw.isnan(send(x)), [False] * 3)
    check(gw.floor(send(x)), x)


def test_complex_numbers(send: Send, check: Check) -> None:
    x = np.array([3 + 4j, -1j, 2], np.complex64)
    check(gw.abs(send(x)), np.abs(x), rtol=2e-6)
    check(gw.real(send(x)), x.real)
    check(gw.imag(send(x)), x.imag)
    check(gw.conj(send(x)) * send(x), (np.conj(x) * x), rtol=2e-6)
    check(gw.exp(send(x)), np.exp(x), rtol=5e-6)


def test_booleans(send: Send, check: Check) -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "equal", "less"):
        check(getattr(gw, name)(send(x), send(y)), getattr(np, name)(x, y))
    check(gw.bitwise_invert(send(x)), ~x)


def test_one_partner_must_be_an_array() -> None:
    for function in (gw.add, gw.divide, gw.pow):
        with pytest.raises(DTypeError, match="takes gpuwire arrays and numbers, not float"):
            function(1.0, 2.0)
