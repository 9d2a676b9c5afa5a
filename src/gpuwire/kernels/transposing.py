"""The kernel that copies a tensor whose memory runs along another dimension than its last.

Read element by element in the result's order, neighbours would come from far apart, each with a
memory transaction of its own: measured on an H200, 27 GB/s. A workgroup takes a tile instead, reads
it along the dimension that is contiguous in the source, and writes it along the one that is
contiguous in the result; between the two it lies in workgroup memory.

Parameters, in words: tiles along the source's dimension and along the last; their lengths; how many
such planes there are; the source's offset; its strides along the two; the result's stride along the
source's dimension; the lengths of the other dimensions, the source's strides along them, the
result's.
"""

from __future__ import annotations

from gpuwire.ir.dtypes import DType
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

TILE = 32
"""Elements of a tile along the source's dimension, and words of it along the last."""
LANES = 256

_OTHERS = 9


def tile_length(dtype: DType) -> int:
    """Elements of a tile along the last dimension, whose length must fill whole words."""
    return TILE * shader_type(dtype).per_word


def transposing_kernel(dtype: DType, others: int) -> Kernel:
    """The kernel for tensors with `others` dimensions besides the two."""
    types, length = shader_type(dtype), tile_length(dtype)
    writer = KernelWriter(f"transpose__{dtype.name}__{others}", LANES)
    writer.words(_OTHERS + 3 * others)
    writer.needs(types.features)
    writer.buffer("source", types.storage, Access.READ)
    writer.buffer("result", types.storage, Access.WRITE)
    # One more than the tile is long, so that a column of it lies in different banks.
    writer.workgroup_array("tile", types.value, TILE * (length + 1))
    writer.workgroup()
    writer.write(
        f"let per_other = {param(0)} * {param(1)};",
        "let other = group / per_other;",
        f"if other >= {param(4)} {{ return; }}",
        "let place = group % per_other;",
        f"let first = (place / {param(1)}) * {TILE}u;",
        f"let last = (place % {param(1)}) * {length}u;",
    )
    lines, indices = split_index("other", _OTHERS, others, "o")
    writer.write(*lines)
    writer.write(
        f"let source_base = {strided_index(5, _OTHERS + others, indices)};",
        f"let result_base = {strided_index(None, _OTHERS + 2 * others, indices)};",
        f"let column = lane % {TILE}u;",
        f"for (var i = lane / {TILE}u; i < {length}u; i = i + {LANES // TILE}u) {{",
        f"    if first + column < {param(2)} && last + i < {param(3)} {{",
        f"        let at = source_base + (first + column) * {param(6)} + (last + i) * {param(7)};",
        f"        tile[column * {length + 1}u + i] = {types.load('source', 'at')};",
        "    }",
        "}",
        "workgroupBarrier();",
        f"for (var i = lane / {TILE}u; i < {TILE}u; i = i + {LANES // TILE}u) {{",
        f"    let element = column * {types.per_word}u;",
        f"    if first + i < {param(2)} && last + element < {param(3)} {{",
        f"        let at = result_base + (first + i) * {param(8)} + last + element;",
    )
    values = [f"tile[i * {length + 1}u + element + {k}u]" for k in range(types.per_word)]
    at = "at" if types.per_word == 1 else f"at / {types.per_word}u"
    writer.write(f"        result[{at}] = {types.word(values)};", "    }", "}")
    return writer.finish()
