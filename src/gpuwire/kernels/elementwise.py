"""Kernels that compute each element of their results by itself.

A kernel runs a `Program`; all its results have one shape.

Two forms. In the quad form an invocation computes four neighbours along the innermost dimension:
operands that are contiguous there are read 4 elements at a time, so that a large contiguous
operation runs at memory speed. It wants an innermost dimension whose length is a multiple of four,
or a single dimension. In the word form an invocation computes as many elements as one u32 of the
results holds (of all results the same number), each with index arithmetic of its own.

Parameters, in words: the number of results' elements; the lengths of the `rank`
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

from collections.abc import Sequence

from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.programs import LoadForm, Program, Register, Result, run_steps, value_of
from gpuwire.kernels.shader_types import QUAD, ShaderType, shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

WORKGROUP_SIZE = 256


def results_per_invocation(results: Sequence[Result], quads: bool) -> int:
    """How many elements of each result one invocation computes."""
    return QUAD if quads else per_word(results[0])


def per_word(result: Result) -> int:
    """Elements in a word of a result."""
    return shader_type(result.dtype).per_word


def workgroups(count: int, results: Sequence[Result], quads: bool) -> int:
    """How many workgroups compute `count` elements of each result."""
    return -(-count // (WORKGROUP_SIZE * results_per_invocation(results, quads)))


def elementwise_kernel(program: Program, rank: int, quads: bool) -> Kernel:
    """The kernel of a program over `rank` (≥ 1) dimensions, in the quad or the word form."""
    form = "quads" if quads else "words"
    writer = KernelWriter(f"{program.name}__{form}{rank}", WORKGROUP_SIZE)
    places = _declare(writer, program, rank, quads)
    each = results_per_invocation(program.results, quads)
    writer.item(f"({param(0)} + {each - 1}u) / {each}u" if each > 1 else param(0))
    if quads:
        elements = _load_quads(writer, program, places, rank)
    else:
        types = shader_type(program.results[0].dtype)
        assert all(per_word(result) == types.per_word for result in program.results)
        elements = [
            _load_element(writer, program, places, rank, k, types) for k in range(types.per_word)
        ]
    registers = [_run(writer, program, loaded, f"e{k}") for k, loaded in enumerate(elements)]
    for number, result in enumerate(program.results):
        stored = shader_type(result.dtype)
        values = [value_of(of_element, result) for of_element in registers]
        if quads:
            writer.write(*stored.store_quad(f"result{number}", "item", values))
        else:
            writer.write(f"result{number}[item] = {stored.word(values)};")
    return writer.finish()


def _declare(writer: KernelWriter, program: Program, rank: int, quads: bool) -> list[int]:
    """Bindings and parameter words; the first word of each load."""
    writer.words(1 + rank)
    writer.needs(program.features)
    places = [-1] * len(program.loads)
    for number, load in enumerate(program.loads):
        types = shader_type(load.dtype)
        if load.form is not LoadForm.SCALAR:
            element = types.quad_storage if load.form is LoadForm.QUAD else types.storage
            writer.buffer(f"input{number}", element, Access.READ)
            places[number] = writer.words(1 + rank - (load.form is not LoadForm.STRIDED))
    for number, load in enumerate(program.loads):
        if load.form is LoadForm.SCALAR:
            places[number] = writer.words(shader_type(load.dtype).parameter_words)
    for number, result in enumerate(program.results):
        types = shader_type(result.dtype)
        element = types.quad_storage if quads else types.storage
        writer.buffer(f"result{number}", element, Access.WRITE)
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


def _run(writer: KernelWriter, program: Program, loaded: list[str], prefix: str) -> list[Register]:
    """The statements of the program for one element; its registers."""
    registers: list[Register] = []
    for number, (value, load) in enumerate(zip(loaded, program.loads, strict=True)):
        name = f"{prefix}v{number}"
        writer.write(f"let {name} = {value};")
        registers.append((name, load.dtype))
    lines, registers = run_steps(program.steps, registers, prefix)
    writer.write(*lines)
    return registers
