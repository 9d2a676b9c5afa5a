"""What a reduction carries from element to element, and how elements enter it, in WGSL."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.expressions import apply_expression, convert, has_expression
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import split_index, strided_index

OUTPUTS, REDUCED, CHUNK, PARTS, OFFSET, SHAPES = 0, 1, 2, 3, 4, 5
"""Parameter words; the lengths and strides of the kept and the reduced dimensions follow."""


_COMBINE = {
    "sum": "add",
    "mean": "add",
    "prod": "multiply",
    "min": "minimum",
    "max": "maximum",
    "any": "bitwise_or",
    "all": "bitwise_and",
}


@dataclass(frozen=True, slots=True)
class Reduction:
    """What one kernel reduces.

    `operation` is a name of the operation table. `source` is the type in memory, `accumulate` the
    one of `accumulator`, `result` that of the outputs; a kernel that writes partial results has
    `partial` set, and one that reads those of argmin or argmax has `indices_given`.
    """

    operation: str
    source: DType
    accumulate: DType
    result: DType
    kept_rank: int
    reduced_rank: int
    partial: bool
    indices_given: bool
    workgroup_size: int
    """0 for the lane form, else the size of a workgroup in the group form."""
    quads: bool = False
    """The group form reads elements in fours: the one reduced dimension is contiguous, and its
    length, `chunk`, the offset and the kept dimensions' strides are multiples of four."""

    @property
    def is_arg(self) -> bool:
        return self.operation.startswith("arg")

    @property
    def outputs_per_worker(self) -> int:
        """Outputs that one invocation (lane form) or workgroup (group form) computes."""
        return 1 if self.partial else shader_type(self.result).per_word


def accumulator(operation: str, source: DType, result: DType) -> DType:
    """The type in which an operation reduces. It fills a word at least."""
    if operation in ("any", "all"):
        return dt.uint32
    dtype = source if operation in ("min", "max", "argmin", "argmax") else result
    if dtype is dt.float16:
        return dt.float32
    if dtype.itemsize < 4:
        return dt.int32 if dtype.kind is Kind.SIGNED else dt.uint32
    return dtype


class State:
    """What a reduction carries from element to element, in WGSL."""

    def __init__(self, reduction: Reduction) -> None:
        self._reduction = reduction
        self._value = shader_type(reduction.accumulate).value
        self.type = "Best" if reduction.is_arg else self._value

    @property
    def identity(self) -> str | None:
        """The state of no elements; None where a state starts as the part's first element, which
        counts no more for being met twice."""
        match self._reduction.operation:
            case "sum" | "mean" | "any":
                return f"{self._value}()"
            case "prod":
                return f"{self._value}({self._one})"
            case "all":
                return "1u"
        return None

    @property
    def _one(self) -> str:
        return "1.0, 0.0" if self._reduction.accumulate.kind is Kind.COMPLEX else "1"

    def combine(self, left: str, right: str) -> str:
        """The state of two runs of elements."""
        if self._reduction.is_arg:
            return f"better({left}, {right})"
        operation = _COMBINE[self._reduction.operation]
        return apply_expression(operation, self._reduction.accumulate, [left, right])


def load_function(reduction: Reduction, state: State) -> str:
    """WGSL's `load_state(base, n)`: the state of reduced element n of an output."""
    lines, indices = split_index("n", reduced_word(reduction), reduction.reduced_rank, "r")
    stride = reduced_word(reduction) + reduction.reduced_rank
    lines.append(f"let at = base + {strided_index(None, stride, indices)};")
    types = shader_type(reduction.source)
    if reduction.quads:  # Only a part's first element is ever loaded so.
        statements, values = types.load_quad("source", "at >> 2u", "q")
        lines += [*statements, f"let loaded = {values[0]};"]
    else:
        lines.append(f"let loaded = {types.load('source', 'at')};")
    value = entering("loaded", reduction)
    if reduction.is_arg:
        index = "source_index[at]" if reduction.indices_given else "n"
        value = f"Best({value}, {index})"
    lines.append(f"return {value};")
    body = "\n".join(f"    {line}" for line in lines)
    return f"fn load_state(base: u32, n: u32) -> {state.type} {{\n{body}\n}}"


def entering(value: str, reduction: Reduction) -> str:
    """An element in the accumulator's type. A sum is taken of elements converted to the result's
    type first, as NumPy does."""
    source = reduction.source
    if reduction.operation in ("any", "all"):
        return convert(convert(value, source, dt.bool_), dt.bool_, dt.uint32)
    if reduction.operation in ("sum", "prod", "mean") and not reduction.indices_given:
        target = reduction.result
        if target is not dt.float16 and target.itemsize < 4 and source.kind is Kind.FLOAT:
            return convert(convert(value, source, target), target, reduction.accumulate)
    return convert(value, source, reduction.accumulate)


def best_function(reduction: Reduction) -> str:
    """The state of argmin and argmax, and which of two is better: NaN before all else, then the
    more extreme value, then the lower index."""
    types = shader_type(reduction.accumulate)
    sign = "<" if reduction.operation == "argmin" else ">"
    lines = [
        f"struct Best {{ value: {types.value}, index: u32 }}",
        "",
        "fn better(a: Best, b: Best) -> Best {",
        "    let lower = a.index < b.index;",
    ]
    if has_expression("isnan", reduction.accumulate) and reduction.accumulate.is_floating:
        lines += [
            f"    let an = is_nan_{types.suffix}(a.value);",
            f"    let bn = is_nan_{types.suffix}(b.value);",
            "    if an || bn {",
            "        if (an && bn && lower) || (an && !bn) { return a; }",
            "        return b;",
            "    }",
        ]
    lines += [
        f"    if a.value {sign} b.value || (a.value == b.value && lower) {{ return a; }}",
        "    return b;",
        "}",
    ]
    return "\n".join(lines)


def reduced_word(reduction: Reduction) -> int:
    return SHAPES + 2 * reduction.kept_rank
