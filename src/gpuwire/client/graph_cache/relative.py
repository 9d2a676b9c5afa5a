"""Relative form: a run of ops with its tensors by position instead of by id."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.client.graph_cache.ops import StreamOps
from gpuwire.ids import TensorId
from gpuwire.ir.graphs import InputRef, NodeRef, NodeSource, ScalarRef, ValueRef
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.wire.definitions import GraphDefinition

SCALAR = 1 << 62
"""The reference to a scalar: which one follows from its place, of what type from the op's token."""

Content = tuple[tuple[int, ...], tuple[int, ...]]
"""The tokens of the ops, and the references of all their operands in one row: op k of the run is k,
input k is ~k. Runs of equal content are runs of one graph, but for its outputs."""


@dataclass(frozen=True, slots=True)
class RelativeOps:
    """A run of ops, its content and what was bound."""

    content: Content
    inputs: tuple[TensorId, ...]
    """In order of first appearance."""
    scalars: tuple[Scalar, ...]


def relative_ops(ops: StreamOps, start: int, end: int) -> RelativeOps:
    """The relative form of the ops from `start` to before `end`. A quarter of a µs an op."""
    made = {tensor: number for number, tensor in enumerate(ops.outputs[start:end])}
    slots: dict[TensorId, int] = {}
    scalars: list[Scalar] = []
    refs: list[int] = []
    for operands in ops.operands[start:end]:
        for operand in operands:
            if isinstance(operand, Scalar):
                refs.append(SCALAR)
                scalars.append(operand)
                continue
            number = made.get(operand)
            if number is None:
                number = ~slots.setdefault(operand, len(slots))
            refs.append(number)
    content = (tuple(ops.tokens[start:end]), tuple(refs))
    return RelativeOps(content, tuple(slots), tuple(scalars))


def definition_of(
    ops: StreamOps, start: int, content: Content, outputs: tuple[int, ...]
) -> GraphDefinition:
    """The definition of a run of ops whose content was taken; `outputs` are numbers of its ops."""
    tokens, refs = content
    rest = iter(refs)
    inputs: list[TensorType] = []
    nodes: list[NodeSource] = []
    scalars = 0
    for signature in ops.signatures[start : start + len(tokens)]:
        operands: list[ValueRef] = []
        for type_ in signature.operands:
            ref = next(rest)
            if ref == SCALAR:
                operands.append(ScalarRef(scalars, type_.dtype))
                scalars += 1
            elif ref >= 0:
                operands.append(NodeRef(ref))
            else:
                operands.append(InputRef(~ref))
                if ~ref == len(inputs):
                    inputs.append(type_)
        nodes.append(NodeSource(signature.definition, tuple(operands), signature.attributes))
    locations = tuple([ops.location(start + number) for number in range(len(tokens))])
    return GraphDefinition(tuple(inputs), tuple(nodes), outputs, locations)
