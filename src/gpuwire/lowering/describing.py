"""A plan as text, for whoever wants to know what a graph comes to on the device."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.compute.sequences import BufferRange
from gpuwire.ir.graphs import OpGraph
from gpuwire.kernels.kernel import Access
from gpuwire.lowering.layouts import Placed
from gpuwire.lowering.steps import AllocateStep, HostStep, KernelStep, Plan


def described(graph: OpGraph, plan: Plan) -> str:
    """One line for each launch, in order: the kernel, how many workgroups of what shape, the memory
    that it binds, its results last (`a0` is the memory of an input, `m0` memory that the plan
    takes), the bytes that it reads and writes at most. Below it the operations that it computes, as
    they are numbered in the graph, with their types. Operations that run on the host in NumPy are
    named as such."""
    inputs = len(graph.inputs)
    sizes = [step.size for step in plan.steps if isinstance(step, AllocateStep)]
    launches = sum(isinstance(step, KernelStep) for step in plan.steps)
    lines = [f"{launches} launches, {len(sizes)} allocations of {sum(sizes)} bytes"]
    for step in plan.steps:
        if isinstance(step, KernelStep):
            lines += [_launch(step, inputs), *_operations(graph, step.nodes)]
        elif isinstance(step, HostStep):
            lines += [_host_step(step, inputs), *_operations(graph, step.nodes)]
    if plan.free:
        lines += ["without a launch", *_operations(graph, plan.free)]
    outputs = ", ".join(_memory(output.slot, inputs) for output in plan.outputs)
    return "\n".join([*lines, f"gives {outputs}"])


def _launch(step: KernelStep, inputs: int) -> str:
    shape = "×".join(map(str, step.kernel.workgroup_size))
    bound = ", ".join(_range(part, inputs) for part in step.buffers)
    read, written = _moved_bytes(step)
    return (
        f"launch {step.kernel.name}, {step.workgroups} of {shape}, on {bound}; "
        f"reads {read} bytes, writes {written}"
    )


def _host_step(step: HostStep, inputs: int) -> str:
    bound = ", ".join(
        _memory(operand.slot, inputs) if isinstance(operand, Placed) else f"s{operand}"
        for operand in step.operands
    )
    result = _memory(step.result.slot, inputs)
    return f"on the host {step.definition.name}, in NumPy, on {bound}, {result}"


def _operations(graph: OpGraph, nodes: Sequence[int]) -> list[str]:
    return [f"    %{n} {graph.nodes[n].definition.name} {graph.nodes[n].type}" for n in nodes]


def _moved_bytes(step: KernelStep) -> tuple[int, int]:
    read = written = 0
    for part, access in zip(step.buffers, step.kernel.access, strict=True):
        if access is not Access.WRITE:
            read += part.size
        if access is not Access.READ:
            written += part.size
    return read, written


def _range(part: BufferRange, inputs: int) -> str:
    start = f"+{part.offset}" if part.offset else ""
    return f"{_memory(part.slot, inputs)}{start}"


def _memory(slot: int, inputs: int) -> str:
    return f"a{slot}" if slot < inputs else f"m{slot - inputs}"
