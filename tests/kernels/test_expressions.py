"""The tables of expressions are whole: whatever the operation table allows is there, or is known to
run on the host, and calls only functions that exist."""

from __future__ import annotations

import re

import pytest

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import ALL_DTYPES, DType, Kind
from gpuwire.kernels.expressions import (
    OF_EACH_OPERAND,
    apply_expression,
    convert,
    cut_to_width,
    has_expression,
)
from gpuwire.kernels.library import defines
from gpuwire.lowering.host_operations import runs_on_host
from operation_cases import elementwise_pairs

_BUILTINS = {"abs", "bitcast", "ceil", "clamp", "extractBits", "floor", "select", "trunc"}
_BUILTINS |= {"u32", "i32", "u64", "i64", "f32", "f64", "vec2"}


def _called(expression: str) -> set[str]:
    return set(re.findall(r"\b([A-Za-z_]\w*)(?:<\w+>)?\(", expression)) - _BUILTINS


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_every_operation_is_expressed_or_left_to_the_host(dtype: DType) -> None:
    operations = [pair[0] for pair in elementwise_pairs([dtype])]
    assert operations
    for definition in operations:
        compute = dt.bool_ if definition.name in OF_EACH_OPERAND else dtype
        on_device = has_expression(definition.name, compute)
        assert on_device != runs_on_host(definition.name, compute), definition
        if on_device:
            written = apply_expression(definition.name, compute, ["x", "y"])
            missing = {name for name in _called(written) if not defines(name)}
            assert not missing, f"{definition.name} of {dtype} calls {missing}"


@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_every_conversion_calls_what_exists(source: DType) -> None:
    for target in ALL_DTYPES:
        if source.kind is Kind.COMPLEX and target.kind not in (Kind.COMPLEX, Kind.BOOL):
            continue
        missing = {name for name in _called(convert("x", source, target)) if not defines(name)}
        assert not missing, f"{source} to {target} calls {missing}"


def test_narrow_integers_are_cut() -> None:
    assert cut_to_width("x", dt.int32) == "x"
    assert cut_to_width("x", dt.uint16) == "((x) & 0xffffu)"
    assert apply_expression("add", dt.int8, ["x", "y"]) == "extractBits(x + y, 0u, 8u)"
    assert apply_expression("maximum", dt.int8, ["x", "y"]) == "select(y, x, x > y)"
