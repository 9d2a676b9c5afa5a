"""Planning matrix products: the tile by the size, the batch by strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import Node, ScalarRef
from gpuwire.ir.tensors import TensorType
from gpuwire.kernels.matmul import matmul_kernel
from gpuwire.kernels.matmul_direct import (
    LONGEST_K,
    WORKGROUP_SIZE,
    Block,
    DirectMatmulSpec,
    direct_matmul_kernel,
)
from gpuwire.kernels.matmul_epilogue import MatmulEpilogue
from gpuwire.kernels.matmul_spec import MatmulSpec, OperandForm, Tile, matmul_accumulator
from gpuwire.kernels.programs import Load, LoadForm, Result, Step
from gpuwire.lowering.builder import Operand, PlanBuilder, scalar_words
from gpuwire.lowering.facts import DeviceFacts
from gpuwire.lowering.layouts import Placed, Strides, broadcast_strides, collapsed
from gpuwire.lowering.plan_elementwise import plan_constant, plan_copy, plan_program

SMALL = Tile(16, 16, 16, 1, 1)
MIDDLE = Tile(64, 64, 16, 4, 4)
# Measured on an H200 (132 multiprocessors), float32, TFLOP/s for n = 256, 1024, 4096: SMALL 0.7, 5,
# 6; MIDDLE 0.5, 17, 29; the large one (`facts`) 38 for the last. Below two workgroups for each
# multiprocessor size loses.


def plan_matmul(builder: PlanBuilder, node: Node, left: Placed, right: Placed) -> Placed:
    """One product of matrices or of batches of them."""
    type_ = node.type
    if not type_.size:
        return builder.allocate(type_)
    if not left.shape[-1]:
        return plan_constant(builder, 0.0, type_)
    accumulate = matmul_accumulator(type_.dtype)
    product = _product(builder, left, right, TensorType(accumulate, type_.shape))
    if accumulate is type_.dtype:
        return product
    return plan_copy(builder, product, type_)


def _product(builder: PlanBuilder, left: Placed, right: Placed, type_: TensorType) -> Placed:
    """A product in its accumulator's type. Over more than one launch may sum, it is the sum of the
    products over both halves."""
    if not _is_long(builder, left):
        product = builder.allocate(type_)
        _launch(builder, left, right, None, (), [product], type_.dtype)
        return product
    k = left.shape[-1]
    builder.require_launches(-(-k // LONGEST_K), "matmul")
    halves = [
        _product(builder, _along(left, -1, part), _along(right, -2, part), type_)
        for part in (range(k // 2), range(k // 2, k))
    ]
    add = Step("add", (0, 1), type_.dtype, type_.dtype)
    return plan_program(builder, (add,), halves, type_.shape, (Result(2, type_.dtype),))[0]


def _is_long(builder: PlanBuilder, left: Placed) -> bool:
    return builder.facts.is_software and left.shape[-1] > LONGEST_K


def _along(side: Placed, axis: int, part: range) -> Placed:
    """That part of an operand along one of its last two axes."""
    shape = list(side.shape)
    shape[axis] = len(part)
    return side.viewed(tuple(shape), side.strides, side.offset + part.start * side.strides[axis])


def plan_fused_matmul(
    builder: PlanBuilder,
    left: Placed,
    right: Placed,
    type_: TensorType,
    others: Sequence[Operand],
    steps: tuple[Step, ...],
    results: tuple[Result, ...],
) -> list[Placed]:
    """A product of that type, neither it nor an operand empty, whose elements go through steps:
    register 0 is the product, then come the others, seen with the product's shape. The product's
    type and the results' fill a word at least."""
    if _is_long(builder, left):
        product = _product(builder, left, right, type_)
        return plan_program(builder, steps, [product, *others], type_.shape, results)
    loads = tuple(
        Load(other.dtype, LoadForm.SCALAR if isinstance(other, ScalarRef) else LoadForm.STRIDED)
        for other in others
    )
    epilogue = MatmulEpilogue(loads, steps, results)
    made = [builder.allocate(TensorType(result.dtype, type_.shape)) for result in results]
    _launch(builder, left, right, epilogue, others, made, type_.dtype)
    return made


