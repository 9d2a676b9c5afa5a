"""Operations, tensor types, scalars and attributes as plain values that msgpack knows.

An operation's table entry says which attributes it has, so attributes travel as their fields
alone, in the order of their declaration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from gpuwire.errors import ArgumentError, MalformedMessage
from gpuwire.ids import LocationId, TensorId
from gpuwire.ir.attributes import NO_ATTRIBUTES, Attributes, NoAttributes
from gpuwire.ir.dtypes import ALL_DTYPES, DType, Kind, dtype_by_code
from gpuwire.ir.operations import Operand, Operation, operation_by_code
from gpuwire.ir.tensors import MAX_RANK, Scalar, Shape, TensorType
from gpuwire.wire import fields as check
from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits

Plain = tuple[object, ...]

OPERATION_FIELDS = 4
"""Fields of a plain operation before those of its attributes."""

_MAX_INPUTS = DEFAULT_LIMITS.max_array_length
_INTEGER_BOUNDS = {
    dtype.code: (
        (0, (1 << 8 * dtype.itemsize) - 1)
        if dtype.kind is Kind.UNSIGNED
        else (-(1 << 8 * dtype.itemsize - 1), (1 << 8 * dtype.itemsize - 1) - 1)
    )
    for dtype in ALL_DTYPES
    if dtype.is_integer
}


# --- Operations ------------------------------------------------------------------------------


def plain_operation(operation: Operation) -> Plain:
    """`(code, output, location, inputs, …attributes)`; an input is an id or a plain scalar."""
    # This is the recorder's hot path: no call that a two-tensor operation does not need.
    operands = operation.inputs
    inputs = [
        plain_scalar(operand) if isinstance(operand, Scalar) else operand for operand in operands
    ]
    if len(inputs) > _MAX_INPUTS:
        raise ArgumentError(
            f"{operation.definition.name} over {len(inputs)} inputs: one operation takes at most "
            f"{_MAX_INPUTS}; combine them in steps"
        )
    plain = (operation.definition.code, operation.output, operation.location, inputs)
    attributes = operation.attributes
    return plain if attributes is NO_ATTRIBUTES else plain + plain_attributes(attributes)


def checked_operation(plain: Plain, limits: WireLimits) -> Operation:
    """The operation of a plain one. Its types are for the operation's own rule to check."""
    if len(plain) < OPERATION_FIELDS:
        raise MalformedMessage(
            f"operation: wanted {OPERATION_FIELDS} fields or more, found {len(plain)}",
            what="operation",
        )
    code = check.integer(plain[0], "operation code")
    definition = operation_by_code(code)
    if definition is None:
        raise check.malformed("operation code", "one of the table", code)
    inputs = check.array(plain[3], "operation inputs", limits.max_array_length)
    if definition.arity is not None and len(inputs) != definition.arity:
        raise MalformedMessage(
            f"{definition.name} takes {definition.arity} inputs, not {len(inputs)}",
            what="operation inputs",
        )
    return Operation(
        definition,
        tuple([_checked_operand(operand) for operand in inputs]),
        TensorId(check.identity(plain[1], "output tensor")),
        checked_attributes(definition.attributes, plain[OPERATION_FIELDS:], limits),
        LocationId(check.integer(plain[2], "location")),
    )


def _checked_operand(value: object) -> Operand:
    if type(value) is tuple:
        return checked_scalar(value)
    return TensorId(check.identity(value, "input tensor"))


# --- Types and scalars -----------------------------------------------------------------------


def checked_dtype(value: object) -> DType:
    """The data type of a wire code."""
    dtype = dtype_by_code(check.integer(value, "dtype code"))
    if dtype is None:
        raise check.malformed("dtype code", "one of the table", value)
    return dtype


def checked_shape(value: object) -> Shape:
    """A shape of at most `MAX_RANK` dimensions, whose elements 63 bits can count."""
    shape = check.integers(value, "shape", MAX_RANK)
    if math.prod(shape) > check.I64_HIGHEST:
        raise check.breached("elements of a shape", math.prod(shape), check.I64_HIGHEST)
    return shape


def checked_type(dtype: object, shape: object) -> TensorType:
    """A tensor's type, whose bytes 63 bits can count."""
    found = TensorType(checked_dtype(dtype), checked_shape(shape))
    if found.nbytes > check.I64_HIGHEST:
        raise check.breached("bytes of a tensor", found.nbytes, check.I64_HIGHEST)
    return found


