"""What row kernels combine elements and lanes by, in WGSL."""

from __future__ import annotations

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import Kind
from gpuwire.kernels.reduction_state import Reduction, State
from gpuwire.kernels.row_programs import RowReduction
from gpuwire.kernels.shader_types import shader_type

OPAQUE = frozenset(
    {
        *("exp", "maximum", "minimum", "where", "abs", "negative", "isnan", "isinf", "isfinite"),
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "divide"),
    }
)
"""Operations that a compiler does not see through to what their operands were computed by."""

DIVISION = """struct RowDivisor { value: f32, reciprocal: f32, is_normal: bool }

fn row_divisor(value: f32) -> RowDivisor {
    let exponent = (bitcast<u32>(value) >> 23u) & 0xffu;
    return RowDivisor(value, divide_f32(1.0, value), exponent > 27u && exponent < 227u);
}

fn divide_by_row(a: f32, divisor: RowDivisor) -> f32 {
    if !divisor.is_normal { return divide_f32(a, divisor.value); }
    let q = a * divisor.reciprocal;
    let corrected = fma(fma(-q, divisor.value, a), divisor.reciprocal, q);
    return select(q, corrected, is_finite_f32(corrected));
}"""
"""A quotient by the divisor's reciprocal and one correction, which rounds it right where nothing
over- or underflows (Markstein, 1990): 8 instructions, where a division put right in integers is
60."""


def as_reduction(reduction: RowReduction) -> Reduction:
    """The same as the reduction kernels know it."""
    return Reduction(
        reduction.operation,
        reduction.source,
        reduction.accumulate,
        reduction.result,
        kept_rank=0,
        reduced_rank=0,
        partial=False,
        indices_given=False,
        workgroup_size=0,
    )


def state_of(reduction: RowReduction) -> State:
    """What is carried from element to element."""
    return State(as_reduction(reduction))


def lanes_name(reduction: RowReduction) -> str:
    """The name of the function that reduces over lanes."""
    return f"{reduction.operation}_of_lanes_{shader_type(reduction.accumulate).suffix}"


def lanes_function(reduction: RowReduction, shared: str, size: int) -> str:
    """WGSL's reduction over the lanes of a workgroup of that size, by way of the array `shared`: in
    eights, the last few by every lane."""
    state, value = state_of(reduction), shader_type(reduction.accumulate).value
    lines = [f"{shared}[lane] = value;", "workgroupBarrier();"]
    width = size
    while width > 8:
        width //= 8
        lines.append(f"if lane < {width}u {{")
        lines += [f"    let w{k} = {shared}[lane + {k * width}u];" for k in range(8)]
        inner: list[str] = []
        total = tree(state, [f"w{k}" for k in range(8)], "s", inner)
        lines += [f"    {line}" for line in inner]
        lines += [f"    {shared}[lane] = {total};", "}", "workgroupBarrier();"]
    lines += [f"let w{k} = {shared}[{k}u];" for k in range(width)]
    total = tree(state, [f"w{k}" for k in range(width)], "s", lines)
    lines += ["workgroupBarrier();", f"return {total};"]
    body = "\n".join(f"    {line}" for line in lines)
    name = lanes_name(reduction)
    return f"fn {name}(value: {value}, lane: u32) -> {value} {{\n{body}\n}}"


def identity(reduction: RowReduction) -> str:
    """What changes nothing when it is combined with anything."""
    found = state_of(reduction).identity
    if found is not None:
        return found
    dtype = reduction.accumulate
    types = shader_type(dtype)
    least = reduction.operation == "max"
    if dtype.kind is Kind.FLOAT:
        infinity = f"infinity_{types.suffix}()"
        return f"negate_{types.suffix}({infinity})" if least else infinity
    low, high = dt.integer_limits(dtype)
    if dtype.kind is Kind.UNSIGNED:
        return f"{types.value}({low if least else high}{'u' if dtype.itemsize == 4 else 'lu'})"
    mark = "" if dtype.itemsize == 4 else "li"
    if least:  # Its lowest number cannot be written as one literal.
        return f"({types.value}({low + 1}{mark}) - {types.value}(1))"
    return f"{types.value}({high}{mark})"


def extreme(reduction: RowReduction, values: list[str], prefix: str, lines: list[str]) -> str:
    """The least or the greatest of float32 values, NaN if one of them is: the bits are looked at
    once for all, since a comparison that minds NaNs is ten instructions."""
    builtin = reduction.operation
    most, top = values[0], f"(bitcast<u32>({values[0]}) & 0x7fffffffu)"
    for place, value in enumerate(values[1:]):
        lines.append(f"let {prefix}m{place} = {builtin}({most}, {value});")
        lines.append(f"let {prefix}b{place} = max({top}, bitcast<u32>({value}) & 0x7fffffffu);")
        most, top = f"{prefix}m{place}", f"{prefix}b{place}"
    lines.append(f"let {prefix} = select({most}, nan_f32(), {top} > 0x7f800000u);")
    return prefix


def tree(state: State, values: list[str], prefix: str, lines: list[str]) -> str:
    """Statements that combine values in a tree; the name of the whole."""
    level = 0
    while len(values) > 1:
        above = []
        for place in range(0, len(values) - 1, 2):
            name = f"{prefix}{level}_{place}"
            lines.append(f"let {name} = {state.combine(values[place], values[place + 1])};")
            above.append(name)
        if len(values) % 2:
            above.append(values[-1])
        values, level = above, level + 1
    return values[0]
