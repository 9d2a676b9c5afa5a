"""Programs: what generated kernels compute for each element, and its WGSL.

A `Program` is a row of loads and of operations on registers. One operation is a program of one
step; a fused chain is a longer one. Elementwise kernels run one for each element of their results;
reductions run one on what they reduce and another on what comes out, products on what they store.

A fused chain gives the bits that its operations give one by one. Compilers would not have it so:
they make one fma of a product and a sum, and `b` of `(a + b) - a` (measured on NVIDIA and on Mesa).
So a float result that another step computes with is crossed with a zero which no compiler can
know, and so is the second of two equal operands (`x - x` is not 0 where x is infinite): one integer
operation, lost in the time that memory takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.expressions import apply_expression, convert
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import param


class LoadForm(Enum):
    """How a kernel reads one operand."""

    QUAD = "q"
    STRIDED = "s"
    UNIFORM = "u"
    SCALAR = "c"


@dataclass(frozen=True, slots=True)
class Load:
    """One operand: its type in memory, and how it is read."""

    dtype: DType
    form: LoadForm


@dataclass(frozen=True, slots=True)
class Step:
    """One operation. Operands are register numbers: the loads first, then the steps. They are
    converted to `compute`, in which the operation runs; `result` is its result's type."""

    operation: str
    operands: tuple[int, ...]
    compute: DType
    result: DType


@dataclass(frozen=True, slots=True)
class Result:
    """A register that is stored, converted to a type."""

    register: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Program:
    """Loads, steps, and which registers are stored."""

    loads: tuple[Load, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]

    @property
    def name(self) -> str:
        """The operations and types, for errors and profiles."""
        types = "_".join(load.dtype.name + load.form.value for load in self.loads)
        stored = "_".join(result.dtype.name for result in self.results)
        return f"{name_of_steps(self.steps) or 'copy'}__{types}__{stored}"

    @property
    def features(self) -> frozenset[str]:
        """wgpu features that the types need."""
        return features_of(
            [load.dtype for load in self.loads]
            + [dtype for step in self.steps for dtype in (step.compute, step.result)]
            + [result.dtype for result in self.results]
        )


_NAMED_STEPS = 6


class Named(Protocol):
    """What has an operation's name."""

    @property
    def operation(self) -> str: ...


def name_of_steps(steps: Sequence[Named]) -> str:
    """Operations for a kernel's name: of long programs the first, the last, and how many."""
    names = [step.operation for step in steps]
    if len(names) > _NAMED_STEPS:
        names = [*names[:3], f"and_{len(names) - 4}_more", names[-1]]
    return "_".join(names)


def features_of(dtypes: Sequence[DType]) -> frozenset[str]:
    """wgpu features that any of the types needs."""
    return frozenset().union(*(shader_type(dtype).features for dtype in dtypes))


Register = tuple[str, DType]
"""A WGSL name or expression, and the type of what is in it."""

OPAQUE_ZERO = f"({param(0)} >> 31u)"
"""In every kernel the first parameter word counts something that is bound, so it is below 2^31."""

_EXACT = frozenset({"abs", "negative"})
"""Operations on bits, which a compiler does not see through."""


def run_steps(
    steps: Sequence[Step], loaded: Sequence[Register], prefix: str, *, last_inner: bool = False
) -> tuple[list[str], list[Register]]:
    """Statements that run the steps for one element, and all registers: the loads, then the steps.
    Names that the statements bind begin with `prefix`. `last_inner`: the kernel goes on computing
    with the last one."""
    lines: list[str] = []
    registers = list(loaded)
    read = {register for step in steps for register in step.operands}
    if last_inner:
        read.add(len(loaded) + len(steps) - 1)
    for number, step in enumerate(steps):
        name = f"{prefix}s{number}"
        inner = len(registers) in read
        operands = [registers[register] for register in step.operands]
        lines += run_step(step, operands, name, inner=inner)
        registers.append((name, step.result))
    return lines, registers


def run_step(step: Step, operands: Sequence[Register], name: str, *, inner: bool) -> list[str]:
    """Statements that bind `name` to a step's result. `inner`: a further step computes with it."""
    lines: list[str] = []
    converted: list[str] = []
    for place, (value, dtype) in enumerate(operands):
        seen_before = any(value == other for other, _ in operands[:place])
        if step.operation != "where" or place:
            value = convert(value, dtype, step.compute)
        lines.append(f"let {name}_{place} = {value};")
        operand = f"{name}_{place}"
        # Of an i64 widened from an i32, llvmpipe takes `x < 0` for false.
        widened = step.compute is dt.int64 and dtype.is_integer and dtype is not dt.int64
        if seen_before or widened:
            operand = kept(operand, step.compute)
        converted.append(operand)
    result = apply_expression(step.operation, step.compute, converted)
    if step.result is dt.float16 and inner:
        result = f"round_to_f16({result})"
    if inner and step.operation not in _EXACT and step.result.is_floating:
        lines.append(f"let {name}_raw = {result};")
        result = kept(f"{name}_raw", step.result)
    lines.append(f"let {name} = {result};")
    return lines


def kept(value: str, dtype: DType) -> str:
    """The same bits, unknown to the compiler; `value` is a name. Other types than floats and int64
    are exact as they are."""
    if dtype.kind is Kind.COMPLEX:
        part = dt.real_of(dtype)
        return f"{shader_type(dtype).value}({kept(f'{value}.x', part)}, {kept(f'{value}.y', part)})"
    if dtype in (dt.float64, dt.int64):
        wide = shader_type(dtype).value
        return f"bitcast<{wide}>(bitcast<u64>({value}) ^ u64{OPAQUE_ZERO})"
    if dtype.kind is not Kind.FLOAT:
        return value
    return f"bitcast<f32>(bitcast<u32>({value}) ^ {OPAQUE_ZERO})"


def value_of(registers: Sequence[Register], result: Result) -> str:
    """What a result stores."""
    value, dtype = registers[result.register]
    return convert(value, dtype, result.dtype)
