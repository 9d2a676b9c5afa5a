"""The elementwise operations as WGSL expressions.

One table for each family of data types. In a template `$a`, `$b` and `$c` are operands in
registers, of the type the operation computes in; `$T` is the library's suffix for that type and
`$V` its register type. A name that a table lacks is an operation the device does not do in that
family: lowering runs it on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.shader_types import shader_type

_BOOL = {
    "bitwise_invert": "!$a",
    "bitwise_and": "$a && $b",
    "bitwise_or": "$a || $b",
    "bitwise_xor": "$a != $b",
    "equal": "$a == $b",
    "not_equal": "$a != $b",
    "less": "!$a && $b",
    "less_equal": "!$a || $b",
    "greater": "$a && !$b",
    "greater_equal": "$a || !$b",
    "logical_not": "!$a",
    "logical_and": "$a && $b",
    "logical_or": "$a || $b",
    "logical_xor": "$a != $b",
    "maximum": "$a || $b",
    "minimum": "$a && $b",
}

_INTEGER = {
    "abs": "abs_$T($a)",
    "add": "$a + $b",
    "bitwise_and": "$a & $b",
    "bitwise_invert": "~$a",
    "bitwise_left_shift": "shift_left_$T($a, $b, ${bits}u)",
    "bitwise_or": "$a | $b",
    "bitwise_right_shift": "shift_right_$T($a, $b, ${bits}u)",
    "bitwise_xor": "$a ^ $b",
    "ceil": "$a",
    "conj": "$a",
    "equal": "$a == $b",
    "floor": "$a",
    "floor_divide": "floor_divide_$T($a, $b)",
    "greater": "$a > $b",
    "greater_equal": "$a >= $b",
    "isfinite": "true",
    "isinf": "false",
    "isnan": "false",
    "less": "$a < $b",
    "less_equal": "$a <= $b",
    "maximum": "select($b, $a, $a > $b)",
    "minimum": "select($b, $a, $a < $b)",
    "multiply": "$a * $b",
    "negative": "$V(0) - $a",
    "not_equal": "$a != $b",
    "positive": "$a",
    "pow": "pow_$T($a, $b)",
    "real": "$a",
    "remainder": "remainder_$T($a, $b)",
    "round": "$a",
    "sign": "sign_$T($a)",
    "square": "$a * $a",
    "subtract": "$a - $b",
    "trunc": "$a",
}

_FLOAT = {
    "abs": "abs_$T($a)",
    "acos": "acos_$T($a)",
    "acosh": "acosh_$T($a)",
    "add": "$a + $b",
    "asin": "asin_$T($a)",
    "asinh": "asinh_$T($a)",
    "atan": "atan_$T($a)",
    "atan2": "atan2_$T($a, $b)",
    "atanh": "atanh_$T($a)",
    "ceil": "ceil($a)",
    "conj": "$a",
    "copysign": "copysign_$T($a, $b)",
    "cos": "cos_$T($a)",
    "cosh": "cosh_$T($a)",
    "divide": "divide_$T($a, $b)",
    "equal": "equal_$T($a, $b)",
    "exp": "exp_$T($a)",
    "expm1": "expm1_$T($a)",
    "floor": "floor($a)",
    "floor_divide": "floor_divide_$T($a, $b)",
    "greater": "less_$T($b, $a)",
    "greater_equal": "less_equal_$T($b, $a)",
    "hypot": "hypot_$T($a, $b)",
    "isfinite": "is_finite_$T($a)",
    "isinf": "is_inf_$T($a)",
    "isnan": "is_nan_$T($a)",
    "less": "less_$T($a, $b)",
    "less_equal": "less_equal_$T($a, $b)",
    "log": "log_$T($a)",
    "log10": "log10_$T($a)",
    "log1p": "log1p_$T($a)",
    "log2": "log2_$T($a)",
    "logaddexp": "logaddexp_$T($a, $b)",
    "maximum": "maximum_$T($a, $b)",
    "minimum": "minimum_$T($a, $b)",
    "multiply": "$a * $b",
    "negative": "negate_$T($a)",
    "nextafter": "nextafter_$T($a, $b)",
    "not_equal": "!equal_$T($a, $b)",
    "positive": "$a",
    "pow": "pow_$T($a, $b)",
    "real": "$a",
    "reciprocal": "divide_$T($V(1.0), $a)",
    "remainder": "remainder_$T($a, $b)",
    "round": "round_to_even_$T($a)",
    "sign": "sign_$T($a)",
    "signbit": "sign_bit_$T($a)",
    "sin": "sin_$T($a)",
    "sinh": "sinh_$T($a)",
    "sqrt": "sqrt_$T($a)",
    "square": "$a * $a",
    "subtract": "$a - $b",
    "tan": "tan_$T($a)",
    "tanh": "tanh_$T($a)",
    "trunc": "trunc($a)",
}

_COMPLEX = {
    "abs": "abs_$T($a)",
    "add": "$a + $b",
    "conj": "conj_$T($a)",
    "divide": "divide_$T($a, $b)",
    "equal": "equal_$T($a, $b)",
    "exp": "exp_$T($a)",
    "imag": "$a.y",
    "isfinite": "is_finite_$T($a)",
    "isinf": "is_inf_$T($a)",
    "isnan": "is_nan_$T($a)",
    "log": "log_$T($a)",
    "multiply": "multiply_$T($a, $b)",
    "negative": "negate_$T($a)",
    "not_equal": "!equal_$T($a, $b)",
    "positive": "$a",
    "real": "$a.x",
    "reciprocal": "reciprocal_$T($a)",
    "round": "round_to_even_$T($a)",
    "sign": "sign_$T($a)",
    "sqrt": "sqrt_$T($a)",
    "square": "multiply_$T($a, $a)",
    "subtract": "$a - $b",
}

_FAMILIES = {
    Kind.BOOL: _BOOL,
    Kind.SIGNED: _INTEGER,
    Kind.UNSIGNED: _INTEGER,
    Kind.FLOAT: _FLOAT,
    Kind.COMPLEX: _COMPLEX,
}

_OUTGROWS = frozenset(
    {
        "abs",
        "add",
        "bitwise_invert",
        "bitwise_left_shift",
        "floor_divide",
        "multiply",
        "negative",
        "pow",
        "square",
        "subtract",
    }
)
"""Operations whose result may need more bits than its narrow integer type has."""

OF_EACH_OPERAND = frozenset({"logical_not", "logical_and", "logical_or", "logical_xor"})
"""Operations that compute in bool, whatever their operands are."""


def has_expression(operation: str, compute: DType) -> bool:
    """Whether the device does the elementwise operation in that type."""
    return operation in ("cast", "where") or operation in _FAMILIES[compute.kind]


def apply_expression(operation: str, compute: DType, operands: Sequence[str]) -> str:
    """An elementwise operation on operands in registers, each of type `compute` (`where`: bool,
    then two of type `compute`). The result is a value of the operation's result type."""
    if operation == "cast":
        return operands[0]
    if operation == "where":
        return f"select({operands[2]}, {operands[1]}, {operands[0]})"
    types = shader_type(compute)
    if compute is dt.float16 and operation == "nextafter":
        return f"nextafter_f16({operands[0]}, {operands[1]})"
    names = dict(zip("abc", operands, strict=False))
    written = Template(_FAMILIES[compute.kind][operation]).substitute(
        names, T=types.suffix, V=types.value, bits=8 * compute.itemsize
    )
    if operation in _OUTGROWS:
        return cut_to_width(written, compute)
    return written


