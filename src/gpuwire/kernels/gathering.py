"""Kernels that put results together from elements of other places: concat, slice_assign, take; and
arange, which makes them up.

An invocation computes as many elements as one word of the result holds. Parameters, in words: the
number of results, the lengths of the result's `rank` dimensions, then those that each function
names.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType
from gpuwire.kernels.expressions import apply_expression, convert
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

WORKGROUP_SIZE = 256


def workgroups(count: int, result: DType) -> int:
    """How many workgroups compute `count` results."""
    return -(-count // (WORKGROUP_SIZE * shader_type(result).per_word))


def concat_kernel(sources: Sequence[DType], result: DType, rank: int, axis: int) -> Kernel:
    """Sources one after the other along `axis`. Further words, for each source: where it begins
    along the axis, its offset, its strides."""
    names = "_".join(dtype.name for dtype in sources)
    writer = KernelWriter(f"concat__{names}__{result.name}__{rank}_{axis}", WORKGROUP_SIZE)
    writer.words(1 + rank)
    places = [writer.words(2 + rank) for _ in sources]
    for number, dtype in enumerate(sources):
        _input(writer, f"source{number}", dtype)
    lines, indices = split_index("n", 1, rank, "i")
    for number in reversed(range(len(sources))):
        place, name = places[number], f"source{number}"
        inside = [*indices]
        inside[axis] = f"({indices[axis]} - {param(place)})"
        at = strided_index(place + 1, place + 2, inside)
        value = convert(shader_type(sources[number]).load(name, "at"), sources[number], result)
        body = [f"let at = {at};", f"return {value};"]
        if number:
            body = [
                f"if {indices[axis]} >= {param(place)} {{",
                *(f"    {line}" for line in body),
                "}",
            ]
        lines += body
    return _finish(writer, result, lines)


def slice_assign_kernel(old: DType, value: DType, rank: int) -> Kernel:
    """The old array with a slice of it replaced. Further words: offset and strides of the old
    array; offset and strides of the value, over the slice's dimensions; starts, steps (positive)
    and lengths of the slice."""
    writer = KernelWriter(f"slice_assign__{old.name}_{value.name}__{rank}", WORKGROUP_SIZE)
    writer.words(1 + rank)
    old_word = writer.words(1 + rank)
    value_word = writer.words(1 + rank)
    starts, steps, lengths = writer.words(rank), writer.words(rank), writer.words(rank)
    _input(writer, "old", old)
    _input(writer, "value", value)
    lines, indices = split_index("n", 1, rank, "i")
    lines.append("var inside = true;")
    for axis, index in enumerate(indices):
        step = param(steps + axis)
        lines += [
            f"let d{axis} = {index} - {param(starts + axis)};",
            f"let q{axis} = d{axis} / {step};",
            f"inside = inside && {index} >= {param(starts + axis)}"
            f" && q{axis} < {param(lengths + axis)} && q{axis} * {step} == d{axis};",
        ]
    value_at = strided_index(value_word, value_word + 1, [f"q{axis}" for axis in range(rank)])
    new = convert(shader_type(value).load("value", "value_at"), value, old)
    lines += [
        "if inside {",
        f"    let value_at = {value_at};",
        f"    return {new};",
        "}",
        f"let old_at = {strided_index(old_word, old_word + 1, indices)};",
        f"return {shader_type(old).load('old', 'old_at')};",
    ]
    return _finish(writer, old, lines)


def take_kernel(source: DType, index: DType, rank: int, axis: int) -> Kernel:
    """Elements at one-dimensional indices along `axis`; negative ones count from the end, and what
    is out of range is clamped. Further words: offset and strides of the source; length of its axis;
    offset and stride of the indices."""
    writer = KernelWriter(f"take__{source.name}_{index.name}__{rank}_{axis}", WORKGROUP_SIZE)
    writer.words(1 + rank)
    source_word, length_word, index_word = writer.words(1 + rank), writer.words(), writer.words(2)
    _input(writer, "source", source)
    _input(writer, "indices", index)
    lines, indices = split_index("n", 1, rank, "i")
    wide = shader_type(index).value
    length = f"{wide}({param(length_word)})"
    lines += [
        f"let index_at = {strided_index(index_word, index_word + 1, [indices[axis]])};",
        f"var index = {shader_type(index).load('indices', 'index_at')};",
    ]
    if wide in ("i32", "i64"):
        lines.append(f"if index < {wide}(0) {{ index = max(index + {length}, {wide}(0)); }}")
    lines.append(f"let place = u32(min(index, {length} - {wide}(1)));")
    inside = [*indices]
    inside[axis] = "place"
    lines += [
        f"let at = {strided_index(source_word, source_word + 1, inside)};",
        f"return {shader_type(source).load('source', 'at')};",
    ]
    return _finish(writer, source, lines)


def arange_kernel(result: DType) -> Kernel:
    """start + i * step. Further words: start and step, scalars of the result's type."""
    writer = KernelWriter(f"arange__{result.name}", WORKGROUP_SIZE)
    writer.words(2)
    types = shader_type(result)
    start, step = writer.words(types.parameter_words), writer.words(types.parameter_words)
    number = convert("n", dt.uint32, result if result is not dt.float16 else dt.float32)
    lines = [
        f"let start = {types.parameter(start)};",
        f"let step = {types.parameter(step)};",
        f"let number = {number};",
        f"let far = {apply_expression('multiply', result, ['number', 'step'])};",
        f"return {apply_expression('add', result, ['start', 'far'])};",
    ]
    return _finish(writer, result, lines)


def _input(writer: KernelWriter, name: str, dtype: DType) -> None:
    types = shader_type(dtype)
    writer.needs(types.features)
    writer.buffer(name, types.storage, Access.READ)


def _finish(writer: KernelWriter, result: DType, lines: list[str]) -> Kernel:
    """The kernel whose element n is what `lines` return."""
    types = shader_type(result)
    body = "\n".join(f"    {line}" for line in lines)
    writer.function(f"fn element(n: u32) -> {types.value} {{\n{body}\n}}")
    writer.needs(types.features)
    writer.buffer("result", types.storage, Access.WRITE)
    count, each = param(0), types.per_word
    writer.item(f"({count} + {each - 1}u) / {each}u" if each > 1 else count)
    if each == 1:
        writer.write("result[item] = element(item);")
    else:  # The last word may reach past the end.
        writer.write(
            "var word = 0u;",
            f"for (var k = 0u; k < {each}u; k = k + 1u) {{",
            f"    let value = element(min(item * {each}u + k, {count} - 1u));",
            f"    word = word | ({types.part_of_word('value', 'k')});",
            "}",
            "result[item] = word;",
        )
    return writer.finish()
