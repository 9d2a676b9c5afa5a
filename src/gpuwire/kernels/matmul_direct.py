"""Matrix products without workgroup memory: each invocation computes a block of the result.

For software adapters. There a barrier suspends and resumes every lane of a workgroup, and `fma` is
a call: the tiled product of 1,347 × 64 by 64 × 10 took 20 ms on llvmpipe, this one 0.9 ms (blocks
of 1 × 1: 2.6 ms, of 8 × 2: 0.9 ms, medians of one run).

Operands, result and accumulator are as in `kernels/matmul.py`. Parameters, in words: M, N, K, the
blocks along M and along N, all blocks; then as there.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.expressions import convert
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.matmul import named_matmul
from gpuwire.kernels.matmul_epilogue import MatmulEpilogue, plain_epilogue, write_store
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

_M, _N, _K, _BLOCKS_M, _BLOCKS_N, _BLOCKS, _LEFT, _RIGHT, _BATCH = 0, 1, 2, 3, 4, 5, 6, 9, 12

WORKGROUP_SIZE = 16
LONGEST_K = 1 << 15
"""The most that one launch may sum over: llvmpipe silently ends an invocation's loops after 65,535
rounds. Whoever plans a longer product adds several."""


@dataclass(frozen=True, slots=True)
class Block:
    """The rows and columns that one invocation computes."""

    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class DirectMatmulSpec:
    """What a direct matmul kernel is generated for."""

    left: DType
    right: DType
    accumulate: DType
    batch_rank: int
    block: Block
    epilogue: MatmulEpilogue | None = None


def direct_matmul_kernel(spec: DirectMatmulSpec) -> Kernel:
    """The kernel of a product."""
    block, types = spec.block, shader_type(spec.accumulate)
    writer = KernelWriter(
        f"{named_matmul(spec.epilogue)}__{spec.left.name}_{spec.right.name}__{spec.accumulate.name}"
        f"__direct{block.rows}x{block.columns}_{spec.batch_rank}",
        WORKGROUP_SIZE,
    )
    writer.words(_BATCH + 3 * spec.batch_rank)
    for name, dtype in (("left", spec.left), ("right", spec.right)):
        stored = shader_type(dtype)
        writer.needs(stored.features | types.features)
        writer.buffer(name, stored.storage, Access.READ)
    epilogue = spec.epilogue or plain_epilogue(spec.accumulate)
    write_store(writer, epilogue, spec.accumulate, spec.batch_rank, _M, _N, _BATCH)
    _write_places(writer, spec)
    writer.write(
        f"for (var step = 0u; step < {param(_K)}; step = step + 1u) {{",
    )
    _write_step(writer, spec)
    writer.write("}")
    _write_results(writer, block)
    return writer.finish()


def _write_places(writer: KernelWriter, spec: DirectMatmulSpec) -> None:
    """Which block of which batch this is; where its operands begin; its accumulators.

    A row or column past the matrix's end repeats the last one, and is not stored.
    """
    rank, block = spec.batch_rank, spec.block
    writer.item(param(_BLOCKS))
    writer.write(
        f"let per_batch = {param(_BLOCKS_M)} * {param(_BLOCKS_N)};",
        "let batch = item / per_batch;",
        "let place = item % per_batch;",
        f"let row = (place / {param(_BLOCKS_N)}) * {block.rows}u;",
        f"let column = (place % {param(_BLOCKS_N)}) * {block.columns}u;",
    )
    lines, indices = split_index("batch", _BATCH, rank, "b")
    writer.write(
        *lines,
        f"let left_base = {strided_index(_LEFT, _BATCH + rank, indices)};",
        f"let right_base = {strided_index(_RIGHT, _BATCH + 2 * rank, indices)};",
    )
    for i in range(block.rows):
        at = f"min(row + {i}u, {param(_M)} - 1u) * {param(_LEFT + 1)}"
        writer.write(f"var left_at{i} = left_base + {at};")
    for j in range(block.columns):
        at = f"min(column + {j}u, {param(_N)} - 1u) * {param(_RIGHT + 2)}"
        writer.write(f"var right_at{j} = right_base + {at};")
    zero = f"{shader_type(spec.accumulate).value}()"
    for i in range(block.rows):
        for j in range(block.columns):
            writer.write(f"var sum_{i}_{j} = {zero};")


def _write_step(writer: KernelWriter, spec: DirectMatmulSpec) -> None:
    """One step along K: load a column of the block's rows and a row of its columns, multiply."""
    block = spec.block
    for name, dtype, count, stride in (
        ("left", spec.left, block.rows, _LEFT + 2),
        ("right", spec.right, block.columns, _RIGHT + 1),
    ):
        types = shader_type(dtype)
        for i in range(count):
            stored, at = f"{name}_stored{i}", f"{name}_at{i}"
            writer.write(
                f"    let {stored} = {types.load(name, at)};",
                f"    let {name}{i} = {convert(stored, dtype, spec.accumulate)};",
                f"    {at} = {at} + {param(stride)};",
            )
    for i in range(block.rows):
        for j in range(block.columns):
            product = f"left{i} * right{j}"
            if spec.accumulate.kind is Kind.COMPLEX:
                product = f"multiply_{shader_type(spec.accumulate).suffix}(left{i}, right{j})"
            writer.write(f"    sum_{i}_{j} = sum_{i}_{j} + {product};")


def _write_results(writer: KernelWriter, block: Block) -> None:
    m, n = param(_M), param(_N)
    for i in range(block.rows):
        writer.write(f"if row + {i}u < {m} {{")
        for j in range(block.columns):
            store = f"store(batch, row + {i}u, column + {j}u, sum_{i}_{j});"
            writer.write(f"    if column + {j}u < {n} {{ {store} }}")
        writer.write("}")
