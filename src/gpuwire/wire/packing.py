"""Rows of integers and scalars as bytes.

An array of this length would let a peer nest arrays of it, each allocated in full before it is
refused; and most of these integers fit one byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import itemgetter, sub

from gpuwire.errors import ArgumentError, MalformedMessage
from gpuwire.ir.dtypes import DType, Kind, dtype_by_code
from gpuwire.ir.tensors import Scalar
from gpuwire.wire import fields as check

_VARINT_BYTES = 10
_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")
_SCALAR = struct.Struct("<HB")
_LENGTH = struct.Struct("<H")
_REPEATED = 0x80
_MOST_SCALAR_BYTES = 19
_MOST_NUMBER = 0xFFFF


def pack_integers(values: Sequence[int]) -> bytes:
    """Signed integers: zigzag, then seven bits a byte, lowest first, the top bit set on all but
    the last."""
    if values and min(values) >= 0 and max(values) < 0x40:
        return bytes([value << 1 for value in values])  # As a rule; in two thirds of the time.
    packed = bytearray()
    for value in values:
        value = value << 1 if value >= 0 else (-value << 1) - 1
        while value > 0x7F:
            packed.append(value & 0x7F | 0x80)
            value >>= 7
        packed.append(value)
    return bytes(packed)


def unpack_integers(value: object, what: str, limit: int) -> tuple[int, ...]:
    """At most `limit` integers, none beyond 70 bits. `MalformedMessage` or `LimitBreached`."""
    data = check.octets(value, what, limit * _VARINT_BYTES)
    if data and data[-1] > 0x7F:
        raise MalformedMessage(f"{what}: the last integer is cut off", what=what)
    if data and max(data) <= 0x7F and len(data) <= limit:
        # The same here; in a quarter of the time.
        return tuple([-(byte + 1 >> 1) if byte & 1 else byte >> 1 for byte in data])
    integers = []
    start = 0
    for end, byte in enumerate(data, 1):
        if byte > 0x7F:
            if end - start >= _VARINT_BYTES:
                raise MalformedMessage(f"{what}: an integer is too long", what=what)
            continue
        number = 0
        for part in reversed(data[start:end]):
            number = number << 7 | part & 0x7F
        integers.append(-(number + 1 >> 1) if number & 1 else number >> 1)
        start = end
    if len(integers) > limit:
        raise check.breached(what, len(integers), limit)
    return tuple(integers)


def pack_scalars(scalars: Sequence[tuple[int, Scalar]]) -> bytes:
    """Numbered scalars, in order of their numbers: u16 number, u8 data type, then the value as its
    kind asks: one byte, eight, or twice eight. Scalars that are the same to the bit are told once,
    for a learning rate that changes is read by as many operations as there are weights: then the
    type's highest bit is set, and behind the value come u16 length and how far each further number
    is from the one before, as `pack_integers` does. `ArgumentError` for a value that does not fit
    its data type."""
    numbers: dict[tuple[int, bytes], list[int]] = {}
    for number, scalar in scalars:
        numbers.setdefault((scalar.dtype.code, pack_value(scalar)), []).append(number)
    packed = bytearray()
    for (code, value), (first, *others) in numbers.items():
        if not others:
            packed += _SCALAR.pack(first, code) + value
            continue
        gaps = pack_integers([*map(sub, others, (first, *others))])
        packed += _SCALAR.pack(first, code | _REPEATED) + value + _LENGTH.pack(len(gaps)) + gaps
    return bytes(packed)


def pack_value(scalar: Scalar) -> bytes:
    """A scalar's value without its type; raises as `pack_scalars`."""
    value, dtype = scalar.value, scalar.dtype
    try:
        match dtype.kind:
            case Kind.FLOAT if not isinstance(value, complex):
                return _FLOAT.pack(value)
            case Kind.COMPLEX:
                number = complex(value)
                return _COMPLEX.pack(number.real, number.imag)
            case Kind.BOOL:
                return b"\x01" if value else b"\x00"
            case Kind.SIGNED | Kind.UNSIGNED if isinstance(value, int):
                own = int(value).to_bytes(
                    dtype.itemsize, "little", signed=dtype.kind is Kind.SIGNED
                )
                fill = b"\xff" if value < 0 else b"\x00"
                return own + fill * (8 - dtype.itemsize)
    except (OverflowError, struct.error) as error:
        raise ArgumentError(f"{value} is no {dtype}: {error}") from error
    raise ArgumentError(f"a {type(value).__name__} is no {dtype}; convert it first")


def unpack_scalars(value: object, what: str, limit: int) -> tuple[tuple[int, Scalar], ...]:
    """At most `limit` numbered scalars, in order. `MalformedMessage` or `LimitBreached`."""
    data = check.octets(value, what, limit * _MOST_SCALAR_BYTES)
    scalars: list[tuple[int, Scalar]] = []
    place = 0

    def take(size: int) -> bytes:
        nonlocal place
        place += size
        if place > len(data):
            raise MalformedMessage(f"{what}: the last scalar is cut off", what=what)
        return data[place - size : place]

    while place < len(data):
        number, code = _SCALAR.unpack(take(_SCALAR.size))
        dtype = dtype_by_code(code & ~_REPEATED)
        if dtype is None:
            raise check.malformed(what, "a known data type", code & ~_REPEATED)
        size = {Kind.BOOL: 1, Kind.COMPLEX: 16}.get(dtype.kind, 8)
        scalar = _unpacked(take(size), dtype, what)
        scalars.append((number, scalar))
        if code & _REPEATED:
            (length,) = _LENGTH.unpack(take(_LENGTH.size))
            for gap in unpack_integers(take(length), what, limit - len(scalars)):
                number += gap
                if gap < 1 or number > _MOST_NUMBER:
                    raise check.malformed(what, "rising numbers", gap)
                scalars.append((number, scalar))
        if len(scalars) > limit:
            raise check.breached(what, len(scalars), limit)
    scalars.sort(key=itemgetter(0))
    return tuple(scalars)


def _unpacked(part: bytes, dtype: DType, what: str) -> Scalar:
    match dtype.kind:
        case Kind.FLOAT:
            return Scalar(_FLOAT.unpack(part)[0], dtype)
        case Kind.COMPLEX:
            return Scalar(complex(*_COMPLEX.unpack(part)), dtype)
        case Kind.BOOL:
            return Scalar(_checked_bool(part[0], what), dtype)
        case _:
            signed = dtype.kind is Kind.SIGNED
            found = int.from_bytes(part, "little", signed=signed)
            own = int.from_bytes(part[: dtype.itemsize], "little", signed=signed)
            if found != own:
                raise check.malformed(what, f"a value of {dtype}", found)
            return Scalar(found, dtype)


def _checked_bool(byte: int, what: str) -> bool:
    if byte > 1:
        raise check.malformed(what, "0 or 1", byte)
    return byte == 1
