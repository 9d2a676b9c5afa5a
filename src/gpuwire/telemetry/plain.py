"""Frozen records as plain values, for JSON, and back.

A record becomes an object with its fields by name, a tuple an array. Reading back checks every
type: what comes over a network is not believed.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from gpuwire.errors import MalformedMessage

Record = TypeVar("Record")
Plain = dict[str, Any] | list[Any] | str | int | float | bool | None

_SCALARS = (str, int, float, bool, type(None))


def to_plain(value: object) -> Plain:
    """The plain form of a record, or of a tuple of records."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, tuple):
        return _plain_tuple(value)
    kind: Any = type(value)
    names, read, is_flat = _shape(kind)
    if is_flat:
        return dict(zip(names, read(value), strict=True))
    return {name: to_plain(item) for name, item in zip(names, read(value), strict=True)}


def _plain_tuple(value: tuple[object, ...]) -> Plain:
    # Most tuples are of one class of flat records, events above all: a third of the time.
    kinds = set(map(type, value))
    if len(kinds) == 1:
        kind: Any = kinds.pop()
        if kind not in _SCALARS and kind is not tuple:
            names, read, is_flat = _shape(kind)
            if is_flat:
                return [dict(zip(names, read(item), strict=True)) for item in value]
    return [to_plain(item) for item in value]


def to_json(value: object) -> bytes:
    """The plain form as compact JSON. Floats that are no numbers never get into it: they are None
    where they come from."""
    text = json.dumps(to_plain(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def from_json(kind: type[Record], data: bytes | memoryview) -> Record:
    """The record again. `MalformedMessage` for what is none."""
    try:
        plain = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"{kind.__name__}: not JSON: {error}", what=kind.__name__) from error
    return from_plain(kind, plain)


def from_plain(kind: type[Record], plain: object) -> Record:
    """The record of a plain form. `MalformedMessage` where a field lacks or has a wrong type."""
    record: Record = _read(kind, plain)
    return record


@cache
def _shape(kind: type[Any]) -> tuple[tuple[str, ...], Callable[[object], Sequence[object]], bool]:
    """Field names, one call that reads them all, and whether all are scalars."""
    names = tuple(field.name for field in fields(kind))
    several = attrgetter(*names)
    read = several if len(names) > 1 else lambda record: (several(record),)
    hints = get_type_hints(kind)
    is_flat = all(
        all(part in _SCALARS for part in (get_args(hints[name]) or (hints[name],)))
        and get_origin(hints[name]) is not tuple
        for name in names
    )
    return names, read, is_flat


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, plain: object) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        options = get_args(kind)
        if plain is None and type(None) in options:
            return None
        return _read(next(option for option in options if option is not type(None)), plain)
    if origin is tuple:
        return _read_tuple(get_args(kind), plain)
    if is_dataclass(kind):
        return _read_record(kind, plain)
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if type(plain) is not kind:
        raise _wrong(kind, plain)
    return plain


@cache
def _flat_types(kind: Any) -> tuple[type, ...] | None:
    """The types of a flat record's fields, where each has one."""
    hints = _hints(kind)
    return tuple(hints.values()) if all(hint in _SCALARS for hint in hints.values()) else None


def _read_record(kind: Any, plain: object) -> Any:
    if not isinstance(plain, dict):
        raise _wrong(kind, plain)
    types = _flat_types(kind)
    if types is not None:
        # The quick way for what is as it should be: ten times as fast as field by field.
        names, _, _ = _shape(kind)
        values = tuple(map(plain.get, names))
        if tuple(map(type, values)) == types:
            return kind(*values)
    hints = _hints(kind)
    missing = hints.keys() - plain.keys()
    if missing:
        raise MalformedMessage(f"{kind.__name__} lacks {min(missing)}", what=kind.__name__)
    return kind(**{name: _read(hint, plain[name]) for name, hint in hints.items()})


def _read_tuple(parts: tuple[Any, ...], plain: object) -> tuple[Any, ...]:
    if not isinstance(plain, list):
        raise MalformedMessage(f"wanted an array, found {type(plain).__name__}", what="array")
    if parts[-1] is Ellipsis:
        read = _read_record if is_dataclass(parts[0]) else _read
        return tuple([read(parts[0], item) for item in plain])
    if len(parts) != len(plain):
        raise MalformedMessage(f"wanted {len(parts)} items, found {len(plain)}", what="array")
    return tuple([_read(part, item) for part, item in zip(parts, plain, strict=True)])


def _wrong(kind: type, plain: object) -> MalformedMessage:
    return MalformedMessage(
        f"wanted {kind.__name__}, found {type(plain).__name__}", what=kind.__name__
    )