def plain_scalar(scalar: Scalar) -> Plain:
    """`(dtype, value)`, or `(dtype, real, imaginary)`. `ArgumentError` for an integer outside the
    type's range."""
    dtype, value = scalar.dtype, scalar.value
    match dtype.kind:
        case Kind.FLOAT if not isinstance(value, complex):
            return (dtype.code, float(value))
        case Kind.SIGNED | Kind.UNSIGNED if isinstance(value, int):
            lowest, highest = _INTEGER_BOUNDS[dtype.code]
            if not lowest <= value <= highest:
                raise ArgumentError(f"{value} is no {dtype}: it holds {lowest} to {highest}")
            return (dtype.code, int(value))
        case Kind.BOOL:
            return (dtype.code, bool(value))
        case Kind.COMPLEX:
            number = complex(value)
            return (dtype.code, number.real, number.imag)
    raise ArgumentError(f"a {type(value).__name__} is no {dtype}; convert it first")


def checked_scalar(plain: Plain) -> Scalar:
    """The scalar of a plain one."""
    dtype = checked_dtype(plain[0] if plain else None)
    check.exactly(plain, 3 if dtype.kind is Kind.COMPLEX else 2, "scalar")
    match dtype.kind:
        case Kind.BOOL:
            return Scalar(check.boolean(plain[1], "bool scalar"), dtype)
        case Kind.SIGNED | Kind.UNSIGNED:
            lowest, highest = _INTEGER_BOUNDS[dtype.code]
            return Scalar(check.integer(plain[1], "integer scalar", lowest, highest), dtype)
        case Kind.FLOAT:
            return Scalar(check.real(plain[1], "float scalar"), dtype)
        case Kind.COMPLEX:
            parts = (check.real(plain[1], "real part"), check.real(plain[2], "imaginary part"))
            return Scalar(complex(*parts), dtype)


# --- Attributes ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _AttributeField:
    """How one field travels. `plain` None: as it is."""

    name: str
    plain: Callable[[Any], object] | None
    checked: Callable[[object, WireLimits], object]


def plain_attributes(attributes: Attributes) -> Plain:
    """The fields' plain values, in the order of their declaration."""
    return tuple(
        [
            getattr(attributes, field.name)
            if field.plain is None
            else field.plain(getattr(attributes, field.name))
            for field in _ATTRIBUTE_FIELDS[type(attributes)]
        ]
    )


def checked_attributes(wanted: type[Attributes], values: Plain, limits: WireLimits) -> Attributes:
    """The attributes of that form."""
    known = _ATTRIBUTE_FIELDS[wanted]
    check.exactly(values, len(known), wanted.__name__)
    if wanted is NoAttributes:
        return NO_ATTRIBUTES
    arguments: list[Any] = [
        field.checked(value, limits) for field, value in zip(known, values, strict=True)
    ]
    return wanted(*arguments)


_SIGNED_FIELDS = ("starts", "steps")
"""Fields whose integers may be negative; all others count something, or number an axis."""


def _attribute_field(name: str, kind: object) -> _AttributeField:
    """The way a field of that name and type travels. A new type of field gets its case here."""
    lowest = check.I64_LOWEST if name in _SIGNED_FIELDS else 0
    if name in ("shape", "lengths"):
        return _AttributeField(name, None, lambda value, limits: checked_shape(value))
    if kind is DType:
        return _AttributeField(name, attrgetter("code"), lambda value, limits: checked_dtype(value))
    if kind is bool:
        return _AttributeField(name, None, lambda value, limits: check.boolean(value, name))
    if kind is int:
        return _AttributeField(name, None, lambda value, limits: check.integer(value, name, lowest))
    if kind is float:
        return _AttributeField(name, None, lambda value, limits: check.real(value, name))
    if kind is str:
        return _AttributeField(name, None, lambda value, limits: check.text(value, name))
    if kind == tuple[int, ...]:
        return _AttributeField(
            name,
            None,
            lambda value, limits: check.integers(value, name, limits.max_array_length, lowest),
        )
    raise TypeError(f"the wire has no form for an attribute's field {name!r} of type {kind}")


_ATTRIBUTE_FIELDS: dict[type[Attributes], tuple[_AttributeField, ...]] = {
    form: tuple(
        _attribute_field(field.name, get_type_hints(form)[field.name]) for field in fields(form)
    )
    for form in get_args(Attributes)
}
