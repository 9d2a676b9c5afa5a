"""Kernels that compute each element of the result by itself.

A kernel runs a `Program`: loads, then operations on registers, the last of which is the result.
One operation is a program of one step; a fused chain is a longer one.

Two forms. In the quad form an invocation computes four neighbours along the innermost dimension:
operands that are contiguous there are read 4 elements at a time, so that a large contiguous
operation runs at memory speed. It wants an innermost dimension whose length is a multiple of four,
or a single dimension. In the word form an invocation computes as many elements as one u32 of the
result holds, each with index arithmetic of its own.

Parameters, in words: the number of results; the lengths of the `rank`
dimensions, the innermost in quads in the quad form; then for each load, in order:

- QUAD: offset and outer strides, all in quads;
- STRIDED: offset, then `rank` strides, in elements;
- UNIFORM (quad form only: stride 0 along the innermost dimension): offset and outer strides, in
  elements;
- SCALAR: the scalar's words, as `shader_types.encode_scalar` gives them.

Scalars come last whatever their place among the loads, so that a plan can append them to words
that do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType
from gpuwire.kernels.expressions import apply_expression, convert
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.shader_types import QUAD, ShaderType, shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

WORKGROUP_SIZE = 256


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
class Program:
    """Loads and steps; the last step's value is the result. Without steps, the only load's is."""

    loads: tuple[Load, ...]
    steps: tuple[Step, ...]
    result: DType

    @property
    def name(self) -> str:
        """The operations and types, for errors and profiles."""
        operations = "_".join(step.operation for step in self.steps) or "copy"
        types = "_".join(load.dtype.name + load.form.value for load in self.loads)
        return f"{operations}__{types}__{self.result.name}"


def results_per_invocation(result: DType, quads: bool) -> int:
    """How many results one invocation computes."""
    return QUAD if quads else shader_type(result).per_word


def workgroups(count: int, result: DType, quads: bool) -> int:
    """How many workgroups compute `count` results."""
    return -(-count // (WORKGROUP_SIZE * results_per_invocation(result, quads)))


def elementwise_kernel(program: Program, rank: int, quads: bool) -> Kernel:
    """The kernel of a program over `rank` (≥ 1) dimensions, in the quad or the word form."""
    form = "quads" if quads else "words"
    writer = KernelWriter(f"{program.name}__{form}{rank}", WORKGROUP_SIZE)
    places = _declare(writer, program, rank, quads)
    each = results_per_invocation(program.result, quads)
    writer.item(f"({param(0)} + {each - 1}u) / {each}u" if each > 1 else param(0))
    results = _load_quads(writer, program, places, rank) if quads else None
    types = shader_type(program.result)
    if results is not None:
        values = [_run(writer, program, registers, f"e{k}") for k, registers in enumerate(results)]
        writer.write(*types.store_quad("result", "item", values))
    else:
        values = [
            _run(writer, program, _load_element(writer, program, places, rank, k, types), f"e{k}")
            for k in range(types.per_word)
        ]
        writer.write(f"result[item] = {types.word(values)};")
    return writer.finish()


def _declare(writer: KernelWriter, program: Program, rank: int, quads: bool) -> list[int]:
    """Bindings and parameter words; the first word of each load."""
    writer.words(1 + rank)
    places = [-1] * len(program.loads)
    for number, load in enumerate(program.loads):
        types = shader_type(load.dtype)
        writer.needs(types.features)
        if load.form is not LoadForm.SCALAR:
            element = types.quad_storage if load.form is LoadForm.QUAD else types.storage
            writer.buffer(f"input{number}", element, Access.READ)
            places[number] = writer.words(1 + rank - (load.form is not LoadForm.STRIDED))
    for number, load in enumerate(program.loads):
        if load.form is LoadForm.SCALAR:
            places[number] = writer.words(shader_type(load.dtype).parameter_words)
    for step in program.steps:
        writer.needs(shader_type(step.compute).features | shader_type(step.result).features)
    types = shader_type(program.result)
    writer.needs(types.features)
    writer.buffer("result", types.quad_storage if quads else types.storage, Access.WRITE)
    return places


def _load_quads(
    writer: KernelWriter, program: Program, places: list[int], rank: int
) -> list[list[str]]:
    """The loads' registers for each of the four elements."""
    lines, indices = split_index("item", 1, rank, "i")
    writer.write(*lines)
    outer, inner = indices[:-1], indices[-1]
    columns: list[list[str]] = []
    for number, load in enumerate(program.loads):
        types = shader_type(load.dtype)
        place, name = places[number], f"input{number}"
        match load.form:
            case LoadForm.SCALAR:
                writer.write(f"let x{number} = {types.parameter(place)};")
                columns.append([f"x{number}"] * QUAD)
            case LoadForm.UNIFORM:
                index = strided_index(place, place + 1, outer)
                writer.write(f"let a{number} = {index};")
                writer.write(f"let x{number} = {types.load(name, f'a{number}')};")
                columns.append([f"x{number}"] * QUAD)
            case LoadForm.QUAD:
                index = f"{strided_index(place, place + 1, outer)} + {inner}"
                writer.write(f"let a{number} = {index};")
                statements, values = types.load_quad(name, f"a{number}", f"q{number}")
                writer.write(*statements)
                columns.append(values)
            case LoadForm.STRIDED:
                stride = param(place + rank)
                base = strided_index(place, place + 1, outer)
                writer.write(f"let a{number} = {base};")
                at = [f"{inner} * {QUAD}u + {k}u" for k in range(QUAD)]
                if rank == 1:  # The last quad may reach past the end.
                    at = [f"min({index}, {param(0)} - 1u)" for index in at]
                columns.append(
                    [types.load(name, f"a{number} + ({index}) * {stride}") for index in at]
                )
    return [[column[k] for column in columns] for k in range(QUAD)]


