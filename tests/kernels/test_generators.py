"""What holds for every generated kernel's source, whatever it computes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuwire.ir import dtypes as dt
from gpuwire.kernels.elementwise import elementwise_kernel
from gpuwire.kernels.gathering import (
    arange_kernel,
    concat_kernel,
    slice_assign_kernel,
    take_kernel,
)
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.matmul import INNER_SLICES, matmul_kernel
from gpuwire.kernels.matmul_direct import Block, DirectMatmulSpec, direct_matmul_kernel
from gpuwire.kernels.matmul_epilogue import MatmulEpilogue
from gpuwire.kernels.matmul_spec import MatmulSpec, OperandForm
from gpuwire.kernels.programs import Load, LoadForm, Program, Result, Step
from gpuwire.kernels.reduction import BLOCK, CHAIN, reduction_kernel
from gpuwire.kernels.reduction_state import Reduction
from gpuwire.kernels.row_programs import RowForm, RowProgram, RowReduction
from gpuwire.kernels.rows import row_kernel
from gpuwire.kernels.transposing import transposing_kernel
from gpuwire.lowering.facts import LARGE, ReductionShape
from gpuwire.lowering.plan_matmul import MIDDLE, SMALL
from gpuwire.lowering.plan_reduction import MAX_CHUNK

LONGEST_LOOP = 65_535


def _kernels() -> Iterator[Kernel]:
    chain = Program(
        (
            Load(dt.float32, LoadForm.QUAD),
            Load(dt.int8, LoadForm.UNIFORM),
            Load(dt.float64, LoadForm.SCALAR),
        ),
        (
            Step("add", (0, 1), dt.float32, dt.float32),
            Step("exp", (3,), dt.float32, dt.float32),
            Step("multiply", (4, 2), dt.float64, dt.float64),
        ),
        (Result(4, dt.float32), Result(5, dt.float16)),
    )
    yield elementwise_kernel(chain, 2, True)
    strided = Program((Load(dt.int16, LoadForm.STRIDED),), (), (Result(0, dt.bool_),))
    yield elementwise_kernel(strided, 3, False)
    for form in (0, 64):
        for operation, partial in (
            ("sum", True),
            ("argmax", True),
            ("argmax", False),
            ("mean", False),
        ):
            yield reduction_kernel(
                Reduction(operation, dt.float32, dt.float32, dt.float16, 2, 1, partial, False, form)
            )
    yield reduction_kernel(
        Reduction("argmin", dt.float16, dt.float32, dt.int64, 1, 1, False, False, 256, quads=True)
    )
    yield reduction_kernel(
        Reduction(
            *("sum", dt.float32, dt.float32, dt.float32, 1, 1, True, False, 256),
            quads=True,
            unroll=8,
            interleaved=True,
        )
    )
    for tile in (SMALL, MIDDLE, LARGE, replace(LARGE, unroll=4), replace(LARGE, unroll=8)):
        for quads in (False, True):
            left, right = (
                OperandForm(dt.float16, True, quads),
                OperandForm(dt.float32, False, quads),
            )
            yield matmul_kernel(MatmulSpec(left, right, dt.float32, 2, tile))
    yield from _fused_kernels()
    yield transposing_kernel(dt.int8, 2)
    yield concat_kernel([dt.int8, dt.int32], dt.int32, 3, 1)
    yield slice_assign_kernel(dt.float16, dt.float32, 2)
    yield take_kernel(dt.uint8, dt.int64, 2, 0)
    yield arange_kernel(dt.int16)


def _fused_kernels() -> Iterator[Kernel]:
    loads = (Load(dt.float32, LoadForm.STRIDED), Load(dt.int16, LoadForm.SCALAR))
    product = (Step("multiply", (0, 1), dt.float32, dt.float32),)
    after = (Step("subtract", (0, 1), dt.float32, dt.float32),)
    for form in (0, 64):
        reduction = Reduction(
            *("mean", dt.float32, dt.float32, dt.float32, 2, 1, False, False, form),
            loads=loads,
            prologue=product,
            epilogue_loads=loads[:1],
            epilogue=after,
        )
        yield reduction_kernel(reduction)
        yield reduction_kernel(replace(reduction, partial=True, epilogue=(), epilogue_loads=()))
    epilogue = MatmulEpilogue(loads, after, (Result(0, dt.float32), Result(3, dt.float32)))
    sides = OperandForm(dt.float32, True, False), OperandForm(dt.float32, False, False)
    yield matmul_kernel(MatmulSpec(*sides, dt.float32, 1, MIDDLE, epilogue))
    for quads in (False, True):
        forms = [replace(side, quads=quads) for side in sides]
        direct = DirectMatmulSpec(*forms, dt.float32, 1, Block(4, 8), epilogue)
        yield direct_matmul_kernel(direct)
    rows = RowProgram(
        (Load(dt.float32, LoadForm.STRIDED), Load(dt.float32, LoadForm.UNIFORM)),
        (
            RowReduction("max", 0, dt.float32, dt.float32, dt.float32),
            Step("subtract", (0, 2), dt.float32, dt.float32),
            RowReduction("mean", 3, dt.float32, dt.float32, dt.float32),
            Step("divide", (3, 4), dt.float32, dt.float32),
        ),
        (Result(5, dt.float32), Result(4, dt.float32)),
        (False, True),
    )
    for size, held, exact in ((1, 0, False), (1, 5, True), (64, 0, False), (64, 2, False)):
        yield row_kernel(rows, RowForm(2, 1, size, held, exact, False, size > 1))
    quads = replace(rows, loads=(Load(dt.float32, LoadForm.QUAD), rows.loads[1]))
    yield row_kernel(quads, RowForm(1, 1, 512, 4, True, True, True))


_KERNELS = list(_kernels())


@pytest.mark.parametrize("kernel", _KERNELS, ids=lambda kernel: kernel.name)
def test_conventions(kernel: Kernel) -> None:
    source = kernel.source
    bindings = re.findall(
        r"@group\(0\) @binding\((\d+)\) var<storage, (read|read_write)> (\w+): array<", source
    )
    assert [int(number) for number, _, _ in bindings] == list(range(len(kernel.access)))
    modes = {Access.READ: "read", Access.WRITE: "read_write", Access.READ_WRITE: "read_write"}
    assert [mode for _, mode, _ in bindings] == [modes[access] for access in kernel.access]
    assert "params:" not in source
    words = [
        4 * int(row) + int(place) for row, place in re.findall(r"params\[(\d+)\]\[(\d)\]", source)
    ]
    assert max(words) < kernel.params_words
    assert "params[" not in re.sub(r"params\[\d+\]\[\d\]", "", source)


@pytest.mark.parametrize("kernel", _KERNELS, ids=lambda kernel: kernel.name)
def test_names_say_the_operation_and_are_unique(kernel: Kernel) -> None:
    assert [other.name for other in _KERNELS].count(kernel.name) == 1
    most = 1024 if kernel.name.startswith("rows_") else 256
    assert kernel.workgroup_size[0] <= most and kernel.workgroup_size[1:] == (1, 1)


def test_features_follow_the_types() -> None:
    wide = Program((Load(dt.float64, LoadForm.QUAD),), (), (Result(0, dt.float32),))
    assert elementwise_kernel(wide, 1, True).features == {"shader-f64", "shader-int64"}
    plain = Program((Load(dt.float16, LoadForm.QUAD),), (), (Result(0, dt.complex64),))
    assert elementwise_kernel(plain, 1, True).features == frozenset()


def test_no_loop_runs_longer_than_a_software_adapter_lets_it() -> None:
    assert MAX_CHUNK // BLOCK <= LONGEST_LOOP and BLOCK // CHAIN <= LONGEST_LOOP
    assert MAX_CHUNK // (ReductionShape().unroll * 64) <= LONGEST_LOOP
    longest_k = 2**31 // min(tile.depth for tile in (SMALL, MIDDLE, LARGE))
    assert INNER_SLICES <= LONGEST_LOOP and longest_k // INNER_SLICES <= LONGEST_LOOP
