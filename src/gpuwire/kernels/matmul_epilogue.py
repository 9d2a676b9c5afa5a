"""What a matrix product's elements go through on their way to memory, in WGSL.

Further parameters of a product's kernel, in words: for each tensor that is loaded its offset, row
stride, column stride and batch strides; then the scalars.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir.dtypes import DType
from gpuwire.kernels.kernel import Access
from gpuwire.kernels.programs import (
    Load,
    LoadForm,
    Register,
    Result,
    Step,
    features_of,
    kept,
    run_steps,
    value_of,
)
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index


@dataclass(frozen=True, slots=True)
class MatmulEpilogue:
    """Steps on each element. Register 0 is the product, then come the loads (STRIDED, SCALAR).
    Results fill a word at least: a lane stores one element at a time."""

    loads: tuple[Load, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]


def plain_epilogue(accumulate: DType) -> MatmulEpilogue:
    """The product as it is."""
    return MatmulEpilogue((), (), (Result(0, accumulate),))


def write_store(
    writer: KernelWriter,
    epilogue: MatmulEpilogue,
    accumulate: DType,
    batch_rank: int,
    rows_word: int,
    columns_word: int,
    batch_word: int,
) -> None:
    """Declare operands, results and parameters, and WGSL's `store(batch, row, column, sum)`. The
    three words are those of M, N and the lengths of the batch dimensions."""
    steps = epilogue.steps
    writer.needs(
        features_of(
            [load.dtype for load in epilogue.loads]
            + [dtype for step in steps for dtype in (step.compute, step.result)]
        )
    )
    lines, indices = split_index("batch", batch_word, batch_rank, "b")
    lines.append(f"let product = {kept('sum', accumulate) if steps else 'sum'};")
    loaded: list[Register] = [("product", accumulate)]
    names = []
    for number, load in enumerate(epilogue.loads):
        if load.form is LoadForm.STRIDED:
            types, name = shader_type(load.dtype), f"other{number}"
            writer.buffer(name, types.storage, Access.READ)
            place = writer.words(3 + batch_rank)
            at = strided_index(place, place + 1, ["row", "column", *indices])
            lines.append(f"let at{number} = {at};")
            lines.append(f"let y{number} = {types.load(name, f'at{number}')};")
        names.append((f"y{number}", load.dtype))
    for number, load in enumerate(epilogue.loads):
        if load.form is LoadForm.SCALAR:
            types = shader_type(load.dtype)
            place = writer.words(types.parameter_words)
            lines.append(f"let y{number} = {types.parameter(place)};")
    loaded += names
    statements, registers = run_steps(steps, loaded, "f")
    lines += statements
    m, n = param(rows_word), param(columns_word)
    lines.append(f"let at = (batch * {m} + row) * {n} + column;")
    for number, result in enumerate(epilogue.results):
        writer.buffer(f"result{number}", shader_type(result.dtype).storage, Access.WRITE)
        lines.append(f"result{number}[at] = {value_of(registers, result)};")
    body = "\n".join(f"    {line}" for line in lines)
    value = shader_type(accumulate).value
    writer.function(f"fn store(batch: u32, row: u32, column: u32, sum: {value}) {{\n{body}\n}}")
