"""The table of operations: names, wire codes, and the rule that types each one.

The client applies a rule when an operation is recorded, so that a wrong shape or type is raised
at the line that wrote it; the server applies the same rule to what arrives, so that nothing
unchecked reaches a kernel. Broadcasting and promotion are part of the operations: inputs of
different types and shapes are legal wherever the standard says so, and a kernel converts as it
loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpuwire.errors import DTypeError, ShapeError
from gpuwire.ids import LocationId, TensorId
from gpuwire.ir import rules
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
from gpuwire.ir.rules import Rule, Types
from gpuwire.ir.tensors import MAX_RANK, Scalar, TensorType


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
    rule: Rule

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


# --- The table -------------------------------------------------------------------------------

_E = OpClass.ELEMENTWISE
_R = OpClass.REDUCTION

_ROWS: tuple[
    tuple[
        int,
        str,
        OpClass,
        int | None,
        type[Attributes],
        Rule,
    ],
    ...,
] = (
    # Elementwise, one input
    (1, "abs", _E, 1, NoAttributes, rules.numeric_to_real_rule),
    (2, "acos", _E, 1, NoAttributes, rules.floating_rule),
    (3, "acosh", _E, 1, NoAttributes, rules.floating_rule),
    (4, "asin", _E, 1, NoAttributes, rules.floating_rule),
    (5, "asinh", _E, 1, NoAttributes, rules.floating_rule),
    (6, "atan", _E, 1, NoAttributes, rules.floating_rule),
    (7, "atanh", _E, 1, NoAttributes, rules.floating_rule),
    (8, "bitwise_invert", _E, 1, NoAttributes, rules.bits_rule),
    (9, "ceil", _E, 1, NoAttributes, rules.real_rule),
    (10, "conj", _E, 1, NoAttributes, rules.numeric_rule),
    (11, "cos", _E, 1, NoAttributes, rules.floating_rule),
    (12, "cosh", _E, 1, NoAttributes, rules.floating_rule),
    (13, "exp", _E, 1, NoAttributes, rules.floating_rule),
    (14, "expm1", _E, 1, NoAttributes, rules.floating_rule),
    (15, "floor", _E, 1, NoAttributes, rules.real_rule),
    (16, "imag", _E, 1, NoAttributes, rules.complex_part_rule),
    (17, "isfinite", _E, 1, NoAttributes, rules.test_rule),
    (18, "isinf", _E, 1, NoAttributes, rules.test_rule),
    (19, "isnan", _E, 1, NoAttributes, rules.test_rule),
    (20, "log", _E, 1, NoAttributes, rules.floating_rule),
    (21, "log10", _E, 1, NoAttributes, rules.floating_rule),
    (22, "log1p", _E, 1, NoAttributes, rules.floating_rule),
    (23, "log2", _E, 1, NoAttributes, rules.floating_rule),
    (24, "logical_not", _E, 1, NoAttributes, rules.logical_rule),
    (25, "negative", _E, 1, NoAttributes, rules.numeric_rule),
    (26, "positive", _E, 1, NoAttributes, rules.numeric_rule),
    (27, "real", _E, 1, NoAttributes, rules.numeric_to_real_rule),
    (28, "reciprocal", _E, 1, NoAttributes, rules.floating_rule),
    (29, "round", _E, 1, NoAttributes, rules.numeric_rule),
    (30, "sign", _E, 1, NoAttributes, rules.numeric_rule),
    (31, "signbit", _E, 1, NoAttributes, rules.sign_bit_rule),
    (32, "sin", _E, 1, NoAttributes, rules.floating_rule),
    (33, "sinh", _E, 1, NoAttributes, rules.floating_rule),
    (34, "sqrt", _E, 1, NoAttributes, rules.floating_rule),
    (35, "square", _E, 1, NoAttributes, rules.numeric_rule),
    (36, "tan", _E, 1, NoAttributes, rules.floating_rule),
    (37, "tanh", _E, 1, NoAttributes, rules.floating_rule),
    (38, "trunc", _E, 1, NoAttributes, rules.real_rule),
    (39, "cast", _E, 1, CastAttributes, rules.cast_rule),
    # Elementwise, two inputs
    (50, "add", _E, 2, NoAttributes, rules.numeric_rule),
    (51, "atan2", _E, 2, NoAttributes, rules.real_floating_rule),
    (52, "bitwise_and", _E, 2, NoAttributes, rules.bits_rule),
    (53, "bitwise_left_shift", _E, 2, NoAttributes, rules.shift_rule),
    (54, "bitwise_or", _E, 2, NoAttributes, rules.bits_rule),
    (55, "bitwise_right_shift", _E, 2, NoAttributes, rules.shift_rule),
    (56, "bitwise_xor", _E, 2, NoAttributes, rules.bits_rule),
    (57, "copysign", _E, 2, NoAttributes, rules.real_floating_rule),
    (58, "divide", _E, 2, NoAttributes, rules.floating_rule),
    (59, "equal", _E, 2, NoAttributes, rules.equality_rule),
    (60, "floor_divide", _E, 2, NoAttributes, rules.real_rule),
    (61, "greater", _E, 2, NoAttributes, rules.order_rule),
    (62, "greater_equal", _E, 2, NoAttributes, rules.order_rule),
    (63, "hypot", _E, 2, NoAttributes, rules.real_floating_rule),
    (64, "less", _E, 2, NoAttributes, rules.order_rule),
    (65, "less_equal", _E, 2, NoAttributes, rules.order_rule),
    (66, "logaddexp", _E, 2, NoAttributes, rules.real_floating_rule),
    (67, "logical_and", _E, 2, NoAttributes, rules.logical_rule),
    (68, "logical_or", _E, 2, NoAttributes, rules.logical_rule),
    (69, "logical_xor", _E, 2, NoAttributes, rules.logical_rule),
    (70, "maximum", _E, 2, NoAttributes, rules.extremum_rule),
    (71, "minimum", _E, 2, NoAttributes, rules.extremum_rule),
    (72, "multiply", _E, 2, NoAttributes, rules.numeric_rule),
    (73, "nextafter", _E, 2, NoAttributes, rules.real_floating_rule),
    (74, "not_equal", _E, 2, NoAttributes, rules.equality_rule),
    (75, "pow", _E, 2, NoAttributes, rules.numeric_rule),
    (76, "remainder", _E, 2, NoAttributes, rules.real_rule),
    (77, "subtract", _E, 2, NoAttributes, rules.numeric_rule),
    # Elementwise, three inputs
    (90, "where", _E, 3, NoAttributes, rules.where_rule),
    # Reductions
    (100, "sum", _R, 1, ReduceAttributes, rules.sum_or_product_rule),
    (101, "prod", _R, 1, ReduceAttributes, rules.sum_or_product_rule),
    (102, "mean", _R, 1, ReduceAttributes, rules.average_rule),
    (103, "min", _R, 1, ReduceAttributes, rules.extreme_rule),
    (104, "max", _R, 1, ReduceAttributes, rules.extreme_rule),
    (105, "any", _R, 1, ReduceAttributes, rules.truth_rule),
    (106, "all", _R, 1, ReduceAttributes, rules.truth_rule),
    (107, "argmin", _R, 1, ArgReduceAttributes, rules.arg_reduction_rule),
    (108, "argmax", _R, 1, ArgReduceAttributes, rules.arg_reduction_rule),
    # Products
    (120, "matmul", OpClass.MATMUL, 2, NoAttributes, rules.matmul_rule),
    # Shapes
    (130, "reshape", OpClass.SHAPE, 1, ShapeAttributes, rules.reshape_rule),
    (131, "broadcast_to", OpClass.SHAPE, 1, ShapeAttributes, rules.broadcast_to_rule),
    (132, "permute_dims", OpClass.SHAPE, 1, PermuteAttributes, rules.permute_rule),
    (133, "slice", OpClass.SHAPE, 1, SliceAttributes, rules.slice_rule),
    (134, "concat", OpClass.SHAPE, None, AxisAttributes, rules.concat_rule),
    # Indexing
    (140, "slice_assign", OpClass.INDEXING, 2, SliceAttributes, rules.slice_assign_rule),
    (141, "take", OpClass.INDEXING, 2, AxisAttributes, rules.take_rule),
    # Creation
    (150, "full", OpClass.CREATION, 1, ShapeAttributes, rules.full_rule),
    (151, "arange", OpClass.CREATION, 2, LengthAttributes, rules.arange_rule),
)

OPERATIONS: dict[str, OpDef] = {
    name: OpDef(name, code, op_class, arity, attributes, rule)
    for code, name, op_class, arity, attributes, rule in _ROWS
}
_BY_CODE = {definition.code: definition for definition in OPERATIONS.values()}


def operation_by_code(code: int) -> OpDef | None:
    """The operation with that wire code, or None."""
    return _BY_CODE.get(code)
