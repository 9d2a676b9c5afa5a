"""Matrix products without workgroup memory: each invocation computes a block of the result.

For software adapters. There a barrier suspends and resumes every lane of a workgroup, and `fma` is
a call: the tiled product of 1,347 × 64 by 64 × 10 took 20 ms on llvmpipe, this one 0.9 ms (blocks
of 1 × 1: 2.6 ms, of 8 × 2: 0.9 ms, medians of one run). What costs is loading, which a software
adapter does lane by lane: four neighbours at a time where the operands lie so, and large blocks
(eight products of 64 × 64: 1.9 ms element by element in blocks of 4 × 4, 1.4 ms in fours, 0.8 ms in
fours and blocks of 4 × 8).

Operands, result and accumulator are as in `kernels/matmul.py`. Parameters, in words: M, N, K, the
blocks along M and along N, all blocks; then as there.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.expressions import convert
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.matmul_epilogue import MatmulEpilogue, plain_epilogue, write_store
from gpuwire.kernels.matmul_spec import OperandForm, named_matmul
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

_M, _N, _K, _BLOCKS_M, _BLOCKS_N, _BLOCKS, _LEFT, _RIGHT, _BATCH = 0, 1, 2, 3, 4, 5, 6, 9, 12

WORKGROUP_SIZE = 8
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
    """What a direct matmul kernel is generated for. Where an operand is read in fours along its
    rows (left) or columns (right), the block has a multiple of four of them."""

    left: OperandForm
    right: OperandForm
    accumulate: DType
    batch_rank: int
    block: Block
    epilogue: MatmulEpilogue | None = None

    @property
    def depth(self) -> int:
        """How far along K one step goes."""
        return max(_depth(self.left), _depth(self.right))


def _depth(side: OperandForm) -> int:
    return 4 if side.quads and side.along_k else 1


def direct_matmul_kernel(spec: DirectMatmulSpec) -> Kernel:
    """The kernel of a product."""
    block, types = spec.block, shader_type(spec.accumulate)
    sides = (spec.left, spec.right)
    layout = "".join([("k4" if side.along_k else "i4") if side.quads else "" for side in sides])
    writer = KernelWriter(
        f"{named_matmul(spec.epilogue)}__{spec.left.dtype.name}_{spec.right.dtype.name}"
        f"__{spec.accumulate.name}__direct{block.rows}x{block.columns}{layout}_{spec.batch_rank}",
        WORKGROUP_SIZE,
    )
    writer.words(_BATCH + 3 * spec.batch_rank)
    for name, side in (("left", spec.left), ("right", spec.right)):
        stored = shader_type(side.dtype)
        writer.needs(stored.features | types.features)
        writer.buffer(name, stored.quad_storage if side.quads else stored.storage, Access.READ)
    epilogue = spec.epilogue or plain_epilogue(spec.accumulate)
    write_store(writer, epilogue, spec.accumulate, spec.batch_rank, _M, _N, _BATCH)
    _write_places(writer, spec)
    writer.write(
        f"for (var step = 0u; step < {param(_K)}; step = step + {spec.depth}u) {{",
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
    for name, place, each, side, bound, stride in (
        ("left", "row", block.rows, spec.left, _M, _LEFT + 1),
        ("right", "column", block.columns, spec.right, _N, _RIGHT + 2),
    ):
        width = _width(side)
        for i in range(0, each, width):
            at = f"min({place} + {i}u, {param(bound)} - {width}u) * {param(stride)}"
            writer.write(f"var {name}_at{i} = {name}_base + {at};")
    zero = f"{shader_type(spec.accumulate).value}()"
    for i in range(block.rows):
        for j in range(block.columns):
            writer.write(f"var sum_{i}_{j} = {zero};")


def _width(side: OperandForm) -> int:
    """How many neighbours across K one load brings."""
    return 4 if side.quads and not side.along_k else 1


def _write_step(writer: KernelWriter, spec: DirectMatmulSpec) -> None:
    """One step along K: load of the block's rows and of its columns, multiply, in K's order."""
    block = spec.block
    for name, each, side, stride in (
        ("left", block.rows, spec.left, _LEFT + 2),
        ("right", block.columns, spec.right, _RIGHT + 1),
    ):
        for i in range(0, each, _width(side)):
            at = f"{name}_at{i}"
            writer.write(*_loads(spec, name, side, i, stride))
            writer.write(f"    {at} = {at} + {spec.depth}u * {param(stride)};")
    for k in range(spec.depth):
        for i in range(block.rows):
            for j in range(block.columns):
                left, right = f"left{i}_{k}", f"right{j}_{k}"
                product = f"{left} * {right}"
                if spec.accumulate.kind is Kind.COMPLEX:
                    suffix = shader_type(spec.accumulate).suffix
                    product = f"multiply_{suffix}({left}, {right})"
                writer.write(f"    sum_{i}_{j} = sum_{i}_{j} + {product};")


def _loads(spec: DirectMatmulSpec, name: str, side: OperandForm, i: int, stride: int) -> list[str]:
    """Statements that load what begins at row or column `i`: `left{i}_{k}` or `right{i}_{k}` for
    each k of a step, and for the three neighbours too where one load brings four."""
    types = shader_type(side.dtype)
    lines: list[str] = []
    loaded: dict[tuple[int, int], str] = {}
    if side.quads and side.along_k:
        more, values = types.load_quad(name, f"{name}_at{i} >> 2u", f"{name}_four{i}")
        lines += more
        loaded = {(i, k): value for k, value in enumerate(values)}
    else:
        for k in range(spec.depth):
            at = f"{name}_at{i} + {k}u * {param(stride)}" if k else f"{name}_at{i}"
            if side.quads:
                more, values = types.load_quad(name, f"({at}) >> 2u", f"{name}_four{i}_{k}")
                lines += more
                loaded |= {(i + n, k): value for n, value in enumerate(values)}
            else:
                stored = f"{name}_stored{i}_{k}"
                lines.append(f"let {stored} = {types.load(name, at)};")
                loaded[i, k] = stored
    lines += [
        f"let {name}{n}_{k} = {convert(value, side.dtype, spec.accumulate)};"
        for (n, k), value in loaded.items()
    ]
    return [f"    {line}" for line in lines]


def _write_results(writer: KernelWriter, block: Block) -> None:
    m, n = param(_M), param(_N)
    for i in range(block.rows):
        writer.write(f"if row + {i}u < {m} {{")
        for j in range(block.columns):
            store = f"store(batch, row + {i}u, column + {j}u, sum_{i}_{j});"
            writer.write(f"    if column + {j}u < {n} {{ {store} }}")
        writer.write("}")
