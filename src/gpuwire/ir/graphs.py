"""Op-graphs: recorded ops in relative form.

Values are numbered, not named: a node's operand is an input of the graph, a scalar slot or an
earlier node's result. Two runs of the same code over different tensors are the same graph, and
what differs is in the bindings. One op by itself is a graph of one node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuwire.ir.attributes import Attributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.operations import OpDef, Operation
from gpuwire.ir.tensors import Scalar, TensorType


@dataclass(frozen=True, slots=True)
class InputRef:
    """The graph's input of that number."""

    index: int


@dataclass(frozen=True, slots=True)
class ScalarRef:
    """The binding's scalar of that number, of that type."""

    index: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class NodeRef:
    """The result of an earlier node."""

    index: int


ValueRef = InputRef | ScalarRef | NodeRef


@dataclass(frozen=True, slots=True)
class NodeSource:
    """One op of a graph as it is recorded and sent: its result's type follows from its rule."""

    definition: OpDef
    operands: tuple[ValueRef, ...]
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Node:
    """One op of a graph, with the type of its result. The location takes no part in equality."""

    definition: OpDef
    operands: tuple[ValueRef, ...]
    attributes: Attributes
    type: TensorType


@dataclass(frozen=True, slots=True)
class OpGraph:
    """Inputs by type, nodes in order, and the values that outlive the graph."""

    inputs: tuple[TensorType, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[NodeRef, ...]


def typed_graph(
    inputs: tuple[TensorType, ...], sources: Iterable[NodeSource], outputs: Iterable[int]
) -> OpGraph:
    """The graph of these nodes, each typed by its operation's rule. Operands must name inputs that
    there are and nodes before their own. Raises what the rules raise."""
    nodes: list[Node] = []

    def type_of(operand: ValueRef) -> TensorType:
        match operand:
            case NodeRef(index):
                return nodes[index].type
            case InputRef(index):
                return inputs[index]
            case ScalarRef(_, dtype):
                return TensorType(dtype, ())

    for source in sources:
        types = tuple([type_of(operand) for operand in source.operands])
        result = source.definition.result_type(types, source.attributes)
        nodes.append(Node(source.definition, source.operands, source.attributes, result))
    return OpGraph(inputs, tuple(nodes), tuple([NodeRef(output) for output in outputs]))


def single_node_graph(
    operation: Operation, input_types: tuple[TensorType, ...]
) -> tuple[OpGraph, tuple[Scalar, ...]]:
    """The graph of one operation, and its scalars. `input_types` are those of its tensors, in
    order, scalars left out. Raises what the operation's rule raises."""
    operands: list[ValueRef] = []
    types: list[TensorType] = []
    scalars: list[Scalar] = []
    tensors = 0
    for operand in operation.inputs:
        if isinstance(operand, Scalar):
            operands.append(ScalarRef(len(scalars), operand.dtype))
            types.append(operand.type)
            scalars.append(operand)
        else:
            operands.append(InputRef(tensors))
            types.append(input_types[tensors])
            tensors += 1
    result = operation.definition.result_type(tuple(types), operation.attributes)
    node = Node(operation.definition, tuple(operands), operation.attributes, result)
    return OpGraph(input_types, (node,), (NodeRef(0),)), tuple(scalars)
