"""Matrix products, batched, of strided operands.

A workgroup has a tile of the result and goes through K in slices: the slices of both operands are
copied to workgroup memory, converted to the type the product is computed in, and each invocation
multiplies its own rows and columns out of it into registers. The registers are named variables,
written out by this generator: an array indexed by a loop variable would live in memory.

Results are written in the accumulator's type, which fills a word at least; lowering converts where
the result's type is narrower. Parameters, in words: M, N, K, the number of slices, the tiles along
M and along N; offset, row stride and column stride of the left operand, then of the right; lengths
of the batch dimensions, then the left's batch strides, then the right's.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.expressions import convert
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

_M, _N, _K, _SLICES, _TILES_M, _TILES_N, _LEFT, _RIGHT, _BATCH = 0, 1, 2, 3, 4, 5, 6, 9, 12

INNER_SLICES = 4096
"""Slices that the inner of two nested loops takes: none may run more than 65,535 times."""


@dataclass(frozen=True, slots=True)
class Tile:
    """How a workgroup divides its work: the tile's size, its depth along K, and the rows and
    columns that one invocation computes."""

    rows: int
    columns: int
    depth: int
    lane_rows: int
    lane_columns: int

    @property
    def workgroup_size(self) -> int:
        return (self.rows // self.lane_rows) * (self.columns // self.lane_columns)


@dataclass(frozen=True, slots=True)
class MatmulSpec:
    """What a matmul kernel is generated for. `left_by_rows`: neighbours along K are neighbours in
    memory; `right_by_rows`: neighbours along N are."""

    left: DType
    right: DType
    accumulate: DType
    batch_rank: int
    tile: Tile
    left_by_rows: bool
    right_by_rows: bool


def matmul_accumulator(result: DType) -> DType:
    """The type a product is computed in."""
    if result is dt.float16:
        return dt.float32
    if result.itemsize < 4:
        return dt.int32 if result.kind is Kind.SIGNED else dt.uint32
    return result


def matmul_kernel(spec: MatmulSpec) -> Kernel:
    """The kernel of a product."""
    tile, types = spec.tile, shader_type(spec.accumulate)
    layout = f"{'r' if spec.left_by_rows else 'c'}{'r' if spec.right_by_rows else 'c'}"
    writer = KernelWriter(
        f"matmul__{spec.left.name}_{spec.right.name}__{spec.accumulate.name}"
        f"__{tile.rows}x{tile.columns}x{tile.depth}_{layout}{spec.batch_rank}",
        tile.workgroup_size,
    )
    writer.words(_BATCH + 3 * spec.batch_rank)
    writer.needs(
        shader_type(spec.left).features | shader_type(spec.right).features | types.features
    )
    writer.buffer("left", shader_type(spec.left).storage, Access.READ)
    writer.buffer("right", shader_type(spec.right).storage, Access.READ)
    writer.buffer("result", types.storage, Access.WRITE)
    writer.workgroup_array("left_tile", types.value, tile.depth * tile.rows)
    writer.workgroup_array("right_tile", types.value, tile.depth * tile.columns)
    _write_origin(writer, spec)
    _write_accumulators(writer, spec)
    writer.write(
        "var slice = 0u;",
        f"while slice < {param(_SLICES)} {{",
        f"    let stop = min(slice + {INNER_SLICES}u, {param(_SLICES)});",
        "    while slice < stop {",
        f"        let depth = slice * {tile.depth}u;",
    )
    _write_copies(writer, spec)
    writer.write("        workgroupBarrier();")
    _write_products(writer, spec)
    writer.write(
        "        workgroupBarrier();",
        "        slice = slice + 1u;",
        "    }",
        "}",
    )
    _write_results(writer, spec)
    return writer.finish()


def _write_origin(writer: KernelWriter, spec: MatmulSpec) -> None:
    """Which tile of which batch this workgroup has."""
    tile = spec.tile
    writer.workgroup()
    writer.write(
        f"let per_batch = {param(_TILES_M)} * {param(_TILES_N)};",
        "let batch = group / per_batch;",
        "let place = group % per_batch;",
        f"let tile_row = (place / {param(_TILES_N)}) * {tile.rows}u;",
        f"let tile_column = (place % {param(_TILES_N)}) * {tile.columns}u;",
    )
    lines, indices = split_index("batch", _BATCH, spec.batch_rank, "b")
    writer.write(*lines)
    rank = spec.batch_rank
    writer.write(
        f"let left_base = {strided_index(_LEFT, _BATCH + rank, indices)};",
        f"let right_base = {strided_index(_RIGHT, _BATCH + 2 * rank, indices)};",
        f"let lane_column = lane % {tile.columns // tile.lane_columns}u;",
        f"let lane_row = lane / {tile.columns // tile.lane_columns}u;",
    )


def _write_accumulators(writer: KernelWriter, spec: MatmulSpec) -> None:
    value = shader_type(spec.accumulate).value
    for row in range(spec.tile.lane_rows):
        for column in range(spec.tile.lane_columns):
            writer.write(f"var sum_{row}_{column} = {value}();")


def _write_copies(writer: KernelWriter, spec: MatmulSpec) -> None:
    """Copy this slice of both operands to workgroup memory, zeros where the matrices end. Lanes go
    along the dimension whose neighbours are neighbours in memory."""
    tile, size = spec.tile, spec.tile.workgroup_size
    for side, dtype, length, by_rows in (
        ("left", spec.left, tile.rows, not spec.left_by_rows),
        ("right", spec.right, tile.columns, spec.right_by_rows),
    ):
        total = tile.depth * length
        for start in range(0, total, size):
            name = f"{side}{start // size}"
            writer.write(
                f"        let {name} = lane + {start}u;" if start else f"        let {name} = lane;"
            )
            if by_rows:
                split = (f"{name} / {length}u", f"{name} % {length}u")
            else:
                split = (f"{name} % {tile.depth}u", f"{name} / {tile.depth}u")
            writer.write(
                f"        let {name}_k = {split[0]};", f"        let {name}_i = {split[1]};"
            )
            origin = "tile_row" if side == "left" else "tile_column"
            bound = param(_M if side == "left" else _N)
            along_i, along_k = (1, 2) if side == "left" else (2, 1)
            word = _LEFT if side == "left" else _RIGHT
            index = (
                f"{side}_base + ({origin} + {name}_i) * {param(word + along_i)}"
                f" + (depth + {name}_k) * {param(word + along_k)}"
            )
            inside = f"{origin} + {name}_i < {bound} && depth + {name}_k < {param(_K)}"
            guard = f"{name} < {total}u && " if start + size > total else ""
            value = shader_type(spec.accumulate).value
            loaded = convert(f"{name}_x", dtype, spec.accumulate)
            place = f"{side}_tile[{name}_k * {length}u + {name}_i]"
            writer.write(
                f"        var {name}_v = {value}();",
                f"        if {guard}{inside} {{",
                f"            let {name}_at = {index};",
                f"            let {name}_x = {shader_type(dtype).load(side, f'{name}_at')};",
                f"            {name}_v = {loaded};",
                "        }",
                f"        if {name} < {total}u {{ {place} = {name}_v; }}"
                if guard
                else f"        {place} = {name}_v;",
            )


def _write_products(writer: KernelWriter, spec: MatmulSpec) -> None:
    """Multiply the slice out, from workgroup memory into registers."""
    tile = spec.tile
    row_lanes, column_lanes = tile.rows // tile.lane_rows, tile.columns // tile.lane_columns
    writer.write(f"        for (var k = 0u; k < {tile.depth}u; k = k + 1u) {{")
    for row in range(tile.lane_rows):
        at = f"k * {tile.rows}u + lane_row + {row * row_lanes}u"
        writer.write(f"            let l{row} = left_tile[{at}];")
    for column in range(tile.lane_columns):
        at = f"k * {tile.columns}u + lane_column + {column * column_lanes}u"
        writer.write(f"            let r{column} = right_tile[{at}];")
    for row in range(tile.lane_rows):
        for column in range(tile.lane_columns):
            name = f"sum_{row}_{column}"
            writer.write(
                f"            {name} = {_multiply_add(spec, f'l{row}', f'r{column}', name)};"
            )
    writer.write("        }")


def _multiply_add(spec: MatmulSpec, left: str, right: str, total: str) -> str:
    match spec.accumulate.kind:
        case Kind.COMPLEX:
            return f"{total} + multiply_{shader_type(spec.accumulate).suffix}({left}, {right})"
        case Kind.FLOAT:
            return f"fma({left}, {right}, {total})"
    return f"{total} + {left} * {right}"


def _write_results(writer: KernelWriter, spec: MatmulSpec) -> None:
    tile = spec.tile
    row_lanes, column_lanes = tile.rows // tile.lane_rows, tile.columns // tile.lane_columns
    m, n = param(_M), param(_N)
    writer.write(f"let result_base = batch * {m} * {n};")
    for column in range(tile.lane_columns):
        writer.write(f"let column{column} = tile_column + lane_column + {column * column_lanes}u;")
    for row in range(tile.lane_rows):
        writer.write(
            f"let row{row} = tile_row + lane_row + {row * row_lanes}u;", f"if row{row} < {m} {{"
        )
        for column in range(tile.lane_columns):
            at = f"result_base + row{row} * {n} + column{column}"
            writer.write(f"    if column{column} < {n} {{ result[{at}] = sum_{row}_{column}; }}")
        writer.write("}")
