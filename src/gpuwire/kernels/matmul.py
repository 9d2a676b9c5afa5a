"""Matrix products, batched, of strided operands.

A workgroup has a tile of the result and goes through K in slices: the slices of both operands are
copied to workgroup memory, converted to the type the product is computed in, and each invocation
multiplies its own rows and columns out of it into registers. The registers are named variables,
written out by this generator: an array indexed by a loop variable would live in memory.

Results are written in the accumulator's type, which fills a word at least, or as an epilogue has
them; lowering converts where the result's type is narrower.

Parameters, in words: M, N, K, the number of slices, the tiles along M and along N, the batches;
offset, row stride and column stride of the left operand, then of the right; lengths of the batch
dimensions, then the left's batch strides, then the right's; the epilogue's.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.expressions import convert
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.matmul_epilogue import MatmulEpilogue, plain_epilogue, write_store
from gpuwire.kernels.programs import name_of_steps
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

_M, _N, _K, _SLICES, _TILES_M, _TILES_N, _BATCHES = 0, 1, 2, 3, 4, 5, 6
_LEFT, _RIGHT, _BATCH = 7, 10, 13

INNER_SLICES = 1 << 14
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
    unroll: int = 1
    """Steps along K that are written out in the loop over a slice; `depth` is a multiple."""

    @property
    def workgroup_size(self) -> int:
        return (self.rows // self.lane_rows) * (self.columns // self.lane_columns)


@dataclass(frozen=True, slots=True)
class OperandForm:
    """How a product reads one operand. `along_k`: neighbours along K are neighbours in memory, else
    those along the other dimension. `quads`: they can be read four at a time, because offset,
    other strides and the length of that dimension are multiples of four."""

    dtype: DType
    along_k: bool
    quads: bool


@dataclass(frozen=True, slots=True)
class MatmulSpec:
    """What a matmul kernel is generated for."""

    left: OperandForm
    right: OperandForm
    accumulate: DType
    batch_rank: int
    tile: Tile
    epilogue: MatmulEpilogue | None = None


def matmul_accumulator(result: DType) -> DType:
    """The type a product is computed in."""
    if result is dt.float16:
        return dt.float32
    if result.itemsize < 4:
        return dt.int32 if result.kind is Kind.SIGNED else dt.uint32
    return result


def named_matmul(epilogue: MatmulEpilogue | None) -> str:
    """The operations, for errors and profiles."""
    after = name_of_steps(epilogue.steps) if epilogue else ""
    return f"matmul_{after}" if after else "matmul"


def matmul_kernel(spec: MatmulSpec) -> Kernel:
    """The kernel of a product."""
    tile, types = spec.tile, shader_type(spec.accumulate)
    layout = "".join(
        ("k" if side.along_k else "i") + ("4" if side.quads else "")
        for side in (spec.left, spec.right)
    )
    unrolled = f"by{tile.unroll}" if tile.unroll > 1 else ""
    writer = KernelWriter(
        f"{named_matmul(spec.epilogue)}__{spec.left.dtype.name}_{spec.right.dtype.name}__{spec.accumulate.name}"
        f"__{tile.rows}x{tile.columns}x{tile.depth}{unrolled}_{layout}_{spec.batch_rank}",
        tile.workgroup_size,
    )
    writer.words(_BATCH + 3 * spec.batch_rank)
    for name, side in (("left", spec.left), ("right", spec.right)):
        stored = shader_type(side.dtype)
        writer.needs(stored.features | types.features)
        writer.buffer(name, stored.quad_storage if side.quads else stored.storage, Access.READ)
    epilogue = spec.epilogue or plain_epilogue(spec.accumulate)
    write_store(writer, epilogue, spec.accumulate, spec.batch_rank, _M, _N, _BATCH)
    group, element = (4, f"vec4<{types.value}>") if _in_fours(spec) else (1, types.value)
    writer.workgroup_array("left_tile", element, tile.depth * tile.rows // group)
    writer.workgroup_array("right_tile", element, tile.depth * tile.columns // group)
    _write_origin(writer, spec)
    _write_accumulators(writer, spec)
    sides = [_side(spec, "left"), _side(spec, "right")]
    for side_copy in sides:
        writer.write(*side_copy.before, *side_copy.load)
    writer.write(
        "var slice = 0u;",
        f"while slice < {param(_SLICES)} {{",
        f"    let stop = min(slice + {INNER_SLICES}u, {param(_SLICES)});",
        "    while slice < stop {",
    )
    for side_copy in sides:
        writer.write(*side_copy.store)
    writer.write("        workgroupBarrier();")
    # The next slice is on its way while this one is multiplied out. Past the end it is zeros.
    for side_copy in sides:
        writer.write(*side_copy.advance, *side_copy.load)
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
class _SideCopy:
    """How a lane copies its part of one operand's slices: statements before the loop over slices,
    to load into registers, to store to workgroup memory, to go on to the next slice."""

    before: list[str]
    load: list[str]
    store: list[str]
    advance: list[str]


def _write_origin(writer: KernelWriter, spec: MatmulSpec) -> None:
    """Which tile of which batch this workgroup has."""
    tile = spec.tile
    writer.workgroup()
    writer.write(
        f"let per_batch = {param(_TILES_M)} * {param(_TILES_N)};",
        "let batch = group / per_batch;",
        f"if batch >= {param(_BATCHES)} {{ return; }}",
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


def _side(spec: MatmulSpec, name: str) -> _SideCopy:
    """The copying of one operand, zeros where the matrix ends.

    Lanes go along the dimension whose neighbours are neighbours in memory, one or four elements
    each, and then in steps of all lanes together; so place and address of a step differ from the
    lane's first by what is the same for all, and cost no registers.
    """
    tile, is_left = spec.tile, name == "left"
    side = spec.left if is_left else spec.right
    length = tile.rows if is_left else tile.columns
    origin, bound = ("tile_row", _M) if is_left else ("tile_column", _N)
    word = _LEFT if is_left else _RIGHT
    stride_i, stride_k = (word + 1, word + 2) if is_left else (word + 2, word + 1)
    width = 4 if side.quads else 1
    run = (tile.depth if side.along_k else length) // width
    first = f"lane % {run}u * {width}u" if width > 1 else f"lane % {run}u"
    i, k = (f"lane / {run}u", first) if side.along_k else (first, f"lane / {run}u")
    rows = tile.workgroup_size // run
    assert rows * run == tile.workgroup_size
    before = [
        f"let {name}_i = {i};",
        f"var {name}_k = {k};",
        f"var {name}_at = {name}_base + ({origin} + {name}_i) * {param(stride_i)}"
        f" + {name}_k * {param(stride_k)};",
    ]
    load: list[str] = []
    store: list[str] = []
    total = length if side.along_k else tile.depth
    for step, start in enumerate(range(0, total, rows)):
        at_i, at_k = f"{name}_i", f"{name}_k"
        far = param(stride_i if side.along_k else stride_k)
        at = f"{name}_at + {start}u * {far}" if start else f"{name}_at"
        if start and side.along_k:
            at_i = f"{name}_i + {start}u"
        elif start:
            at_k = f"{name}_k + {start}u"
        inside = f"{origin} + {at_i} < {param(bound)} && {at_k} < {param(_K)}"
        # More lanes than a slice has elements.
        used = f"lane / {run}u + {start}u < {total}u" if start + rows > total else ""
        values = [f"{name}{step}_{n}" for n in range(width)]
        reading = _reading(spec, side, name, at, values)
        zero = f"{shader_type(spec.accumulate).value}()"
        before += [f"var {value} = {zero};" for value in values]
        load += [f"{value} = {zero};" for value in values]
        load += [f"if {inside}{' && ' + used if used else ''} {{"]
        load += [f"    {line}" for line in reading]
        load += ["}"]
        writes = _storing(spec, side, name, start, length, values)
        store += [f"if {used} {{", *writes, "}"] if used else writes
    before.append(
        f"let {name}_place = (lane / {run}u) * {1 if side.along_k else length}u"
        f" + ({first}) * {length if side.along_k else 1}u;"
    )
    advance = [
        f"{name}_k = {name}_k + {tile.depth}u;",
        f"{name}_at = {name}_at + {tile.depth}u * {param(stride_k)};",
    ]
    return _SideCopy(before, load, store, advance)


def _reading(
    spec: MatmulSpec, side: OperandForm, name: str, at: str, values: list[str]
) -> list[str]:
    """Statements that read one element or four into registers."""
    types = shader_type(side.dtype)
    if not side.quads:
        loaded = types.load(name, f"({at})")
        return [f"let x = {loaded};", f"{values[0]} = {convert('x', side.dtype, spec.accumulate)};"]
    lines, loads = types.load_quad(name, f"({at}) >> 2u", "x")
    lines += [
        f"{value} = {convert(loaded, side.dtype, spec.accumulate)};"
        for value, loaded in zip(values, loads, strict=True)
    ]
    return lines


def _storing(
    spec: MatmulSpec, side: OperandForm, name: str, start: int, length: int, values: list[str]
) -> list[str]:
    """Statements that put one element or four into workgroup memory, where element (k, i) of a
    slice is number k * length + i."""
    offset = start if side.along_k else start * length
    apart = length if side.along_k else 1
    if not _in_fours(spec):
        return [
            f"{name}_tile[{name}_place + {offset + n * apart}u] = {value};"
            for n, value in enumerate(values)
        ]
    if len(values) == 4 and not side.along_k:
        four = f"vec4<{shader_type(spec.accumulate).value}>({', '.join(values)})"
        return [f"{name}_tile[({name}_place + {offset}u) >> 2u] = {four};"]
    lines = []
    for n, value in enumerate(values):
        place = f"{name}_place + {offset + n * apart}u"
        lines.append(f"{name}_tile[({place}) >> 2u][({place}) & 3u] = {value};")
    return lines


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
    unroll = tile.unroll
    assert tile.depth % unroll == 0
    if unroll == tile.depth:
        for k in range(unroll):
            writer.write("        {")
            _write_step(writer, spec, f"{k}u")
            writer.write("        }")
        return
    writer.write(f"        for (var k = 0u; k < {tile.depth}u; k = k + {unroll}u) {{")
    for step in range(unroll):
        writer.write("        {")
        _write_step(writer, spec, f"(k + {step}u)" if step else "k")
        writer.write("        }")
    writer.write("        }")


def _write_step(writer: KernelWriter, spec: MatmulSpec, k: str) -> None:
    """One step along K."""
    tile = spec.tile
    for side, each, length in (
        ("left", tile.lane_rows, tile.rows),
        ("right", tile.lane_columns, tile.columns),
    ):
        if _in_fours(spec):
            lane = "lane_row" if side == "left" else "lane_column"
            apart = length // each
            for four in range(each // 4):
                at = f"{k} * {length // 4}u + {lane} + {four * apart}u"
                writer.write(f"            let {side}_{four} = {side}_tile[{at}];")
            for i in range(each):
                writer.write(f"            let {side[0]}{i} = {side}_{i // 4}[{i % 4}];")
        else:
            for i, place in enumerate(_lane_places(spec, side)):
                at = f"{k} * {length}u + {place}"
                writer.write(f"            let {side[0]}{i} = {side}_tile[{at}];")
    for row in range(tile.lane_rows):
        for column in range(tile.lane_columns):
            name = f"sum_{row}_{column}"
            product = _multiply_add(spec, f"l{row}", f"r{column}", name)
            writer.write(f"            {name} = {product};")


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
    for column, place in enumerate(_lane_places(spec, "right")):
        writer.write(f"let column{column} = tile_column + {place};")
    for row, place in enumerate(_lane_places(spec, "left")):
        writer.write(f"let row{row} = tile_row + {place};", f"if row{row} < {m} {{")
        for column in range(tile.lane_columns):
            store = f"store(batch, row{row}, column{column}, sum_{row}_{column});"
            writer.write(f"    if column{column} < {n} {{ {store} }}")
        writer.write("}")
