"""Graphs without what need not be computed: the first pass of planning.

Three rewritings, each from a `Flow` to a smaller one: operations that change nothing, operations
that another one repeats, operations that nothing needs. Floating point is left as it is: only what
gives the same bits goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuwire.ir.attributes import AxisAttributes, PermuteAttributes, SliceAttributes
from gpuwire.ir.dtypes import Kind
from gpuwire.ir.graphs import InputRef, Node, NodeRef, OpGraph, ScalarRef, ValueRef
from gpuwire.ir.tensors import TensorType


@dataclass(frozen=True, slots=True)
class Flow:
    """An op-graph being rewritten. Outputs may have become inputs or scalars."""

    inputs: tuple[TensorType, ...]
    nodes: tuple[Node, ...]
    origins: tuple[int, ...]
    """Of each node, its number in the op-graph."""
    outputs: tuple[ValueRef, ...]

    def type_of(self, ref: ValueRef) -> TensorType:
        """The type of a value; a scalar has no dimensions."""
        match ref:
            case NodeRef(index):
                return self.nodes[index].type
            case InputRef(index):
                return self.inputs[index]
            case ScalarRef(_, dtype):
                return TensorType(dtype, ())


def rewritten(graph: OpGraph) -> Flow:
    """A graph after all rewritings."""
    flow = Flow(graph.inputs, graph.nodes, tuple(range(len(graph.nodes))), graph.outputs)
    return without_dead(without_repeats(without_identities(flow)))


def without_identities(flow: Flow) -> Flow:
    """Operations whose result is their operand go; a reshape of a reshape is one."""

    def type_of(ref: ValueRef, so_far: list[Node]) -> TensorType:
        return so_far[ref.index].type if isinstance(ref, NodeRef) else flow.type_of(ref)

    def simplify(node: Node, so_far: list[Node]) -> Node | ValueRef:
        operand = node.operands[0]
        if type_of(operand, so_far) == node.type and _changes_nothing(node):
            return operand
        if node.definition.name == "reshape" and isinstance(operand, NodeRef):
            before = so_far[operand.index]
            if before.definition is node.definition:
                return simplify(replace(node, operands=before.operands), so_far)
        return node

    return _rewrite(flow, simplify)


def _changes_nothing(node: Node) -> bool:
    """Whether a node gives its first operand, which has the node's type."""
    kind, attributes = node.type.dtype.kind, node.attributes
    match node.definition.name:
        case "reshape" | "broadcast_to" | "cast" | "positive":
            return True
        case "real" | "conj":
            return kind is not Kind.COMPLEX
        case "ceil" | "floor" | "trunc" | "round":
            return kind in (Kind.SIGNED, Kind.UNSIGNED)
        case "permute_dims":
            assert isinstance(attributes, PermuteAttributes)
            return attributes.axes == tuple(range(len(attributes.axes)))
        case "slice":  # All elements, in order.
            assert isinstance(attributes, SliceAttributes)
            return not any(attributes.starts) and all(step == 1 for step in attributes.steps)
        case "concat":
            assert isinstance(attributes, AxisAttributes)
            return len(node.operands) == 1
    return False


def without_repeats(flow: Flow) -> Flow:
    """Of operations on the same operands with the same attributes the first stays."""
    known: dict[tuple[object, ...], NodeRef] = {}

    def keep_or_merge(node: Node, so_far: list[Node]) -> Node | ValueRef:
        key = (node.definition, node.operands, node.attributes)
        found = known.get(key)
        if found is not None:
            return found
        known[key] = NodeRef(len(so_far))
        return node

    return _rewrite(flow, keep_or_merge)


def without_dead(flow: Flow) -> Flow:
    """What no output needs goes."""
    live = {ref.index for ref in flow.outputs if isinstance(ref, NodeRef)}
    for number in reversed(range(len(flow.nodes))):
        if number in live:
            operands = flow.nodes[number].operands
            live |= {ref.index for ref in operands if isinstance(ref, NodeRef)}
    numbers = {number: place for place, number in enumerate(sorted(live))}

    def moved(ref: ValueRef) -> ValueRef:
        return NodeRef(numbers[ref.index]) if isinstance(ref, NodeRef) else ref

    return Flow(
        flow.inputs,
        tuple(
            replace(flow.nodes[number], operands=tuple(map(moved, flow.nodes[number].operands)))
            for number in numbers
        ),
        tuple(flow.origins[number] for number in numbers),
        tuple(map(moved, flow.outputs)),
    )


def _rewrite(flow: Flow, simplify: Callable[[Node, list[Node]], Node | ValueRef]) -> Flow:
    """Every node, its operands rewritten, as `simplify` has it: a node, or a value that is there
    already. `simplify` is also given the nodes kept so far."""
    nodes: list[Node] = []
    origins: list[int] = []
    values: list[ValueRef] = []

    def moved(ref: ValueRef) -> ValueRef:
        return values[ref.index] if isinstance(ref, NodeRef) else ref

    for number, node in enumerate(flow.nodes):
        operands = tuple(map(moved, node.operands))
        if operands != node.operands:
            node = replace(node, operands=operands)
        found = simplify(node, nodes)
        if isinstance(found, Node):
            values.append(NodeRef(len(nodes)))
            nodes.append(found)
            origins.append(flow.origins[number])
        else:
            values.append(found)
    return Flow(flow.inputs, tuple(nodes), tuple(origins), tuple(map(moved, flow.outputs)))
