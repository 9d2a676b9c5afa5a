"""Matrix products, batched, of strided operands.

A workgroup has a tile of the result and goes through K in slices: the slices of both operands are
copied to workgroup memory, converted to the type the product is computed in, and each invocation
multiplies its own rows and columns out of it into registers. The registers are named variables,
written out by this generator: an array indexed by a loop variable would live in memory.

Results are written in the accumulator's type, which fills a word at least, or as an epilogue has
them; lowering converts where the result's type is narrower.

`matmul_spec` says what the parameters are.
"""

from __future__ import annotations

from gpuwire.ir.dtypes import Kind
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.matmul_copying import side_copy
from gpuwire.kernels.matmul_epilogue import plain_epilogue, write_store
from gpuwire.kernels.matmul_spec import (
    BATCH,
    BATCHES,
    LEFT,
    RIGHT,
    SLICES,
    TILES_M,
    TILES_N,
    M,
    MatmulSpec,
    N,
    in_fours,
    named_matmul,
)
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

INNER_SLICES = 1 << 14
"""Slices that the inner of two nested loops takes: none may run more than 65,535 times."""


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
    writer.words(BATCH + 3 * spec.batch_rank)
    for name, side in (("left", spec.left), ("right", spec.right)):
        stored = shader_type(side.dtype)
        writer.needs(stored.features | types.features)
        writer.buffer(name, stored.quad_storage if side.quads else stored.storage, Access.READ)
    epilogue = spec.epilogue or plain_epilogue(spec.accumulate)
    write_store(writer, epilogue, spec.accumulate, spec.batch_rank, M, N, BATCH)
    group, element = (4, f"vec4<{types.value}>") if in_fours(spec) else (1, types.value)
    writer.workgroup_array("left_tile", element, tile.depth * tile.rows // group)
    writer.workgroup_array("right_tile", element, tile.depth * tile.columns // group)
    _write_origin(writer, spec)
    _write_accumulators(writer, spec)
    copies = [side_copy(spec, "left"), side_copy(spec, "right")]
    for copied in copies:
        writer.write(*copied.before, *copied.load)
    writer.write(
        "var slice = 0u;",
        f"while slice < {param(SLICES)} {{",
        f"    let stop = min(slice + {INNER_SLICES}u, {param(SLICES)});",
        "    while slice < stop {",
    )
    for copied in copies:
        writer.write(*copied.store)
    writer.write("        workgroupBarrier();")
    # The next slice is on its way while this one is multiplied out. Past the end it is zeros.
    for copied in copies:
        writer.write(*copied.advance, *copied.load)
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
        f"let per_batch = {param(TILES_M)} * {param(TILES_N)};",
        "let batch = group / per_batch;",
        f"if batch >= {param(BATCHES)} {{ return; }}",
        "let place = group % per_batch;",
        f"let tile_row = (place / {param(TILES_N)}) * {tile.rows}u;",
        f"let tile_column = (place % {param(TILES_N)}) * {tile.columns}u;",
    )
    lines, indices = split_index("batch", BATCH, spec.batch_rank, "b")
    writer.write(*lines)
    rank = spec.batch_rank
    writer.write(
        f"let left_base = {strided_index(LEFT, BATCH + rank, indices)};",
        f"let right_base = {strided_index(RIGHT, BATCH + 2 * rank, indices)};",
        f"let lane_column = lane % {tile.columns // tile.lane_columns}u;",
        f"let lane_row = lane / {tile.columns // tile.lane_columns}u;",
    )


def _write_accumulators(writer: KernelWriter, spec: MatmulSpec) -> None:
    value = shader_type(spec.accumulate).value
    for row in range(spec.tile.lane_rows):
        for column in range(spec.tile.lane_columns):
            writer.write(f"var sum_{row}_{column} = {value}();")


def _lane_places(spec: MatmulSpec, side: str) -> list[str]:
    """The rows (left) or columns (right) of a tile that a lane computes, in WGSL.

    Four neighbours each, the fours as far apart as all lanes' fours together: a warp's reads of
    workgroup memory then lie side by side.
    """
    tile = spec.tile
    each = tile.lane_rows if side == "left" else tile.lane_columns
    length = tile.rows if side == "left" else tile.columns
    lane = "lane_row" if side == "left" else "lane_column"
    if in_fours(spec):
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
        if in_fours(spec):
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
    m, n = param(M), param(N)
    for column, place in enumerate(_lane_places(spec, "right")):
        writer.write(f"let column{column} = tile_column + {place};")
    for row, place in enumerate(_lane_places(spec, "left")):
        writer.write(f"let row{row} = tile_row + {place};", f"if row{row} < {m} {{")
        for column in range(tile.lane_columns):
            store = f"store(batch, row{row}, column{column}, sum_{row}_{column});"
            writer.write(f"    if column{column} < {n} {{ {store} }}")
        writer.write("}")