def _load_element(
    writer: KernelWriter,
    program: Program,
    places: list[int],
    rank: int,
    element: int,
    types: ShaderType,
) -> list[str]:
    """The loads' registers for one element of the word form."""
    index = "item"
    if types.per_word > 1:  # The last word may reach past the end.
        index = f"min(item * {types.per_word}u + {element}u, {param(0)} - 1u)"
    writer.write(f"let n{element} = {index};")
    lines, indices = split_index(f"n{element}", 1, rank, f"i{element}_")
    writer.write(*lines)
    registers = []
    for number, load in enumerate(program.loads):
        loaded = shader_type(load.dtype)
        place = places[number]
        if load.form is LoadForm.SCALAR:
            registers.append(loaded.parameter(place))
            continue
        at = f"a{element}_{number}"
        writer.write(f"let {at} = {strided_index(place, place + 1, indices)};")
        registers.append(loaded.load(f"input{number}", at))
    return registers


def _run(writer: KernelWriter, program: Program, loaded: list[str], prefix: str) -> str:
    """The statements of the program for one element; its result."""
    registers: list[tuple[str, DType]] = []
    for number, (value, load) in enumerate(zip(loaded, program.loads, strict=True)):
        name = f"{prefix}v{number}"
        writer.write(f"let {name} = {value};")
        registers.append((name, load.dtype))
    for number, step in enumerate(program.steps):
        operands = []
        for place, register in enumerate(step.operands):
            value, dtype = registers[register]
            if not (step.operation == "where" and place == 0):
                value = convert(value, dtype, step.compute)
            name = f"{prefix}s{number}_{place}"
            writer.write(f"let {name} = {value};")
            operands.append(name)
        name = f"{prefix}s{number}"
        writer.write(f"let {name} = {apply_expression(step.operation, step.compute, operands)};")
        registers.append((name, step.result))
        if step.result is dt.float16 and number + 1 < len(program.steps):
            registers[-1] = (f"round_to_f16({name})", step.result)
    value, dtype = registers[-1]
    return convert(value, dtype, program.result)
