"""Checks of single fields that came off the wire.

Each takes a value as msgpack gives it and what it is called, and returns it typed, or raises
`MalformedMessage` or `LimitBreached`. Values from a peer are never shown whole in an error's text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuwire.errors import LimitBreached, MalformedMessage

I64_LOWEST = -(1 << 63)
I64_HIGHEST = (1 << 63) - 1
U32_HIGHEST = (1 << 32) - 1
U64_HIGHEST = (1 << 64) - 1


def malformed(what: str, wanted: str, found: object) -> MalformedMessage:
    """The error for a field that is not what it must be."""
    shown = str(found) if type(found) in (int, bool) else f"a {type(found).__name__}"
    return MalformedMessage(f"{what}: wanted {wanted}, found {shown}", what=what)


def breached(what: str, value: int, limit: int) -> LimitBreached:
    """The error for a length, count or depth above its limit."""
    return LimitBreached(
        f"{what}: {value} is above the limit of {limit}", what=what, value=value, limit=limit
    )


def integer(value: object, what: str, lowest: int = 0, highest: int = I64_HIGHEST) -> int:
    """An integer within bounds; a bool is none."""
    if type(value) is not int or not lowest <= value <= highest:
        raise malformed(what, f"an integer from {lowest} to {highest}", value)
    return value


def identity(value: object, what: str) -> int:
    """A tensor, request or session-wide number: 1 … 2⁶³ − 1."""
    return integer(value, what, 1)


def boolean(value: object, what: str) -> bool:
    if type(value) is not bool:
        raise malformed(what, "a boolean", value)
    return value


def real(value: object, what: str) -> float:
    """A float, infinities and NaN included; an integer is none."""
    if type(value) is not float:
        raise malformed(what, "a float", value)
    return value


def seconds(value: object, what: str) -> float:
    """A finite time, not negative."""
    time = real(value, what)
    if not (math.isfinite(time) and time >= 0):
        raise malformed(what, "a finite number of seconds", value)
    return time


def text(value: object, what: str) -> str:
    """A text; its length was limited when it was unpacked."""
    if type(value) is not str:
        raise malformed(what, "a text", value)
    return value


def octets(value: object, what: str, limit: int) -> bytes:
    """Bytes, at most `limit` of them."""
    if type(value) is not bytes:
        raise malformed(what, "bytes", value)
    if len(value) > limit:
        raise breached(what, len(value), limit)
    return value


def array(value: object, what: str, limit: int | None = None) -> tuple[object, ...]:
    """An array of anything, of at most `limit` elements."""
    if type(value) is not tuple:
        raise malformed(what, "an array", value)
    if limit is not None and len(value) > limit:
        raise breached(what, len(value), limit)
    return value


def integers(
    value: object, what: str, limit: int, lowest: int = 0, highest: int = I64_HIGHEST
) -> tuple[int, ...]:
    """An array of at most `limit` integers within bounds."""
    found = array(value, what, limit)
    return tuple([integer(element, what, lowest, highest) for element in found])


def texts(value: object, what: str) -> tuple[str, ...]:
    """An array of texts."""
    return tuple([text(element, what) for element in array(value, what)])


def exactly(item: Sequence[object], count: int, what: str) -> None:
    """Refuses an item that has not exactly `count` fields, its kind included."""
    if len(item) != count:
        raise MalformedMessage(f"{what}: wanted {count} fields, found {len(item)}", what=what)
