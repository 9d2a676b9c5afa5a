"""The table of operations: names, wire codes, and the rule that types each one.

The client applies a rule when an operation is recorded, so that a wrong shape or type is raised
at the line that wrote it; the server applies the same rule to what arrives, so that nothing
unchecked reaches a kernel. Broadcasting and promotion are part of the operations: inputs of
different types and shapes are legal wherever the standard says so, and a kernel converts as it
loads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from gpuwire.errors import DTypeError, ShapeError
from gpuwire.ids import LocationId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    ArgReduceAttributes,
    Attributes,
    AxisAttributes,
    CastAttributes,
    LengthAttributes,
    NoAttributes,
    PermuteAttributes,
    ReduceAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.ir.tensors import MAX_RANK, Scalar, Shape, TensorType, broadcast_shapes

Types = tuple[TensorType, ...]
A = TypeVar("A", bound=Attributes)


class OpClass(Enum):
    """What an operation costs; the classes that telemetry and fusion speak of."""

    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    MATMUL = "matmul"
    SHAPE = "shape"
    CREATION = "creation"
    INDEXING = "indexing"


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """One operation of the table. `rule` gives the result's type or raises `ShapeError` or
    `DTypeError`; `arity` None is one or more inputs."""

    name: str
    code: int
    op_class: OpClass
    arity: int | None
    attributes: type[Attributes]
    rule: Callable[[OpDef, Types, Attributes], TensorType]

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    def result_type(self, inputs: Types, attributes: Attributes) -> TensorType:
        """The type of the operation's result; `ShapeError` or `DTypeError` if it has none."""
        if (self.arity is not None and len(inputs) != self.arity) or not inputs:
            raise ShapeError(
                f"{self.name} takes {self.arity or 'one or more'} inputs, not {len(inputs)}",
                operation=self.name,
            )
        if type(attributes) is not self.attributes:
            raise DTypeError(
                f"{self.name} takes {self.attributes.__name__}, not {type(attributes).__name__}",
                operation=self.name,
            )
        result = self.rule(self, inputs, attributes)
        if len(result.shape) > MAX_RANK:
            raise ShapeError(
                f"{self.name} would have {len(result.shape)} dimensions; the most is {MAX_RANK}",
                operation=self.name,
            )
        return result


Operand = TensorId | Scalar


@dataclass(frozen=True, slots=True)
class Operation:
    """One recorded operation over a session's tensors. It has one result."""

    definition: OpDef
    inputs: tuple[Operand, ...]
    output: TensorId
    attributes: Attributes
    location: LocationId


# --- The type rules --------------------------------------------------------------------------


def _wanted(definition: OpDef, inputs: Types, wanted: str) -> DTypeError:
    found = ", ".join(str(type_.dtype) for type_ in inputs)
    return DTypeError(f"{definition.name} takes {wanted}, not {found}", operation=definition.name)


def _shape(definition: OpDef, inputs: Types) -> Shape:
    if len(inputs) == 1:
        return inputs[0].shape
    try:
        return broadcast_shapes(*(type_.shape for type_ in inputs))
    except ShapeError as error:
        raise ShapeError(f"{definition.name}: {error}", operation=definition.name) from None


def _promoted(inputs: Types) -> DType:
    if len(inputs) == 1:
        return inputs[0].dtype
    return dt.promote_all(tuple(type_.dtype for type_ in inputs))


def _elementwise(
    kinds: tuple[Kind, ...], wanted: str, result: Callable[[DType], DType] = lambda dtype: dtype
) -> Callable[[OpDef, Types, Attributes], TensorType]:
    """Inputs promote to one type of one of `kinds`; the result's type follows from it."""

    def rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
        dtype = _promoted(inputs)
        if dtype.kind not in kinds:
            raise _wanted(definition, inputs, wanted)
        return TensorType(result(dtype), _shape(definition, inputs))

    return rule


_ALL = tuple(Kind)
_NUMERIC = (Kind.UNSIGNED, Kind.SIGNED, Kind.FLOAT, Kind.COMPLEX)
_REAL = (Kind.UNSIGNED, Kind.SIGNED, Kind.FLOAT)
_FLOATING = (Kind.FLOAT, Kind.COMPLEX)
_INTEGER_OR_BOOL = (Kind.BOOL, Kind.UNSIGNED, Kind.SIGNED)
_INTEGER = (Kind.UNSIGNED, Kind.SIGNED)


