"""Planning reductions: one kernel, or a second one over partial results where outputs are few and
elements many."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpuwire.compute.sequences import BufferRange
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import ArgReduceAttributes, ReduceAttributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import Node, ScalarRef
from gpuwire.ir.tensors import Shape, TensorType, row_major_strides
from gpuwire.kernels.programs import Load, LoadForm, Step
from gpuwire.kernels.reduction import LANE_WORKGROUP_SIZE, reduction_kernel
from gpuwire.kernels.reduction_state import Reduction, accumulator
from gpuwire.kernels.shader_types import QUAD
from gpuwire.lowering.builder import Operand, PlanBuilder, constant_words, scalar_words
from gpuwire.lowering.layouts import Placed, Strides, collapsed
from gpuwire.lowering.plan_elementwise import plan_constant, plan_copy

SOFTWARE_WORKERS = 1 << 9
"""Invocations that fill a CPU that plays a device: below that, outputs are split into parts."""
LANE_ELEMENTS = 32
"""Up to this many contiguous elements an invocation reduces an output by itself."""
LANE_CHUNK = 1 << 8
"""Elements of a part in the lane form, at least, when outputs are split."""
GROUP_CHUNK = 1 << 12
"""The same in the group form."""
MAX_CHUNK = 1 << 18
"""Elements of a part at most: it bounds the chains of float additions and the trips of loops."""


@dataclass(frozen=True, slots=True)
class Prologue:
    """How what is reduced comes about: operands seen with the shape that is reduced, and steps."""

    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    dtype: DType
    """Of what is reduced."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What each output goes through: register 0 is the reduction's result, then come the operands,
    seen with the shape that is kept."""

    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    type: TensorType


@dataclass(frozen=True, slots=True)
class _Task:
    """A reduction with its dimensions in order: lengths of the kept and the reduced ones, and the
    strides of each tensor along them."""

    operation: str
    operands: tuple[Operand, ...]
    prologue: tuple[Step, ...]
    source: DType
    indices: Placed | None
    kept: Shape
    reduced: Shape
    strides: tuple[tuple[Strides, Strides], ...]
    """Kept and reduced, of each tensor among the operands."""
    others: tuple[Operand, ...]
    epilogue: tuple[Step, ...]
    other_strides: tuple[Strides, ...]
    """Kept, of each tensor among the epilogue's operands."""
    result: DType
    whole: int
    """Elements behind one output, over all stages: what a mean divides by."""

    @property
    def outputs(self) -> int:
        return math.prod(self.kept)

    @property
    def elements(self) -> int:
        return math.prod(self.reduced)

    @property
    def tensors(self) -> list[tuple[Placed, Strides, Strides]]:
        """Each tensor among the operands, with its kept and its reduced strides."""
        tensors = [operand for operand in self.operands if isinstance(operand, Placed)]
        return [(t, *strides) for t, strides in zip(tensors, self.strides, strict=True)]


def plan_reduction(builder: PlanBuilder, node: Node, source: Placed) -> Placed:
    """One reduction."""
    axes = reduced_axes(node)
    operation = node.definition.name
    elements = math.prod(source.shape[axis] for axis in axes)
    if not node.type.size:
        return builder.allocate(node.type)
    if not elements:
        return plan_constant(builder, _IDENTITY[operation], node.type)
    if not axes and operation not in ("argmin", "argmax", "any", "all"):
        return plan_copy(builder, source, node.type)
    prologue = Prologue((source,), (), source.dtype)
    return plan_fused_reduction(builder, node, source.shape, prologue, None)


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes of a reduction."""
    attributes = node.attributes
    if isinstance(attributes, ArgReduceAttributes):
        return (attributes.axis,)
    assert isinstance(attributes, ReduceAttributes)
    return attributes.axes


def plan_fused_reduction(
    builder: PlanBuilder, node: Node, shape: Shape, prologue: Prologue, epilogue: Epilogue | None
) -> Placed:
    """A reduction over `shape`, neither it nor the result empty, with what comes before and after
    it. The result has the epilogue's type."""
    axes = reduced_axes(node)
    kept_axes = [axis for axis in range(len(shape)) if axis not in axes]
    tensors = [operand for operand in prologue.operands if isinstance(operand, Placed)]
    others = epilogue.operands if epilogue else ()
    other_tensors = [operand for operand in others if isinstance(operand, Placed)]
    kept, kept_strides = _dimensions(
        [shape[axis] for axis in kept_axes],
        [[tensor.strides[axis] for axis in kept_axes] for tensor in tensors]
        + [list(tensor.strides) for tensor in other_tensors],
    )
    reduced, reduced_strides = _dimensions(
        [shape[axis] for axis in axes],
        [[tensor.strides[axis] for axis in axes] for tensor in tensors],
    )
    task = _Task(
        operation=node.definition.name,
        operands=prologue.operands,
        prologue=prologue.steps,
        source=prologue.dtype,
        indices=None,
        kept=kept,
        reduced=reduced,
        strides=tuple(zip(kept_strides[: len(tensors)], reduced_strides, strict=True)),
        others=others,
        epilogue=epilogue.steps if epilogue else (),
        other_strides=tuple(kept_strides[len(tensors) :]),
        result=node.type.dtype,
        whole=math.prod(reduced),
    )
    result = builder.allocate(epilogue.type if epilogue else node.type)
    _plan(builder, task, result)
    return result


_IDENTITY = {"sum": 0.0, "prod": 1.0, "mean": math.nan, "any": 0.0, "all": 1.0}


