"""A plan as text, for whoever wants to know what a graph comes to on the device."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.lowering.layouts import Placed
from gpuwire.lowering.steps import (
    AllocateStep,
    BufferRange,
    HostStep,
    KernelStep,
    Plan,
    ReleaseStep,
    Step,
)


def described(plan: Plan, inputs: int) -> str:
    """One line for each launch, in order: the kernel, how many workgroups of what shape, and the
    memory that it binds, the output last: `a0` is the memory of an input, `m0` memory that the plan
    takes. Operations that run on the host in NumPy are named as such."""
    sizes = [step.size for step in plan.steps if isinstance(step, AllocateStep)]
    rows = [row for step in plan.steps if (row := _row(step, inputs)) is not None]
    launches = sum(isinstance(step, KernelStep) for step in plan.steps)
    head = f"{launches} launches, {len(sizes)} allocations of {sum(sizes)} bytes"
    outputs = ", ".join(_memory(output.slot, inputs) for output in plan.outputs)
    return "\n".join([head, *_table(rows), f"gives {outputs}"])


def _row(step: Step, inputs: int) -> tuple[str, ...] | None:
    match step:
        case KernelStep():
            shape = "×".join(map(str, step.kernel.workgroup_size))
            bound = ", ".join(_range(part, inputs) for part in step.buffers)
            return ("launch", step.kernel.name, f"{step.workgroups} of {shape}", bound)
        case HostStep():
            bound = ", ".join(
                _memory(operand.slot, inputs) if isinstance(operand, Placed) else f"s{operand}"
                for operand in step.operands
            )
            result = _memory(step.result.slot, inputs)
            return ("on the host", step.definition.name, "in NumPy", f"{bound}, {result}")
        case AllocateStep() | ReleaseStep():
            return None
        case _:
            return (type(step).__name__, "", "", "")


def _range(part: BufferRange, inputs: int) -> str:
    start = f"+{part.offset}" if part.offset else ""
    return f"{_memory(part.slot, inputs)}{start}"


def _memory(slot: int, inputs: int) -> str:
    return f"a{slot}" if slot < inputs else f"m{slot - inputs}"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
