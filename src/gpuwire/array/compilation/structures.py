"""Nested tuples, lists and dicts of arrays and numbers: their leaves, their form, and back.

This runs at every call of a compiled function: 0.1 µs a leaf, in one pass and without recursion
where nothing is nested.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from gpuwire.array.array_object import Array
from gpuwire.array.scalar_expressions import ScalarExpression
from gpuwire.client.facts import DeviceFacts
from gpuwire.errors import ArgumentError, NotSupported
from gpuwire.ir.dtypes import DType, PythonScalar

_NUMBERS = frozenset((bool, int, float, complex))
_WRITTEN_OUT = (str, bytes, type(None), DType, DeviceFacts)
"""What is part of a signature with its value, without being named static."""


def flatten(
    values: Iterable[Any], arrays: list[Array], numbers: list[PythonScalar], key: list[Any]
) -> None:
    """Adds the leaves of `values`, in order, to `arrays` and `numbers`, and to `key` their form:
    the types of arrays, the classes of numbers, and the containers that hold them.

    Raises `ArgumentError` for a leaf of another class.
    """
    for value in values:
        kind = value.__class__
        if kind is Array:
            arrays.append(value)
            key.append(value._tensor.type)
        elif kind in _NUMBERS:
            numbers.append(value)
            key.append(kind)
        elif kind is dict:
            key.append(dict)
            key.append(tuple(value))
            flatten(value.values(), arrays, numbers, key)
        elif isinstance(value, tuple | list):
            key.append(kind)
            key.append(len(value))
            flatten(value, arrays, numbers, key)
        elif isinstance(value, _WRITTEN_OUT):
            key.append(value)
        elif isinstance(value, np.generic):
            numbers.append(value.item())
            key.append(numbers[-1].__class__)
        else:
            raise _refusal(value)


def mapped(
    value: Any,
    array: Callable[[Array], Any],
    number: Callable[[Any], Any],
    rest: Callable[[Any], Any] = lambda leaf: leaf,
) -> Any:
    """`value` with new containers, and its leaves as the functions give them; in the order of
    `flatten`."""
    kind = value.__class__
    if kind is Array:
        return array(value)
    if kind in _NUMBERS or kind is ScalarExpression or isinstance(value, np.generic):
        return number(value)
    if kind is dict:
        return {name: mapped(part, array, number, rest) for name, part in value.items()}
    if isinstance(value, tuple | list):
        parts = [mapped(part, array, number, rest) for part in value]
        return kind(*parts) if hasattr(value, "_fields") else kind(parts)
    return rest(value)


def is_same(value: Any, other: Any) -> bool:
    """Whether two structures have the very same leaves in the same places."""
    if value is other:
        return True
    if value.__class__ is not other.__class__:
        return False
    if value.__class__ is dict:
        return list(value) == list(other) and all(map(is_same, value.values(), other.values()))
    if isinstance(value, tuple | list):
        return len(value) == len(other) and all(map(is_same, value, other))
    return False


def static_key(value: Any, name: str) -> Hashable:
    """What a static argument adds to a signature: its value with its class, since 1 == 1.0."""
    if isinstance(value, tuple):
        return (value.__class__, *(static_key(part, name) for part in value))
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(
            f"{name} is named static, and a {type(value).__name__} cannot be: static arguments are "
            "told apart by their hash; give a tuple for a list, a frozen dataclass for an object"
        ) from None
    return (value.__class__, value)


def _refusal(value: Any) -> Exception:
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        return NotSupported(
            "a compiled function takes arrays of a device, and nothing is sent unasked: give it "
            "gpuwire.asarray(numpy_array, device=…)"
        )
    return ArgumentError(
        f"a compiled function takes arrays, numbers, and tuples, lists and dicts of them, not a "
        f"{kind}; name the argument in static_argnames to trace the function for each of its values"
    )
