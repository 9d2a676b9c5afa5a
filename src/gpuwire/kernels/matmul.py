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
    group, element = (4, f"vec4<{types.value}>") if _in_fours(spec) else (1, types.value)
    writer.workgroup_array("left_tile", element, tile.depth * tile.rows // group)
    writer.workgroup_array("right_tile", element, tile.depth * tile.columns // group)
    _write_origin(writer, spec)
    _write_accumulators(writer, spec)
    copies = [*_copies(spec, "left"), *_copies(spec, "right")]
    for copy in copies:
        writer.write(*copy.before)
        writer.write(*copy.load)
    writer.write(
        "var slice = 0u;",
        f"while slice < {param(_SLICES)} {{",
        f"    let stop = min(slice + {INNER_SLICES}u, {param(_SLICES)});",
        "    while slice < stop {",
    )
    for copy in copies:
        writer.write(copy.store)
    writer.write("        workgroupBarrier();")
    # The next slice is on its way while this one is multiplied out. Past the end it is zeros.
    for copy in copies:
        writer.write(copy.advance, *copy.load)
    _write_products(writer, spec)
    writer.write(
        "        workgroupBarrier();",
        "        slice = slice + 1u;",
        "    }",
        "}",
    )
    _write_results(writer, spec)
    return writer.finish()


def _in_fours(spec: MatmulSpec) -> bool:
    """Whether workgroup memory is read four neighbours at a time: right for words only."""
    tile = spec.tile
    fours = tile.lane_rows % 4 == 0 and tile.lane_columns % 4 == 0
    return fours and spec.accumulate.itemsize == 4


@dataclass(frozen=True, slots=True)
class _Copy:
    """One element that a lane copies of each slice: statements before the loop over slices, to
    load it into a register, to store it, to go on to the next slice."""

    before: list[str]
    load: list[str]
    store: str
    advance: str


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


def _copies(spec: MatmulSpec, side: str) -> list[_Copy]:
    """What a lane copies of one operand's slices, zeros where the matrix ends. Lanes go along the
    dimension whose neighbours are neighbours in memory."""
    tile, size = spec.tile, spec.tile.workgroup_size
    is_left = side == "left"
    dtype = spec.left if is_left else spec.right
    length = tile.rows if is_left else tile.columns
    along_k = spec.left_by_rows if is_left else not spec.right_by_rows
    origin, bound = ("tile_row", _M) if is_left else ("tile_column", _N)
    word = _LEFT if is_left else _RIGHT
    stride_i, stride_k = (word + 1, word + 2) if is_left else (word + 2, word + 1)
    value = shader_type(spec.accumulate).value
    total = tile.depth * length
    copies = []
    for start in range(0, total, size):
        name = f"{side}{start // size}"
        own = f"(lane + {start}u)" if start else "lane"
        quotient, rest = (tile.depth, tile.depth) if along_k else (length, length)
        k = f"{own} % {rest}u" if along_k else f"{own} / {quotient}u"
        i = f"{own} / {quotient}u" if along_k else f"{own} % {rest}u"
        inside = f"{origin} + {name}_i < {param(bound)}"
        if start + size > total:
            inside = f"{own} < {total}u && {inside}"
        before = [
            f"var {name}_k = {k};",
            f"let {name}_i = {i};",
            f"let {name}_inside = {inside};",
            f"var {name}_at = {side}_base + ({origin} + {name}_i) * {param(stride_i)}"
            f" + {name}_k * {param(stride_k)};",
            f"let {name}_place = {name}_k * {length}u + {name}_i;",
            f"var {name}_v = {value}();",
        ]
        loaded = convert(f"{name}_x", dtype, spec.accumulate)
        load = [
            f"{name}_v = {value}();",
            f"if {name}_inside && {name}_k < {param(_K)} {{",
            f"    let {name}_x = {shader_type(dtype).load(side, f'{name}_at')};",
            f"    {name}_v = {loaded};",
            "}",
        ]
        place = f"{side}_tile[{name}_place]"
        if _in_fours(spec):
            place = f"{side}_tile[{name}_place >> 2u][{name}_place & 3u]"
        store = f"{place} = {name}_v;"
        if start + size > total:
            store = f"if {own} < {total}u {{ {store} }}"
        advance = (
            f"{name}_k = {name}_k + {tile.depth}u; "
            f"{name}_at = {name}_at + {tile.depth}u * {param(stride_k)};"
        )
        copies.append(_Copy(before, load, store, advance))
    return copies


def _lane_places(spec: MatmulSpec, side: str) -> list[str]:
    """The rows (left) or columns (right) of a tile that a lane computes, in WGSL.

    Four neighbours each, the fours as far apart as all lanes' fours together: a warp's reads of
    workgroup memory then lie side by side.
    """
    tile = spec.tile
    each = tile.lane_rows if side == "left" else tile.lane_columns
    length = tile.rows if side == "left" else tile.columns
    lane = "lane_row" if side == "left" else "lane_column"
    if _in_fours(spec):
        apart = length // each * 4
        return [f"{lane} * 4u + {i // 4 * apart + i % 4}u" for i in range(each)]
    return [f"{lane} + {i * (length // each)}u" for i in range(each)]


def _write_products(writer: KernelWriter, spec: MatmulSpec) -> None:
    """Multiply the slice out, from workgroup memory into registers."""
    tile = spec.tile
    writer.write(f"        for (var k = 0u; k < {tile.depth}u; k = k + 1u) {{")
    for side, each, length in (
        ("left", tile.lane_rows, tile.rows),
        ("right", tile.lane_columns, tile.columns),
    ):
        if _in_fours(spec):
            lane = "lane_row" if side == "left" else "lane_column"
            apart = length // each
            for four in range(each // 4):
                at = f"k * {length // 4}u + {lane} + {four * apart}u"
                writer.write(f"            let {side}_{four} = {side}_tile[{at}];")
            for i in range(each):
                writer.write(f"            let {side[0]}{i} = {side}_{i // 4}[{i % 4}];")
        else:
            for i, place in enumerate(_lane_places(spec, side)):
                at = f"k * {length}u + {place}"
                writer.write(f"            let {side[0]}{i} = {side}_tile[{at}];")
    for row in range(tile.lane_rows):
        for column in range(tile.lane_columns):
            name = f"sum_{row}_{column}"
            product = _multiply_add(spec, f"l{row}", f"r{column}", name)
            writer.write(f"            {name} = {product};")
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
    m, n = param(_M), param(_N)
    writer.write(f"let result_base = batch * {m} * {n};")
    for column, place in enumerate(_lane_places(spec, "right")):
        writer.write(f"let column{column} = tile_column + {place};")
    for row, place in enumerate(_lane_places(spec, "left")):
        writer.write(f"let row{row} = tile_row + {place};", f"if row{row} < {m} {{")
        for column in range(tile.lane_columns):
            at = f"result_base + row{row} * {n} + column{column}"
            writer.write(f"    if column{column} < {n} {{ result[{at}] = sum_{row}_{column}; }}")
        writer.write("}")