def _dimensions(lengths: list[int], strides: list[list[int]]) -> tuple[Shape, list[Strides]]:
    shape, merged = collapsed(tuple(lengths), [tuple(each) for each in strides])
    return (shape, merged) if shape else ((1,), [(0,) for _ in strides])


def _plan(builder: PlanBuilder, task: _Task, result: Placed) -> None:
    """Launches that reduce `task` into `result`."""
    size = _workgroup_size(builder, task)
    least = GROUP_CHUNK if size else LANE_CHUNK
    workers = task.outputs * size if size else task.outputs
    shape = builder.facts.reductions
    fill = SOFTWARE_WORKERS if builder.facts.is_software else shape.workers
    wanted = max(1, fill // workers, -(-task.elements // MAX_CHUNK))
    chunk = min(task.elements, max(least, -(-task.elements // wanted)), MAX_CHUNK)
    quads = bool(size) and _in_quads(task)
    chunk = -(-chunk // QUAD) * QUAD if quads else chunk
    parts = -(-task.elements // chunk)
    last = parts == 1
    reduction = Reduction(
        operation=task.operation,
        source=task.source,
        accumulate=_accumulate(task),
        result=task.result,
        kept_rank=len(task.kept),
        reduced_rank=len(task.reduced),
        partial=not last,
        indices_given=task.indices is not None,
        workgroup_size=size,
        quads=quads,
        unroll=shape.unroll,
        interleaved=bool(size) and not last and shape.interleaved,
        loads=_loads(task, quads),
        prologue=task.prologue,
        epilogue_loads=tuple(_load(other) for other in task.others) if last else (),
        epilogue=task.epilogue if last else (),
    )
    if last:
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
        operands=(partial,),
        prologue=(),
        source=accumulate,
        indices=indices,
        reduced=(parts,),
        strides=((row_major_strides(task.kept), (task.outputs,)),),
    )
    _plan(builder, rest, result)


def _load(operand: Operand) -> Load:
    form = LoadForm.SCALAR if isinstance(operand, ScalarRef) else LoadForm.STRIDED
    return Load(operand.dtype, form)


def _loads(task: _Task, quads: bool) -> tuple[Load, ...]:
    """How the operands are read; nothing to say of a single tensor that is reduced as it is."""
    if not task.prologue:
        return ()
    tensors = iter(task.tensors)
    loads = []
    for operand in task.operands:
        load = _load(operand)
        if load.form is not LoadForm.SCALAR:
            _, _, reduced = next(tensors)
            if quads:
                load = Load(load.dtype, LoadForm.QUAD if reduced == (1,) else LoadForm.UNIFORM)
        loads.append(load)
    return tuple(loads)


def _in_quads(task: _Task) -> bool:
    """Whether the group form may read four elements at a time."""
    if len(task.reduced) != 1 or task.elements % QUAD:
        return False
    varying = [(tensor, kept) for tensor, kept, reduced in task.tensors if reduced != (0,)]
    if not varying or any(reduced not in ((1,), (0,)) for _, _, reduced in task.tensors):
        return False
    return all(number % QUAD == 0 for tensor, kept in varying for number in (tensor.offset, *kept))


def _accumulate(task: _Task) -> DType:
    if task.indices is not None:
        return task.source
    return accumulator(task.operation, task.source, task.result)


def _workgroup_size(builder: PlanBuilder, task: _Task) -> int:
    """0: the lane form. A workgroup reads neighbours along the reduced dimensions, an invocation by
    itself leaves them to the invocations beside it, so what is contiguous decides. A CPU pays more
    for a barrier than for reading out of order."""
    along_reduced = task.outputs == 1 or all(
        abs(reduced[-1]) <= abs(kept[-1]) or not kept[-1] for _, kept, reduced in task.tensors
    )
    if task.elements <= LANE_ELEMENTS or (not along_reduced and task.outputs >= 16):
        return 0
    if builder.facts.is_software:
        return 0
    if task.elements <= 1024:
        return 64
    return min(builder.facts.reductions.workgroup_size, builder.facts.max_workgroup_invocations)


def _launch(
    builder: PlanBuilder,
    task: _Task,
    reduction: Reduction,
    chunk: int,
    parts: int,
    targets: list[BufferRange],
) -> None:
    kernel = builder.kernels.kernel(reduction, lambda: reduction_kernel(reduction))
    words = [task.outputs, task.elements, chunk, parts, *task.kept, *task.reduced]
    buffers = []
    for tensor, kept, reduced in task.tensors:
        window = builder.window(
            tensor, task.kept + task.reduced, kept + reduced, tensor.offset, task.operation
        )
        buffers.append(window.buffer)
        words += [window.offset, *kept, *reduced]
    if task.indices is not None:
        buffers.append(builder.whole(task.indices, task.operation))
    scalars = [] if not task.prologue else [o for o in task.operands if isinstance(o, ScalarRef)]
    if reduction.epilogue:
        others = [other for other in task.others if isinstance(other, Placed)]
        for tensor, kept in zip(others, task.other_strides, strict=True):
            window = builder.window(tensor, task.kept, kept, tensor.offset, task.operation)
            buffers.append(window.buffer)
            words += [window.offset, *kept]
        scalars += [other for other in task.others if isinstance(other, ScalarRef)]
    constants = b""
    if task.operation == "mean" and not reduction.partial:
        constants = constant_words(float(task.whole), dt.real_of(reduction.accumulate))
    workers = task.outputs * parts
    if not reduction.partial:
        workers = -(-workers // reduction.outputs_per_worker)
    groups = workers if reduction.workgroup_size else -(-workers // LANE_WORKGROUP_SIZE)
    packed = [scalar_words(ref) for ref in scalars]
    builder.launch(kernel, groups, [*buffers, *targets], words, packed, constants)
