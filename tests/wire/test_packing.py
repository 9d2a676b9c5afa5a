"""Rows of integers and scalars: what goes in comes out, to the bit."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.errors import ArgumentError, LimitBreached, MalformedMessage
from gpuwire.ir import dtypes as dt
from gpuwire.ir.tensors import Scalar
from gpuwire.wire.packing import pack_integers, pack_scalars, unpack_integers, unpack_scalars
from wire import strategies

SETTINGS = settings(derandomize=True, deadline=None, max_examples=150)


@SETTINGS
@given(st.lists(st.integers(-(1 << 64), 1 << 64)))
def test_integers_round_trip(values: list[int]) -> None:
    assert unpack_integers(pack_integers(values), "row", 4096) == tuple(values)


def test_small_integers_are_one_byte() -> None:
    assert len(pack_integers(range(-64, 64))) == 128
    assert pack_integers((0, -1, 1, 64)) == b"\x00\x01\x02\x80\x01"


@SETTINGS
@given(
    st.lists(strategies.scalars(), min_size=1, max_size=3),
    st.dictionaries(st.integers(0, 65535), st.integers(0, 2), max_size=12),
)
def test_scalars_round_trip(values: list[Scalar], places: dict[int, int]) -> None:
    """Some of them the same, some the same but for their type or their zero's sign."""
    values += [Scalar(0.0, dt.float32), Scalar(-0.0, dt.float32), Scalar(0.0, dt.float64)]
    scalars = [(number, values[which % len(values)]) for number, which in sorted(places.items())]
    found = unpack_scalars(pack_scalars(scalars), "scalars", len(scalars))
    assert repr(found) == repr(tuple(scalars))  # NaN and -0.0 count.


def test_a_number_that_many_read_is_told_once() -> None:
    rate, half = Scalar(0.1, dt.float32), Scalar(0.5, dt.float32)
    scalars = [(number, half if number % 10 == 5 else rate) for number in range(200)]
    packed = pack_scalars(scalars)
    assert unpack_scalars(packed, "scalars", 200) == tuple(scalars)
    assert len(packed) <= 200 + 2 * (3 + 8 + 2)
    with pytest.raises(LimitBreached):
        unpack_scalars(packed, "scalars", 199)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x81\x01",  # a bool that comes again, and where is missing
        b"\x00\x00\x81\x01\x02\x00\x02",  # cut off
        b"\x00\x00\x81\x01\x01\x00\x80",  # an integer that is cut off
        b"\x00\x00\x81\x01\x01\x00\x00",  # the same number again
        b"\x00\x00\x81\x01\x01\x00\x01",  # a number before it
        b"\xff\xff\x81\x01\x01\x00\x02",  # 65,536
        b"\x00\x00\xff\x01\x01\x00\x02",  # no data type
    ],
)
def test_repeated_scalars_that_are_wrong_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        unpack_scalars(data, "scalars", 10)


def test_a_float_keeps_all_of_its_bits() -> None:
    nan = struct.unpack("<d", bytes.fromhex("010000000000f87f"))[0]
    ((_, scalar),) = unpack_scalars(pack_scalars([(0, Scalar(nan, dt.float64))]), "scalars", 1)
    assert struct.pack("<d", scalar.value).hex() == "010000000000f87f"


@pytest.mark.parametrize(
    "scalar",
    [
        Scalar(128, dt.int8),
        Scalar(-1, dt.uint32),
        Scalar(1 << 64, dt.uint64),
        Scalar(1j, dt.float32),
        Scalar(0.5, dt.int32),
    ],
)
def test_a_value_that_does_not_fit_is_refused_here(scalar: Scalar) -> None:
    with pytest.raises(ArgumentError):
        pack_scalars([(0, scalar)])


def test_a_value_beyond_its_type_is_refused_there() -> None:
    with pytest.raises(MalformedMessage, match="int8"):
        unpack_scalars(b"\x00\x00\x02\x80\x00" + bytes(6), "scalars", 1)
