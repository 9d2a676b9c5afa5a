"""A kernel carries the definitions it uses, and only those."""

from __future__ import annotations

import re

from gpuwire.kernels.library import defines, definitions_for


def _names(text: str) -> set[str]:
    return set(re.findall(r"^(?:fn|const|struct)\s+(\w+)", text, re.MULTILINE))


def test_definitions_come_with_what_they_use() -> None:
    names = _names(definitions_for("let y = tanh_f32(x);"))
    assert {"tanh_f32", "expm1_f32", "exp_scaled_f32", "scale_f32", "is_nan_f32"} <= names
    assert not {"sin_f32", "log_f32", "tanh_f64"} & names
    assert {"TWO_OVER_PI", "Reduced_f32"} <= _names(definitions_for("sin_f32(x)"))


def test_what_uses_nothing_carries_nothing() -> None:
    assert definitions_for("let y = x + 1.0; // my_sin_f32 is another name") == ""


def test_templates_are_written_for_each_type() -> None:
    assert all(
        defines(f"floor_divide_{name}") for name in ("i32", "u32", "i64", "u64", "f32", "f64")
    )
    assert defines("sqrt_complex64") and defines("sqrt_complex128")
    assert "$" not in definitions_for("sqrt_complex128(x) + pow_u64(a, b)")
    assert "//" not in definitions_for("sin_f32(x)")
