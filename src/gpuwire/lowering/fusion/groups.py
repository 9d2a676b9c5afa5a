"""Groups: nodes that share a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from gpuwire.ir.graphs import InputRef, Node, NodeRef, ScalarRef, ValueRef
from gpuwire.ir.operations import OpClass
from gpuwire.ir.tensors import Shape
from gpuwire.lowering.fusion.rewriting import Flow
from gpuwire.lowering.fusion.views import VIEWS
from gpuwire.lowering.plan_elementwise import runs_on_device
from gpuwire.lowering.plan_reduction import reduced_axes


class Role(Enum):
    """What a node can be to a kernel."""

    VIEW = "view"
    MAP = "elementwise"
    REDUCTION = "reduction"
    PRODUCT = "product"
    SINGLE = "by itself"


def role_of(flow: Flow, node: Node) -> Role:
    """A node's role. Whatever has no elements, or is made of none, is planned by itself."""
    if not node.type.size or not all(flow.type_of(ref).size for ref in node.operands):
        return Role.SINGLE
    name = node.definition.name
    if name in VIEWS:
        return Role.VIEW
    dtypes = [flow.type_of(ref).dtype for ref in node.operands]
    match node.definition.op_class:
        case OpClass.ELEMENTWISE if runs_on_device(node, dtypes):
            return Role.MAP
        case OpClass.REDUCTION if reduced_axes(node) and not isinstance(
            node.operands[0], ScalarRef
        ):
            return Role.REDUCTION
        case OpClass.MATMUL if not any(isinstance(ref, ScalarRef) for ref in node.operands):
            return Role.PRODUCT
    return Role.SINGLE


class GroupKind(Enum):
    """Which kernels do a group."""

    MAP = "map"
    """Elementwise, over one shape."""
    REDUCE = "reduce"
    """A reduction with elementwise steps before it and, on its result, after it."""
    ROWS = "rows"
    """Reductions along the same axes and elementwise steps on rows and elements, row by row."""
    PRODUCT = "product"
    """A matrix product with elementwise steps on its result."""
    SINGLE = "single"
    """One node."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one kernel (a reduction may take two, and so may copies). A node may be in several:
    then it is computed several times."""

    position: int
    """Groups run by position."""
    kind: GroupKind
    shape: Shape
    """The elements it goes through: what is reduced, or the results' shape."""
    axes: tuple[int, ...]
    """What reductions reduce."""
    members: frozenset[int]
    roots: tuple[int, ...]
    """Members that go to memory if anything outside reads them."""
    rows: frozenset[int]
    """Roots of which there is one for each row, not for each element of `shape`."""
    reads: frozenset[ValueRef]
    """Inputs, and nodes that other groups store."""
    stored: tuple[int, ...] = ()
    """Roots that something outside reads; known at the end."""

    @property
    def size(self) -> int:
        """Elements it goes through."""
        return math.prod(self.shape)


def node_reads(group: Group) -> set[int]:
    """The nodes among what a group reads."""
    return {ref.index for ref in group.reads if isinstance(ref, NodeRef)}


def tensor_reads(flow: Flow, group: Group, size: int) -> set[ValueRef]:
    """What a group reads that has so many elements."""
    return {ref for ref in group.reads if flow.type_of(ref).size == size}


def is_value(ref: ValueRef) -> bool:
    """Whether a reference is to memory, not to a scalar."""
    return isinstance(ref, InputRef | NodeRef)


_HEAVY = 16
_MIDDLE = 4
_MIDDLE_OPERATIONS = frozenset({"divide", "sqrt", "reciprocal", "floor_divide", "remainder"})
_LIGHT_OPERATIONS = frozenset(
    {
        *("abs", "add", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or"),
        *("bitwise_right_shift", "bitwise_xor", "cast", "ceil", "conj", "copysign", "equal"),
        *("floor", "greater", "greater_equal", "imag", "isfinite", "isinf", "isnan", "less"),
        *("less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum"),
        *("minimum", "multiply", "negative", "not_equal", "positive", "real", "round", "sign"),
        *("signbit", "square", "subtract", "trunc", "where"),
    }
)


def weight(node: Node) -> int:
    """About how many instructions an elementwise node takes, 0 for others; transcendental functions
    are tens."""
    if node.definition.op_class is not OpClass.ELEMENTWISE:
        return 0
    name = node.definition.name
    if name in _LIGHT_OPERATIONS:
        return 1
    return _MIDDLE if name in _MIDDLE_OPERATIONS else _HEAVY


def weight_of(flow: Flow, members: frozenset[int]) -> int:
    """Of all members together."""
    return sum(weight(flow.nodes[member]) for member in members)
