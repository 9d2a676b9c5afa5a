"""From an op-graph to a plan, node by node."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.errors import LaunchError, UnsupportedDType
from gpuwire.ir.graphs import InputRef, Node, NodeRef, OpGraph, ScalarRef, ValueRef
from gpuwire.ir.operations import OpClass
from gpuwire.ir.tensors import TensorType
from gpuwire.lowering.builder import KernelCache, Operand, PlanBuilder
from gpuwire.lowering.facts import DeviceFacts
from gpuwire.lowering.fusion.grouping import grouped
from gpuwire.lowering.fusion.merging import merged
from gpuwire.lowering.fusion.planning import plan_groups
from gpuwire.lowering.fusion.rewriting import rewritten
from gpuwire.lowering.layouts import Placed
from gpuwire.lowering.plan_elementwise import plan_copy, plan_elementwise, runs_on_device
from gpuwire.lowering.plan_matmul import plan_matmul
from gpuwire.lowering.plan_reduction import plan_reduction
from gpuwire.lowering.plan_shapes import (
    broadcast,
    permuted,
    plan_arange,
    plan_concat,
    plan_reshape,
    plan_slice_assign,
    plan_take,
    sliced,
)
from gpuwire.lowering.steps import HostOperand, HostStep, Plan

Layout = tuple[tuple[int, ...], int]
"""Strides and offset of an input, in elements."""


def plan_graph(
    graph: OpGraph,
    layouts: Sequence[Layout],
    kernels: KernelCache,
    facts: DeviceFacts,
    *,
    fuse: bool = True,
) -> Plan:
    """The plan of a graph whose inputs lie so. Raises `LaunchError` for what the device cannot
    bind and `UnsupportedDType` for what it cannot hold.

    `fuse`: let nodes share kernels. What turns out too large for a kernel that several would share
    is planned node by node.
    """
    for node in graph.nodes:
        check_dtype(facts, node.type)
    if fuse and len(graph.nodes) > 1:
        try:
            return _plan_fused(graph, layouts, kernels, facts)
        except LaunchError:
            pass  # Node by node says it better, if it fails as well.
    return _plan_each(graph, layouts, kernels, facts)


def _plan_fused(
    graph: OpGraph, layouts: Sequence[Layout], kernels: KernelCache, facts: DeviceFacts
) -> Plan:
    flow = rewritten(graph)
    groups = merged(flow, grouped(flow, facts), facts)
    builder = PlanBuilder(kernels, facts, len(layouts))
    return builder.finish(
        plan_groups(builder, flow, groups, _placed_inputs(graph, layouts), _plan_node),
        graph.nodes,
    )


def _placed_inputs(graph: OpGraph, layouts: Sequence[Layout]) -> list[Placed]:
    return [
        Placed(slot, type_, strides, offset)
        for slot, (type_, (strides, offset)) in enumerate(zip(graph.inputs, layouts, strict=True))
    ]


def _plan_each(
    graph: OpGraph, layouts: Sequence[Layout], kernels: KernelCache, facts: DeviceFacts
) -> Plan:
    """Every node by itself."""
    builder = PlanBuilder(kernels, facts, len(layouts))
    inputs = _placed_inputs(graph, layouts)
    made: list[Placed] = []

    def operand(ref: ValueRef) -> Operand:
        match ref:
            case InputRef(index):
                return inputs[index]
            case NodeRef(index):
                return made[index]
        return ref

    for number, node in enumerate(graph.nodes):
        builder.nodes = (number,)
        made.append(_plan_node(builder, node, [operand(ref) for ref in node.operands]))
    return builder.finish([made[output.index] for output in graph.outputs], graph.nodes)


def plan_contiguous(
    type_: TensorType, layout: Layout, kernels: KernelCache, facts: DeviceFacts
) -> Plan:
    """The plan of a row-major copy of one input. Raises `LaunchError`."""
    builder = PlanBuilder(kernels, facts, 1)
    strides, offset = layout
    return builder.finish([plan_copy(builder, Placed(0, type_, strides, offset), type_)])


def check_dtype(facts: DeviceFacts, type_: TensorType) -> None:
    """Raise `UnsupportedDType` for a type that the device lacks."""
    if type_.dtype in facts.dtypes:
        return
    narrower = {
        "int64": "int32",
        "uint64": "uint32",
        "float64": "float32",
        "complex128": "complex64",
    }
    instead = narrower.get(type_.dtype.name)
    raise UnsupportedDType(
        f"this device has no {type_.dtype}; use {instead}",
        dtype=type_.dtype.name,
        instead=instead,
    )


def _plan_node(builder: PlanBuilder, node: Node, operands: list[Operand]) -> Placed:
    name = node.definition.name
    match node.definition.op_class:
        case OpClass.ELEMENTWISE:
            if runs_on_device(node, [operand.dtype for operand in operands]):
                return plan_elementwise(builder, node, operands)
            return _plan_host(builder, node, operands)
        case OpClass.REDUCTION:
            return plan_reduction(builder, node, _tensor(builder, operands[0]))
    if name == "full" or (name == "broadcast_to" and isinstance(operands[0], ScalarRef)):
        return plan_copy(builder, operands[0], node.type)
    if name == "arange":
        start, step = operands
        if isinstance(start, ScalarRef) and isinstance(step, ScalarRef):
            return plan_arange(builder, node, start, step)
        return _plan_host(builder, node, operands)
    tensors = [_tensor(builder, operand) for operand in operands]
    match name:
        case "matmul":
            return plan_matmul(builder, node, *tensors)
        case "reshape":
            return plan_reshape(builder, node, *tensors)
        case "broadcast_to":
            return broadcast(node, *tensors)
        case "permute_dims":
            return permuted(node, *tensors)
        case "slice":
            return sliced(node, *tensors)
        case "concat":
            return plan_concat(builder, node, tensors)
        case "slice_assign":
            return plan_slice_assign(builder, node, *tensors)
        case "take":
            return plan_take(builder, node, *tensors)
    return _plan_host(builder, node, operands)


def _tensor(builder: PlanBuilder, operand: Operand) -> Placed:
    """The operand as a tensor: a scalar is put into memory."""
    if isinstance(operand, Placed):
        return operand
    return plan_copy(builder, operand, TensorType(operand.dtype, ()))


def _plan_host(builder: PlanBuilder, node: Node, operands: Sequence[Operand]) -> Placed:
    """The node in NumPy. An empty result needs no computing."""
    if not node.type.size:
        return builder.allocate(node.type)
    read: list[HostOperand] = []
    for operand in operands:
        if isinstance(operand, ScalarRef):
            read.append(operand.index)
        elif operand.is_contiguous and operand.offset == 0:
            read.append(operand)
        else:
            read.append(plan_copy(builder, operand, operand.type))
    result = builder.allocate(node.type)
    builder.host(HostStep(node.definition, node.attributes, tuple(read), result, builder.nodes))
    return result
