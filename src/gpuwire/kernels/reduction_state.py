"""What a reduction carries from element to element, and how elements enter it, in WGSL."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.expressions import apply_expression, convert, has_expression
from gpuwire.kernels.programs import Load, LoadForm, Register, Step, run_steps
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import split_index, strided_index

OUTPUTS, REDUCED, CHUNK, PARTS, SHAPES = 0, 1, 2, 3, 4
"""Parameter words; `Words` says what follows."""


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

    `operation` is a name of the operation table. `source` is the type of what is reduced,
    `accumulate` the one of `accumulator`, `result` that of the reduction's outputs; a kernel that
    writes partial results has `partial` set, and one that reads those of argmin or argmax has
    `indices_given`.
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
    """The group form reads elements in fours: the one reduced dimension is contiguous in every
    operand that varies along it, and its length, `chunk`, the offsets and the kept dimensions'
    strides are multiples of four."""
    unroll: int = 4
    """Elements, or quads, that a lane of the group form has on the way at once; a power of two."""
    interleaved: bool = False
    """The parts of an output take turns along its elements, a workgroup's width each: what runs at
    one time then reads one stretch of memory. Else each has a run of `chunk`. Group form only."""
    loads: tuple[Load, ...] = ()
    """Operands of the prologue; none: the one tensor that is reduced. Forms are QUAD (if `quads`),
    STRIDED, UNIFORM (if `quads`: the same along the reduced dimension) and SCALAR."""
    prologue: tuple[Step, ...] = ()
    """Steps over the loads; the last register is what is reduced."""
    epilogue_loads: tuple[Load, ...] = ()
    """STRIDED and SCALAR ones, for each output."""
    epilogue: tuple[Step, ...] = ()
    """Steps over the reduction's result, which is register 0, and the epilogue's loads; the last
    register is stored."""

    @property
    def is_arg(self) -> bool:
        return self.operation.startswith("arg")

    @property
    def operands(self) -> tuple[Load, ...]:
        """The loads, also where there is no prologue."""
        form = LoadForm.QUAD if self.quads else LoadForm.STRIDED
        return self.loads or (Load(self.source, form),)

    @property
    def stored(self) -> DType:
        """The type of the outputs after the epilogue."""
        return self.epilogue[-1].result if self.epilogue else self.result

    @property
    def outputs_per_worker(self) -> int:
        """Outputs that one invocation (lane form) or workgroup (group form) computes."""
        return 1 if self.partial else shader_type(self.stored).per_word


class Words:
    """Where a reduction's parameter words lie: after the four numbers the lengths of the kept and
    of the reduced dimensions; for each tensor of the prologue its offset, kept and reduced strides;
    for each of the epilogue its offset and kept strides; for `mean` the divisor; the scalars, first
    the prologue's."""

    def __init__(self, reduction: Reduction) -> None:
        kept, reduced = reduction.kept_rank, reduction.reduced_rank
        self.kept = SHAPES
        self.reduced = SHAPES + kept
        self.count = self.reduced + reduced
        self.loads = [self._place(load, 1 + kept + reduced) for load in reduction.operands]
        self.epilogue = [self._place(load, 1 + kept) for load in reduction.epilogue_loads]
        self.divisor = self.count
        if reduction.operation == "mean" and not reduction.partial:
            self.count += shader_type(dt.real_of(reduction.accumulate)).parameter_words
        for places, loads in (
            (self.loads, reduction.operands),
            (self.epilogue, reduction.epilogue_loads),
        ):
            for number, load in enumerate(loads):
                if load.form is LoadForm.SCALAR:
                    places[number] = self.count
                    self.count += shader_type(load.dtype).parameter_words

    def _place(self, load: Load, words: int) -> int:
        place = self.count
        self.count += 0 if load.form is LoadForm.SCALAR else words
        return place


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


def base_names(reduction: Reduction) -> list[str]:
    """The names of where an output's elements begin, one for each tensor of the prologue."""
    return [
        f"base{number}"
        for number, load in enumerate(reduction.operands)
        if load.form is not LoadForm.SCALAR
    ]


def load_function(reduction: Reduction, state: State, words: Words) -> str:
    """WGSL's `load_state(base0, …, n)`: the state of reduced element n of an output."""
    rank = reduction.reduced_rank
    lines, indices = split_index("n", words.reduced, rank, "r")
    loaded: list[Register] = []
    for number, (load, place) in enumerate(zip(reduction.operands, words.loads, strict=True)):
        types, name, at = shader_type(load.dtype), f"source{number}", f"at{number}"
        stride = place + 1 + reduction.kept_rank
        match load.form:
            case LoadForm.SCALAR:
                value = types.parameter(place)
            case LoadForm.UNIFORM:
                value = types.load(name, f"base{number}")
            case LoadForm.QUAD:  # Only a part's first element is ever loaded so.
                statements, values = types.load_quad(
                    name, f"(base{number} + n) >> 2u", f"q{number}"
                )
                lines += statements
                value = values[0]
            case LoadForm.STRIDED:
                lines.append(f"let {at} = base{number} + {strided_index(None, stride, indices)};")
                value = types.load(name, at)
        lines.append(f"let x{number} = {value};")
        loaded.append((f"x{number}", load.dtype))
    statements, value = entering_steps(reduction, loaded, "p")
    lines += statements
    if reduction.is_arg:
        index = "source_index[at0]" if reduction.indices_given else "n"
        value = f"Best({value}, {index})"
    lines.append(f"return {value};")
    body = "\n".join(f"    {line}" for line in lines)
    parameters = "".join(f"{name}: u32, " for name in base_names(reduction))
    return f"fn load_state({parameters}n: u32) -> {state.type} {{\n{body}\n}}"


def entering_steps(
    reduction: Reduction, loaded: list[Register], prefix: str
) -> tuple[list[str], str]:
    """Statements of the prologue, and what is reduced, in the accumulator's type."""
    lines, registers = run_steps(reduction.prologue, loaded, prefix, last_inner=True)
    return lines, entering(registers[-1][0], reduction)


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
