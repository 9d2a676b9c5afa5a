"""Planning reductions: one kernel, or a second one over partial results where outputs are few and
elements many."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import ArgReduceAttributes, ReduceAttributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import Node
from gpuwire.ir.tensors import Shape, TensorType
from gpuwire.kernels.reduction import LANE_WORKGROUP_SIZE, reduction_kernel
from gpuwire.kernels.reduction_state import Reduction, accumulator
from gpuwire.kernels.shader_types import QUAD
from gpuwire.lowering.builder import PlanBuilder, constant_words
from gpuwire.lowering.layouts import Placed, Strides, collapsed
from gpuwire.lowering.plan_elementwise import plan_constant, plan_copy
from gpuwire.lowering.steps import BufferRange

WORKERS = 1 << 19
"""Invocations that fill a large device: below that, outputs are split into parts."""
SOFTWARE_WORKERS = 1 << 9
"""The same for a CPU that plays a device."""
LANE_ELEMENTS = 32
"""Up to this many contiguous elements an invocation reduces an output by itself."""
LANE_CHUNK = 1 << 8
"""Elements of a part in the lane form, at least, when outputs are split."""
GROUP_CHUNK = 1 << 12
"""The same in the group form."""
MAX_CHUNK = 1 << 18
"""Elements of a part at most: it bounds the chains of float additions and the trips of loops."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A reduction with its dimensions in order: lengths and strides of the kept and the reduced."""

    operation: str
    source: Placed
    indices: Placed | None
    kept: tuple[Shape, Strides]
    reduced: tuple[Shape, Strides]
    result: DType
    whole: int
    """Elements behind one output, over all stages: what a mean divides by."""

    @property
    def outputs(self) -> int:
        return math.prod(self.kept[0])

    @property
    def elements(self) -> int:
        return math.prod(self.reduced[0])


def plan_reduction(builder: PlanBuilder, node: Node, source: Placed) -> Placed:
    """One reduction."""
    attributes = node.attributes
    if isinstance(attributes, ArgReduceAttributes):
        axes: tuple[int, ...] = (attributes.axis,)
    else:
        assert isinstance(attributes, ReduceAttributes)
        axes = attributes.axes
    operation = node.definition.name
    elements = math.prod(source.shape[axis] for axis in axes)
    if not node.type.size:
        return builder.allocate(node.type)
    if not elements:
        return plan_constant(builder, _IDENTITY[operation], node.type)
    if not axes and operation not in ("argmin", "argmax", "any", "all"):
        return plan_copy(builder, source, node.type)
    task = _Task(
        operation,
        source,
        None,
        _dimensions(source, [axis for axis in range(len(source.shape)) if axis not in axes]),
        _dimensions(source, list(axes)),
        node.type.dtype,
        elements,
    )
    result = builder.allocate(node.type)
    _plan(builder, task, result)
    return result


_IDENTITY = {"sum": 0.0, "prod": 1.0, "mean": math.nan, "any": 0.0, "all": 1.0}


def _dimensions(source: Placed, axes: list[int]) -> tuple[Shape, Strides]:
    shape, (strides,) = collapsed(
        tuple(source.shape[axis] for axis in axes),
        [tuple(source.strides[axis] for axis in axes)],
    )
    return (shape, strides) if shape else ((1,), (0,))


def _plan(builder: PlanBuilder, task: _Task, result: Placed) -> None:
    """Launches that reduce `task` into `result`."""
    size = _workgroup_size(builder, task)
    least = GROUP_CHUNK if size else LANE_CHUNK
    workers = task.outputs * size if size else task.outputs
    fill = SOFTWARE_WORKERS if builder.facts.is_software else WORKERS
    wanted = max(1, fill // workers, -(-task.elements // MAX_CHUNK))
    chunk = min(task.elements, max(least, -(-task.elements // wanted)), MAX_CHUNK)
    quads = bool(size) and _in_quads(task)
    chunk = -(-chunk // QUAD) * QUAD if quads else chunk
    parts = -(-task.elements // chunk)
    reduction = Reduction(
        operation=task.operation,
        source=task.source.dtype,
        accumulate=_accumulate(task),
        result=result.dtype,
        kept_rank=len(task.kept[0]),
        reduced_rank=len(task.reduced[0]),
        partial=parts > 1,
        indices_given=task.indices is not None,
        workgroup_size=size,
        quads=quads,
    )
    if parts == 1:
        _launch(builder, task, reduction, chunk, 1, [builder.whole(result, "a reduction")])
        return
    accumulate = reduction.accumulate
    partial = builder.allocate(TensorType(accumulate, (parts, task.outputs)))
    targets = [builder.whole(partial, "a reduction")]
    indices = None
    if reduction.is_arg:
        indices = builder.allocate(TensorType(dt.uint32, (parts, task.outputs)))
        targets.append(builder.whole(indices, "a reduction"))
    _launch(builder, task, reduction, chunk, parts, targets)
    rest = replace(
        task,
        source=partial,
        indices=indices,
        kept=((task.outputs,), (1,)),
        reduced=((parts,), (task.outputs,)),
    )
    _plan(builder, rest, result)


def _in_quads(task: _Task) -> bool:
    """Whether the group form may read four elements at a time."""
    shape, strides = task.reduced
    whole = (task.elements, task.source.offset, *task.kept[1])
    return strides == (1,) and len(shape) == 1 and all(number % QUAD == 0 for number in whole)


def _accumulate(task: _Task) -> DType:
    if task.indices is not None:
        return task.source.dtype
    return accumulator(task.operation, task.source.dtype, task.result)


def _workgroup_size(builder: PlanBuilder, task: _Task) -> int:
    """0: the lane form. A workgroup reads neighbours along the reduced dimensions, an invocation by
    itself leaves them to the invocations beside it, so what is contiguous decides. A CPU pays more
    for a barrier than for reading out of order."""
    along_reduced = abs(task.reduced[1][-1]) <= abs(task.kept[1][-1]) or task.outputs == 1
    if task.elements <= LANE_ELEMENTS or (not along_reduced and task.outputs >= 16):
        return 0
    if builder.facts.is_software:
        return 0
    if task.elements <= 1024:
        return 64
    return min(256, builder.facts.max_workgroup_invocations)


def _launch(
    builder: PlanBuilder,
    task: _Task,
    reduction: Reduction,
    chunk: int,
    parts: int,
    targets: list[BufferRange],
) -> None:
    kernel = builder.kernels.kernel(reduction, lambda: reduction_kernel(reduction))
    (kept, kept_strides), (reduced, reduced_strides) = task.kept, task.reduced
    source = task.source
    window = builder.window(
        source, kept + reduced, kept_strides + reduced_strides, source.offset, task.operation
    )
    buffers = [window.buffer]
    if task.indices is not None:
        buffers.append(builder.whole(task.indices, task.operation))
    words = [task.outputs, task.elements, chunk, parts, window.offset]
    words += [*kept, *kept_strides, *reduced, *reduced_strides]
    constants = b""
    if task.operation == "mean" and not reduction.partial:
        constants = constant_words(float(task.whole), dt.real_of(reduction.accumulate))
    workers = task.outputs * parts
    if not reduction.partial:
        workers = -(-workers // reduction.outputs_per_worker)
    groups = workers if reduction.workgroup_size else -(-workers // LANE_WORKGROUP_SIZE)
    builder.launch(kernel, groups, [*buffers, *targets], words, (), constants)