def _launch(
    builder: PlanBuilder,
    left: Placed,
    right: Placed,
    epilogue: MatmulEpilogue | None,
    others: Sequence[Operand],
    results: Sequence[Placed],
    accumulate: DType,
) -> None:
    m, k = left.shape[-2:]
    n = right.shape[-1]
    batch = results[0].shape[:-2]
    tensors = [other for other in others if isinstance(other, Placed)]
    lengths, batches = collapsed(
        batch, [_batch_strides(side, batch) for side in (left, right, *tensors)]
    )
    words: list[int] = []
    buffers = []
    for place, (side, strides) in enumerate(zip((left, right, *tensors), batches, strict=True)):
        window = builder.window(
            side,
            (*lengths, *side.shape[-2:]),
            (*strides, *side.strides[-2:]),
            side.offset,
            "matmul",
        )
        buffers.append(window.buffer)
        words += [window.offset, *side.strides[-2:]]
        if place == 1:
            words += [*lengths, *batches[0], *batches[1]]
        elif place:
            words += strides
    buffers += [builder.whole(result, "matmul") for result in results]
    scalars = [scalar_words(other) for other in others if isinstance(other, ScalarRef)]
    count = results[0].type.size // (m * n)
    rank = len(lengths)
    forms = (_form(left, -2, -1, batches[0]), _form(right, -1, -2, batches[1]))
    if builder.facts.is_software:
        block = _block(forms, accumulate, m, n)
        spec = DirectMatmulSpec(*_direct(forms, block), accumulate, rank, block, epilogue)
        kernel = builder.kernels.kernel(spec, lambda: direct_matmul_kernel(spec))
        blocks_m, blocks_n = -(-m // block.rows), -(-n // block.columns)
        blocks = blocks_m * blocks_n * count
        head = [m, n, k, blocks_m, blocks_n, blocks]
        builder.launch(kernel, -(-blocks // WORKGROUP_SIZE), buffers, head + words, scalars)
        return
    tile = _tile(builder.facts, accumulate, m, n, count)
    tiled = MatmulSpec(*forms, accumulate, rank, tile, epilogue)
    kernel = builder.kernels.kernel(tiled, lambda: matmul_kernel(tiled))
    tiles_m, tiles_n = -(-m // tile.rows), -(-n // tile.columns)
    head = [m, n, k, -(-k // tile.depth), tiles_m, tiles_n, count]
    builder.launch(kernel, tiles_m * tiles_n * count, buffers, head + words, scalars)


def _block(forms: tuple[OperandForm, OperandForm], accumulate: DType, m: int, n: int) -> Block:
    """Four by four where the product is that large, by eight where words are loaded in fours; else
    no lane works on what is not there. Eight by eight is 5 % faster and takes twice as long to
    compile: 0.4 s more."""
    if n == 1:
        return Block(8, 1)
    if m == 1:
        return Block(1, 8)
    in_fours = all(form.quads for form in forms) and accumulate.itemsize == 4
    return Block(4, 8 if in_fours and n % 8 == 0 else 4)


def _direct(
    forms: tuple[OperandForm, OperandForm], block: Block
) -> tuple[OperandForm, OperandForm]:
    """The forms as a block can read them: fours of rows or columns need a multiple of four."""
    left, right = forms
    return _for_lanes(left, block.rows), _for_lanes(right, block.columns)


def _for_lanes(form: OperandForm, each: int) -> OperandForm:
    return form if form.along_k or not each % 4 else replace(form, quads=False)


def _form(side: Placed, along_i: int, along_k: int, batch: Strides) -> OperandForm:
    """How to read one operand, whose axis `along_k` is summed over."""
    i, k = side.strides[along_i], side.strides[along_k]
    by_k = abs(k) <= abs(i)
    near, far, length = (k, i, side.shape[along_k]) if by_k else (i, k, side.shape[along_i])
    quads = near == 1 and all(number % 4 == 0 for number in (far, side.offset, length, *batch))
    return OperandForm(side.dtype, by_k, quads)


def _batch_strides(side: Placed, batch: tuple[int, ...]) -> tuple[int, ...]:
    matrices = side.viewed(side.shape[:-2], side.strides[:-2], side.offset)
    return broadcast_strides(matrices, batch)


def _tile(facts: DeviceFacts, accumulate: DType, m: int, n: int, batches: int) -> Tile:
    """The largest tile that still gives the device enough workgroups and fits its memory."""
    size = accumulate.itemsize
    large = facts.large_tile
    for tile in (large, MIDDLE):
        workgroups = -(-m // tile.rows) * -(-n // tile.columns) * batches
        shared = (tile.rows + tile.columns) * tile.depth * size
        if (
            min(m, n) >= tile.rows // 2
            and workgroups >= (256 if tile is large else 32)
            and size <= (4 if tile is large else 8)
            and shared <= facts.max_workgroup_memory
            and tile.workgroup_size <= facts.max_workgroup_invocations
        ):
            return tile
    return SMALL