def _to_bool(dtype: DType) -> DType:
    return dt.bool_


_any_type = _elementwise(_ALL, "any type")
_numeric = _elementwise(_NUMERIC, "numbers")
_numeric_to_real = _elementwise(_NUMERIC, "numbers", dt.real_of)
_real = _elementwise(_REAL, "real numbers")
_floating = _elementwise(_FLOATING, "floating-point numbers")
_real_floating = _elementwise((Kind.FLOAT,), "real floating-point numbers")
_sign_bit = _elementwise((Kind.FLOAT,), "real floating-point numbers", _to_bool)
_complex_part = _elementwise((Kind.COMPLEX,), "complex numbers", dt.real_of)
_bits = _elementwise(_INTEGER_OR_BOOL, "integers or booleans")
_shift = _elementwise(_INTEGER, "integers")
_logical = _elementwise(_ALL, "any type", _to_bool)
_equality = _elementwise(_ALL, "any type", _to_bool)
_order = _elementwise((Kind.BOOL, *_REAL), "real numbers", _to_bool)
_extremum = _elementwise((Kind.BOOL, *_REAL), "real numbers")
_test = _elementwise(_NUMERIC, "numbers", _to_bool)


def _where(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    if inputs[0].dtype is not dt.bool_:
        raise DTypeError(
            f"where takes a boolean condition, not {inputs[0].dtype}", operation="where"
        )
    return TensorType(_promoted(inputs[1:]), _shape(definition, inputs))


def _as(kind: type[A], attributes: Attributes) -> A:
    assert isinstance(attributes, kind)
    return attributes


def _cast(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    dtype = _as(CastAttributes, attributes).dtype
    if inputs[0].dtype.kind is Kind.COMPLEX and dtype.kind is not Kind.COMPLEX:
        raise DTypeError(
            f"cast from {inputs[0].dtype} to {dtype} would drop the imaginary part; "
            "use real(x) or imag(x)",
            operation="cast",
        )
    return TensorType(dtype, inputs[0].shape)


def _reduced_shape(definition: OpDef, shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    if any(not 0 <= axis < len(shape) for axis in axes) or len(set(axes)) != len(axes):
        raise ShapeError(
            f"{definition.name} over axes {axes} of an array of {len(shape)} dimensions",
            operation=definition.name,
        )
    if keepdims:
        return tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    return tuple(length for axis, length in enumerate(shape) if axis not in axes)


def _reduction(
    kinds: tuple[Kind, ...], wanted: str, *, empty: bool
) -> Callable[[OpDef, Types, Attributes], TensorType]:
    """A reduction over inputs of `kinds`; `empty` says whether it has a value over no elements."""

    def rule(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
        reduce = _as(ReduceAttributes, attributes)
        (type_,) = inputs
        if type_.dtype.kind not in kinds:
            raise _wanted(definition, inputs, wanted)
        shape = _reduced_shape(definition, type_.shape, reduce.axes, reduce.keepdims)
        _refuse_empty(definition, type_.shape, reduce.axes, allowed=empty)
        return TensorType(reduce.dtype, shape)

    return rule


def _refuse_empty(definition: OpDef, shape: Shape, axes: tuple[int, ...], *, allowed: bool) -> None:
    if not allowed and any(shape[axis] == 0 for axis in axes):
        raise ShapeError(
            f"{definition.name} of no elements has no value: shape {shape}, axes {axes}",
            operation=definition.name,
        )


def _arg_reduction(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    reduce = _as(ArgReduceAttributes, attributes)
    (type_,) = inputs
    if type_.dtype.kind not in (Kind.BOOL, *_REAL):
        raise _wanted(definition, inputs, "real numbers")
    shape = _reduced_shape(definition, type_.shape, (reduce.axis,), reduce.keepdims)
    _refuse_empty(definition, type_.shape, (reduce.axis,), allowed=False)
    return TensorType(reduce.dtype, shape)


def _matmul(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    left, right = inputs
    dtype = _promoted(inputs)
    if dtype.kind is Kind.BOOL:
        raise _wanted(definition, inputs, "numbers")
    if len(left.shape) < 2 or len(right.shape) < 2 or left.shape[-1] != right.shape[-2]:
        raise ShapeError(
            f"matmul of shapes {left.shape} and {right.shape}: the last axis of the left and the "
            "second last of the right must have the same length",
            operation="matmul",
        )
    try:
        batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ShapeError as error:
        raise ShapeError(f"matmul: batch {error}", operation="matmul") from None
    return TensorType(dtype, (*batch, left.shape[-2], right.shape[-1]))


def _reshape(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    result = TensorType(inputs[0].dtype, _as(ShapeAttributes, attributes).shape)
    if result.size != inputs[0].size or any(length < 0 for length in result.shape):
        raise ShapeError(
            f"reshape of shape {inputs[0].shape} ({inputs[0].size} elements) to {result.shape} "
            f"({result.size})",
            operation="reshape",
        )
    return result


def _broadcast_to(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    shape = _as(ShapeAttributes, attributes).shape
    if _shape(definition, (inputs[0], TensorType(dt.bool_, shape))) != shape:
        raise ShapeError(
            f"broadcast_to: shape {inputs[0].shape} does not broadcast to {shape}",
            operation="broadcast_to",
        )
    return TensorType(inputs[0].dtype, shape)


def _permute(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    axes = _as(PermuteAttributes, attributes).axes
    shape = inputs[0].shape
    if sorted(axes) != list(range(len(shape))):
        raise ShapeError(
            f"permute_dims: axes {axes} do not name each of {len(shape)} dimensions once",
            operation="permute_dims",
        )
    return TensorType(inputs[0].dtype, tuple(shape[axis] for axis in axes))


def _check_slice(definition: OpDef, shape: Shape, slices: SliceAttributes) -> None:
    parts = (slices.starts, slices.steps, slices.lengths)
    fits = all(len(part) == len(shape) for part in parts) and all(
        count == 0
        or (
            count > 0
            and step != 0
            and 0 <= start < length
            and 0 <= start + (count - 1) * step < length
        )
        for length, start, step, count in zip(shape, *parts, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"{definition.name}: {slices} reaches outside shape {shape}", operation=definition.name
        )


def _slice(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    slices = _as(SliceAttributes, attributes)
    _check_slice(definition, inputs[0].shape, slices)
    return TensorType(inputs[0].dtype, slices.lengths)


def _slice_assign(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    """Inputs: the old array, the value. The result is the old one with the slice replaced; the
    value broadcasts to the slice and is converted to the old array's type."""
    old, value = inputs
    slices = _as(SliceAttributes, attributes)
    _check_slice(definition, old.shape, slices)
    target = TensorType(old.dtype, slices.lengths)
    if _shape(definition, (target, value)) != target.shape:
        raise ShapeError(
            f"a value of shape {value.shape} does not broadcast to the slice's {target.shape}",
            operation=definition.name,
        )
    return old


def _concat(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    axis = _as(AxisAttributes, attributes).axis
    shape = inputs[0].shape
    for type_ in inputs:
        fits = len(type_.shape) == len(shape) > axis >= 0 and all(
            length == type_.shape[i] for i, length in enumerate(shape) if i != axis
        )
        if not fits:
            raise ShapeError(
                f"concat along axis {axis}: shapes {shape} and {type_.shape} differ elsewhere",
                operation="concat",
            )
    total = sum(type_.shape[axis] for type_ in inputs)
    return TensorType(_promoted(inputs), (*shape[:axis], total, *shape[axis + 1 :]))


def _take(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    """Inputs: the array, one-dimensional integer indices; out of range, they count from the end
    when negative and are clamped otherwise."""
    type_, indices = inputs
    axis = _as(AxisAttributes, attributes).axis
    if not indices.dtype.is_integer:
        raise DTypeError(f"take wants integer indices, not {indices.dtype}", operation="take")
    if len(indices.shape) != 1 or not 0 <= axis < len(type_.shape):
        raise ShapeError(
            f"take along axis {axis} of shape {type_.shape} with indices of shape {indices.shape}",
            operation="take",
        )
    if type_.shape[axis] == 0 and indices.size:
        raise ShapeError("take from an axis of length 0", operation="take")
    shape = (*type_.shape[:axis], indices.shape[0], *type_.shape[axis + 1 :])
    return TensorType(type_.dtype, shape)


def _full(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    """Input: the value, zero-dimensional."""
    if inputs[0].shape != ():
        raise ShapeError(f"full takes one value, not shape {inputs[0].shape}", operation="full")
    return TensorType(inputs[0].dtype, _as(ShapeAttributes, attributes).shape)


def _arange(definition: OpDef, inputs: Types, attributes: Attributes) -> TensorType:
    """Inputs: start and step, zero-dimensional, of the result's type: start + i * step."""
    start, step = inputs
    if start.shape != () or step.shape != () or start.dtype.kind not in _REAL:
        raise _wanted(definition, inputs, "two real numbers")
    if start.dtype is not step.dtype:
        raise _wanted(definition, inputs, "start and step of one type")
    return TensorType(start.dtype, (_as(LengthAttributes, attributes).length,))


# --- The table -------------------------------------------------------------------------------

_E = OpClass.ELEMENTWISE

_ROWS: tuple[
    tuple[
        int,
        str,
        OpClass,
        int | None,
        type[Attributes],
        Callable[[OpDef, Types, Attributes], TensorType],
    ],
    ...,
] = (
    # Elementwise, one input
    (1, "abs", _E, 1, NoAttributes, _numeric_to_real),
    (2, "acos", _E, 1, NoAttributes, _floating),
    (3, "acosh", _E, 1, NoAttributes, _floating),
    (4, "asin", _E, 1, NoAttributes, _floating),
    (5, "asinh", _E, 1, NoAttributes, _floating),
    (6, "atan", _E, 1, NoAttributes, _floating),
    (7, "atanh", _E, 1, NoAttributes, _floating),
    (8, "bitwise_invert", _E, 1, NoAttributes, _bits),
    (9, "ceil", _E, 1, NoAttributes, _real),
    (10, "conj", _E, 1, NoAttributes, _numeric),
    (11, "cos", _E, 1, NoAttributes, _floating),
    (12, "cosh", _E, 1, NoAttributes, _floating),
    (13, "exp", _E, 1, NoAttributes, _floating),
    (14, "expm1", _E, 1, NoAttributes, _floating),
    (15, "floor", _E, 1, NoAttributes, _real),
    (16, "imag", _E, 1, NoAttributes, _complex_part),
    (17, "isfinite", _E, 1, NoAttributes, _test),
    (18, "isinf", _E, 1, NoAttributes, _test),
    (19, "isnan", _E, 1, NoAttributes, _test),
    (20, "log", _E, 1, NoAttributes, _floating),
    (21, "log10", _E, 1, NoAttributes, _floating),
    (22, "log1p", _E, 1, NoAttributes, _floating),
    (23, "log2", _E, 1, NoAttributes, _floating),
    (24, "logical_not", _E, 1, NoAttributes, _logical),
    (25, "negative", _E, 1, NoAttributes, _numeric),
    (26, "positive", _E, 1, NoAttributes, _numeric),
    (27, "real", _E, 1, NoAttributes, _numeric_to_real),
    (28, "reciprocal", _E, 1, NoAttributes, _floating),
    (29, "round", _E, 1, NoAttributes, _numeric),
    (30, "sign", _E, 1, NoAttributes, _numeric),
    (31, "signbit", _E, 1, NoAttributes, _sign_bit),
    (32, "sin", _E, 1, NoAttributes, _floating),
    (33, "sinh", _E, 1, NoAttributes, _floating),
    (34, "sqrt", _E, 1, NoAttributes, _floating),
    (35, "square", _E, 1, NoAttributes, _numeric),
    (36, "tan", _E, 1, NoAttributes, _floating),
    (37, "tanh", _E, 1, NoAttributes, _floating),
    (38, "trunc", _E, 1, NoAttributes, _real),
    (39, "cast", _E, 1, CastAttributes, _cast),
    # Elementwise, two inputs
    (50, "add", _E, 2, NoAttributes, _numeric),
    (51, "atan2", _E, 2, NoAttributes, _real_floating),
    (52, "bitwise_and", _E, 2, NoAttributes, _bits),
    (53, "bitwise_left_shift", _E, 2, NoAttributes, _shift),
    (54, "bitwise_or", _E, 2, NoAttributes, _bits),
    (55, "bitwise_right_shift", _E, 2, NoAttributes, _shift),
    (56, "bitwise_xor", _E, 2, NoAttributes, _bits),
    (57, "copysign", _E, 2, NoAttributes, _real_floating),
    (58, "divide", _E, 2, NoAttributes, _floating),
    (59, "equal", _E, 2, NoAttributes, _equality),
    (60, "floor_divide", _E, 2, NoAttributes, _real),
    (61, "greater", _E, 2, NoAttributes, _order),
    (62, "greater_equal", _E, 2, NoAttributes, _order),
    (63, "hypot", _E, 2, NoAttributes, _real_floating),
    (64, "less", _E, 2, NoAttributes, _order),
    (65, "less_equal", _E, 2, NoAttributes, _order),
    (66, "logaddexp", _E, 2, NoAttributes, _real_floating),
    (67, "logical_and", _E, 2, NoAttributes, _logical),
    (68, "logical_or", _E, 2, NoAttributes, _logical),
    (69, "logical_xor", _E, 2, NoAttributes, _logical),
    (70, "maximum", _E, 2, NoAttributes, _extremum),
    (71, "minimum", _E, 2, NoAttributes, _extremum),
    (72, "multiply", _E, 2, NoAttributes, _numeric),
    (73, "nextafter", _E, 2, NoAttributes, _real_floating),
    (74, "not_equal", _E, 2, NoAttributes, _equality),
    (75, "pow", _E, 2, NoAttributes, _numeric),
    (76, "remainder", _E, 2, NoAttributes, _real),
    (77, "subtract", _E, 2, NoAttributes, _numeric),
    # Elementwise, three inputs
    (90, "where", _E, 3, NoAttributes, _where),
    # Reductions
    (100, "sum", OpClass.REDUCTION, 1, ReduceAttributes, _reduction(_ALL, "any", empty=True)),
    (101, "prod", OpClass.REDUCTION, 1, ReduceAttributes, _reduction(_ALL, "any", empty=True)),
    (
        102,
        "mean",
        OpClass.REDUCTION,
        1,
        ReduceAttributes,
        _reduction(_FLOATING, "floating-point numbers", empty=True),
    ),
    (
        103,
        "min",
        OpClass.REDUCTION,
        1,
        ReduceAttributes,
        _reduction((Kind.BOOL, *_REAL), "real numbers", empty=False),
    ),
    (
        104,
        "max",
        OpClass.REDUCTION,
        1,
        ReduceAttributes,
        _reduction((Kind.BOOL, *_REAL), "real numbers", empty=False),
    ),
    (105, "any", OpClass.REDUCTION, 1, ReduceAttributes, _reduction(_ALL, "any", empty=True)),
    (106, "all", OpClass.REDUCTION, 1, ReduceAttributes, _reduction(_ALL, "any", empty=True)),
    (107, "argmin", OpClass.REDUCTION, 1, ArgReduceAttributes, _arg_reduction),
    (108, "argmax", OpClass.REDUCTION, 1, ArgReduceAttributes, _arg_reduction),
    # Products
    (120, "matmul", OpClass.MATMUL, 2, NoAttributes, _matmul),
    # Shapes
    (130, "reshape", OpClass.SHAPE, 1, ShapeAttributes, _reshape),
    (131, "broadcast_to", OpClass.SHAPE, 1, ShapeAttributes, _broadcast_to),
    (132, "permute_dims", OpClass.SHAPE, 1, PermuteAttributes, _permute),
    (133, "slice", OpClass.SHAPE, 1, SliceAttributes, _slice),
    (134, "concat", OpClass.SHAPE, None, AxisAttributes, _concat),
    # Indexing
    (140, "slice_assign", OpClass.INDEXING, 2, SliceAttributes, _slice_assign),
    (141, "take", OpClass.INDEXING, 2, AxisAttributes, _take),
    # Creation
    (150, "full", OpClass.CREATION, 1, ShapeAttributes, _full),
    (151, "arange", OpClass.CREATION, 2, LengthAttributes, _arange),
)

OPERATIONS: dict[str, OpDef] = {
    name: OpDef(name, code, op_class, arity, attributes, rule)
    for code, name, op_class, arity, attributes, rule in _ROWS
}
_BY_CODE = {definition.code: definition for definition in OPERATIONS.values()}


def operation_by_code(code: int) -> OpDef | None:
    """The operation with that wire code, or None."""
    return _BY_CODE.get(code)
