"""How the lanes of a matmul kernel copy slices of the operands into workgroup memory, in WGSL."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.kernels.expressions import convert
from gpuwire.kernels.matmul_spec import LEFT, RIGHT, K, M, MatmulSpec, N, OperandForm, in_fours
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import param


@dataclass(frozen=True, slots=True)
class SideCopy:
    """How a lane copies its part of one operand's slices: statements before the loop over slices,
    to load into registers, to store to workgroup memory, to go on to the next slice."""

    before: list[str]
    load: list[str]
    store: list[str]
    advance: list[str]


def side_copy(spec: MatmulSpec, name: str) -> SideCopy:
    """The copying of one operand, zeros where the matrix ends.

    Lanes go along the dimension whose neighbours are neighbours in memory, one or four elements
    each, and then in steps of all lanes together; so place and address of a step differ from the
    lane's first by what is the same for all, and cost no registers.
    """
    tile, is_left = spec.tile, name == "left"
    side = spec.left if is_left else spec.right
    length = tile.rows if is_left else tile.columns
    origin, bound = ("tile_row", M) if is_left else ("tile_column", N)
    word = LEFT if is_left else RIGHT
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
        inside = f"{origin} + {at_i} < {param(bound)} && {at_k} < {param(K)}"
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
    return SideCopy(before, load, store, advance)


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
    if not in_fours(spec):
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
