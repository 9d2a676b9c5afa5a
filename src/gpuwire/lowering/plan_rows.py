"""Planning row kernels: who handles a row, and whether it is held in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuwire.errors import LaunchError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.graphs import ScalarRef
from gpuwire.ir.tensors import Shape, TensorType
from gpuwire.kernels.programs import Load, LoadForm, Result
from gpuwire.kernels.row_programs import Instruction, RowForm, RowProgram, RowReduction
from gpuwire.kernels.rows import LANE_WORKGROUP_SIZE, row_kernel
from gpuwire.kernels.shader_types import QUAD
from gpuwire.lowering.builder import Operand, PlanBuilder, constant_words, scalar_words
from gpuwire.lowering.layouts import Placed, Strides, collapsed
from gpuwire.lowering.plan_transposing import plan_transposing, runs_across

HELD_BY_LANE = 16
"""Elements that a lane of a workgroup holds, if there are lanes enough."""
MOST_HELD = 32
"""Elements that any lane holds at most: more would not fit into registers."""
MOST_WRITTEN = 1536
"""Operations that a kernel with held elements may have, written out for each."""
MOST_WRITTEN_SOFTWARE = 96
"""The same on a CPU. A softmax over ten columns takes 250 ms to compile, and 65 ms as a loop, which
runs a fifth as fast."""
SHORT_ROW = 32
"""Up to this many elements an invocation handles a row by itself."""


def plan_rows(
    builder: PlanBuilder,
    shape: Shape,
    axes: tuple[int, ...],
    operands: Sequence[Operand],
    instructions: tuple[Instruction, ...],
    results: tuple[Result, ...],
    row_shapes: Sequence[Shape | None],
) -> list[Placed]:
    """A row program over operands seen with `shape`; rows lie along `axes`. `row_shapes`: for each
    result its shape if there is one for each row, else None."""
    operands = [_in_order(builder, operand) for operand in operands]
    made = [
        builder.allocate(TensorType(result.dtype, shape if own is None else own))
        for result, own in zip(results, row_shapes, strict=True)
    ]
    tensors = [operand for operand in operands if isinstance(operand, Placed)]
    full = [result for result, own in zip(made, row_shapes, strict=True) if own is None]
    kept_axes = [axis for axis in range(len(shape)) if axis not in axes]
    kept, kept_strides = _dimensions(shape, kept_axes, [*tensors, *full])
    reduced, reduced_strides = _dimensions(shape, list(axes), [*tensors, *full])
    strides = list(zip(kept_strides, reduced_strides, strict=True))
    form = _form(builder, kept, reduced, [*tensors, *full], strides, instructions)
    if not form.quads and any(result.dtype.itemsize < 4 for result in full):
        raise LaunchError("rows of a narrow type that do not lie in fours", kernel="rows")
    loads = []
    by_tensor = iter(strides)
    for operand in operands:
        if isinstance(operand, ScalarRef):
            loads.append(Load(operand.dtype, LoadForm.SCALAR))
            continue
        _, along = next(by_tensor)
        same = not any(along)
        varying = LoadForm.QUAD if form.quads else LoadForm.STRIDED
        loads.append(Load(operand.dtype, LoadForm.UNIFORM if same else varying))
    program = RowProgram(
        tuple(loads), instructions, results, tuple(own is not None for own in row_shapes)
    )
    kernel = builder.kernels.kernel((program, form), lambda: row_kernel(program, form))
    rows, length = math.prod(kept), math.prod(reduced)
    words = [rows, length, *kept, *reduced]
    buffers = []
    for tensor, (of_kept, along) in zip(tensors, strides, strict=False):
        window = builder.window(tensor, kept + reduced, of_kept + along, tensor.offset, "rows")
        buffers.append(window.buffer)
        words += [window.offset, *of_kept, *(along if any(along) else ())]
    buffers += [builder.whole(result, "rows") for result in made]
    for of_kept, along in strides[len(tensors) :]:
        words += [*of_kept, *along]
    constants = b"".join(
        constant_words(float(length), dt.real_of(instruction.accumulate))
        for instruction in instructions
        if isinstance(instruction, RowReduction) and instruction.operation == "mean"
    )
    scalars = [scalar_words(operand) for operand in operands if isinstance(operand, ScalarRef)]
    groups = rows if form.workgroup_size > 1 else -(-rows // LANE_WORKGROUP_SIZE)
    builder.launch(kernel, groups, buffers, words, scalars, constants)
    return made


def _in_order(builder: PlanBuilder, operand: Operand) -> Operand:
    """A copy of a large operand whose memory runs across the rows."""
    if isinstance(operand, Placed) and runs_across(builder, operand):
        return plan_transposing(builder, operand)
    return operand


def _dimensions(
    shape: Shape, axes: list[int], tensors: Sequence[Placed]
) -> tuple[Shape, list[Strides]]:
    lengths, strides = collapsed(
        tuple(shape[axis] for axis in axes),
        [tuple(tensor.strides[axis] for axis in axes) for tensor in tensors],
    )
    return (lengths, strides) if lengths else ((1,), [(0,) for _ in tensors])


def _form(
    builder: PlanBuilder,
    kept: Shape,
    reduced: Shape,
    tensors: Sequence[Placed],
    strides: Sequence[tuple[Strides, Strides]],
    instructions: tuple[Instruction, ...],
) -> RowForm:
    length = math.prod(reduced)
    varying = [(tensor, own) for tensor, own in zip(tensors, strides, strict=True) if any(own[1])]
    quads = length % QUAD == 0 and all(
        along == (1,) and all(number % QUAD == 0 for number in (tensor.offset, *of_kept))
        for tensor, (of_kept, along) in varying
    )
    each = QUAD if quads else 1
    size = _workgroup_size(builder, length, [own for _, own in varying])
    held = -(-length // (size * each))
    written = held * each * len(instructions)
    most = MOST_WRITTEN_SOFTWARE if builder.facts.is_software else MOST_WRITTEN
    if held * each > MOST_HELD or written > most:
        held = 0
    exact = bool(held) and held * size * each == length
    return RowForm(len(kept), len(reduced), size, held, exact, quads, not builder.facts.is_software)


def _workgroup_size(
    builder: PlanBuilder, length: int, strides: Sequence[tuple[Strides, Strides]]
) -> int:
    """1 where an invocation has a row for itself: rows are short, or neighbours in memory belong to
    neighbouring rows, or barriers cost more than anything, as on a CPU."""
    across = any(abs(of_kept[-1]) < abs(along[-1]) and of_kept[-1] for of_kept, along in strides)
    if builder.facts.is_software or length <= SHORT_ROW or across:
        return 1
    lanes = 1 << (-(-length // HELD_BY_LANE) - 1).bit_length()
    return max(32, min(lanes, 1024, builder.facts.max_workgroup_invocations))