def cut_to_width(value: str, dtype: DType) -> str:
    """A 32-bit register's value wrapped to a narrower integer type."""
    if not dtype.is_integer or dtype.itemsize >= 4:
        return value
    bits = 8 * dtype.itemsize
    if dtype.kind is Kind.SIGNED:
        return f"extractBits({value}, 0u, {bits}u)"
    return f"(({value}) & 0x{(1 << bits) - 1:x}u)"


def convert(value: str, source: DType, target: DType) -> str:
    """A register's value in another type, as NumPy's `astype`: integers wrap, floats to integers
    truncate and stay at the nearest end of the range, NaN becomes 0; anything but 0 is true."""
    if source is target:
        return value
    have, want = shader_type(source), shader_type(target)
    if target.kind is Kind.BOOL:
        return _to_bool(value, source)
    if target.kind is Kind.COMPLEX:
        part = dt.real_of(target)
        if source.kind is Kind.COMPLEX:
            return f"{want.value}({value})"
        return f"{want.value}({convert(value, source, part)}, {shader_type(part).value}(0.0))"
    if source.kind is Kind.BOOL:
        return f"select({want.value}(0), {want.value}(1), {value})"
    if target.kind is Kind.FLOAT:
        if target is dt.float16 and source is not dt.float16:
            return f"round_to_f16({_as(value, have.value, 'f32')})"
        return _as(value, have.value, want.value)
    if source.kind is Kind.FLOAT:
        return _float_to_integer(value, source, target)
    return cut_to_width(_as(value, have.value, want.value), target)


def _as(value: str, have: str, want: str) -> str:
    if have == want:
        return value
    if {have, want} == {"i32", "u32"} or {have, want} == {"i64", "u64"}:
        return f"bitcast<{want}>({value})"
    if have in ("i64", "u64") and want in ("i32", "u32"):
        # A plain conversion clamps on some compilers.
        low = (
            f"u32(bitcast<u64>({value}) & 0xfffffffflu)"
            if have == "i64"
            else f"u32({value} & 0xfffffffflu)"
        )
        return low if want == "u32" else f"bitcast<i32>({low})"
    if (have, want) in (("u32", "i64"), ("i32", "u64")):
        # A plain conversion extends by the target's sign, not the source's.
        return f"bitcast<{want}>({have[0]}64({value}))"
    return f"{want}({value})"


def _to_bool(value: str, source: DType) -> str:
    types = shader_type(source)
    if source.kind is Kind.FLOAT or source.kind is Kind.COMPLEX:
        return f"!is_zero_{types.suffix}({value})"
    return f"({value} != {types.value}(0))"


def _float_to_integer(value: str, source: DType, target: DType) -> str:
    want = shader_type(target)
    whole = f"{want.value}_of_{shader_type(source).suffix}({value})"
    if target.itemsize >= 4:
        return whole
    top = (1 << (8 * target.itemsize - (target.kind is Kind.SIGNED))) - 1
    bottom = -top - 1 if target.kind is Kind.SIGNED else 0
    mark = "" if want.value == "i32" else "u"
    return f"clamp({whole}, {bottom}{mark}, {top}{mark})"
