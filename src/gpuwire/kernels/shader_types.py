"""How each data type lies in a storage buffer and in a kernel's registers.

Buffers hold NumPy's layout. Types narrower than a word are read by cutting them out of u32 words,
and written a whole word at a time, so that an invocation never touches a neighbour's bytes.
float16 is computed in f32 and rounded at the end, which is what NumPy does; the conversion is
`pack2x16float`, which rounds to nearest even on every adapter tried, while `f16()` may not round
at all inside a kernel.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind, PythonScalar

QUAD = 4
"""Elements that one invocation of a vectorised kernel computes."""


@dataclass(frozen=True, slots=True)
class ShaderType:
    """One data type in WGSL."""

    dtype: DType
    value: str
    """Its type in registers."""
    storage: str
    """The element type of a buffer that is addressed by single elements, or by words of them."""
    per_word: int
    """Elements in one u32 word; 1 where an element fills a word or more."""
    quad_storage: str
    """The element type of a buffer that is addressed by four elements at once."""
    quad_units: int
    """How many of those make four elements."""
    suffix: str
    """What the library's function names end in."""
    features: frozenset[str]
    """wgpu features that the type needs."""

    def load(self, buffer: str, index: str) -> str:
        """The element at an index (a u32 expression without side effects)."""
        if self.per_word == 4:
            return self._cut(f"({buffer}[({index}) >> 2u] >> ((({index}) & 3u) << 3u))")
        if self.per_word == 2:
            return self._cut(f"({buffer}[({index}) >> 1u] >> ((({index}) & 1u) << 4u))")
        return f"{buffer}[{index}]"

    def load_quad(self, buffer: str, group: str, prefix: str) -> tuple[list[str], list[str]]:
        """Statements that read four elements, elements `4 * group` on, and their four values.
        Names that the statements bind begin with `prefix`."""
        units = [f"{prefix}_{unit}" for unit in range(self.quad_units)]
        scale = f"({group}) * {self.quad_units}u + " if self.quad_units > 1 else ""
        if scale:
            lines = [f"let {name} = {buffer}[{scale}{i}u];" for i, name in enumerate(units)]
        else:
            lines = [f"let {units[0]} = {buffer}[{group}];"]
        return lines, [self._of_quad(units, element) for element in range(QUAD)]

    def store_quad(self, buffer: str, group: str, values: Sequence[str]) -> list[str]:
        """Statements that write four elements, elements `4 * group` on."""
        if self.per_word == 4:
            return [f"{buffer}[{group}] = {self.word(values)};"]
        if self.per_word == 2:
            words = f"{self.word(values[:2])}, {self.word(values[2:])}"
            return [f"{buffer}[{group}] = vec2<u32>({words});"]
        each = QUAD // self.quad_units
        return [
            f"{buffer}[({group}) * {self.quad_units}u + {unit}u] = "
            f"{self.quad_storage}({', '.join(values[unit * each : (unit + 1) * each])});"
            if each > 1
            else f"{buffer}[({group}) * {self.quad_units}u + {unit}u] = {values[unit]};"
            for unit in range(self.quad_units)
        ]

    def word(self, values: Sequence[str]) -> str:
        """The storage of `per_word` elements that make one word, or of the one element."""
        if self.per_word == 1:
            return values[0]
        if self.dtype is dt.float16:
            return f"pack2x16float(vec2<f32>({values[0]}, {values[1]}))"
        bits = 32 // self.per_word
        mask = f"0x{(1 << bits) - 1:x}u"
        return " | ".join(
            f"(({self._as_bits(value)} & {mask}) << {bits * place}u)"
            for place, value in enumerate(values)
        )

    def part_of_word(self, value: str, place: str) -> str:
        """The bits of one element at its place in a word, the others 0; only where several
        elements make a word."""
        bits = 32 // self.per_word
        if self.dtype is dt.float16:
            packed = f"(pack2x16float(vec2<f32>({value}, 0.0)) & 0xffffu)"
        else:
            packed = f"({self._as_bits(value)} & 0x{(1 << bits) - 1:x}u)"
        return f"{packed} << ({place} * {bits}u)"

    def parameter(self, word: int) -> str:
        """The value of a scalar whose parameter words begin at `word`; see `encode_scalar`."""
        words = [
            f"params[{(word + i) // 4}][{(word + i) % 4}]" for i in range(self.parameter_words)
        ]
        match self.value:
            case "bool":
                return f"({words[0]} != 0u)"
            case "u32":
                return words[0]
            case "i32" | "f32":
                return f"bitcast<{self.value}>({words[0]})"
            case "vec2<f32>":
                return f"vec2<f32>(bitcast<f32>({words[0]}), bitcast<f32>({words[1]}))"
            case "vec2<f64>":
                return f"vec2<f64>({_wide('f64', words[:2])}, {_wide('f64', words[2:])})"
        return _wide(self.value, words)

    @property
    def parameter_words(self) -> int:
        """32-bit words of a scalar parameter."""
        return max(1, self.dtype.itemsize // 4)

    def _cut(self, shifted: str) -> str:
        """An element from a word whose lowest bits it fills."""
        match self.dtype.kind:
            case Kind.BOOL:
                return f"(({shifted} & 0xffu) != 0u)"
            case Kind.FLOAT:
                return f"unpack2x16float({shifted}).x"
            case Kind.SIGNED:
                return f"extractBits(bitcast<i32>({shifted}), 0u, {32 // self.per_word}u)"
        return f"({shifted} & 0x{(1 << (32 // self.per_word)) - 1:x}u)"

    def _of_quad(self, units: Sequence[str], element: int) -> str:
        if self.per_word == 4:
            return self._cut(f"({units[0]} >> {8 * element}u)")
        if self.per_word == 2:
            return self._cut(f"({units[0]}[{element // 2}] >> {16 * (element % 2)}u)")
        each = QUAD // self.quad_units
        name, place = units[element // each], element % each
        if self.dtype is dt.complex64:
            return f"{name}.{('xy', 'zw')[place]}"
        return f"{name}[{place}]" if each > 1 else name

    def _as_bits(self, value: str) -> str:
        if self.dtype.kind is Kind.BOOL:
            return f"select(0u, 1u, {value})"
        return value if self.value == "u32" else f"bitcast<u32>({value})"


def _wide(value: str, words: Sequence[str]) -> str:
    """Two words as one 64-bit value."""
    joined = f"(u64({words[0]}) | (u64({words[1]}) << 32u))"
    return joined if value == "u64" else f"bitcast<{value}>({joined})"


@cache
def shader_type(dtype: DType) -> ShaderType:
    """The WGSL side of a data type."""

    def of(
        value: str, storage: str, quad_storage: str, units: int, suffix: str, *needs: str
    ) -> ShaderType:
        per_word = max(1, 4 // dtype.itemsize)
        return ShaderType(
            dtype, value, storage, per_word, quad_storage, units, suffix, frozenset(needs)
        )

    name = dtype.name
    if dtype.itemsize == 1:
        value = {Kind.BOOL: "bool", Kind.SIGNED: "i32", Kind.UNSIGNED: "u32"}[dtype.kind]
        return of(value, "u32", "u32", 1, value)
    if dtype.itemsize == 2:
        value = {Kind.FLOAT: "f32", Kind.SIGNED: "i32", Kind.UNSIGNED: "u32"}[dtype.kind]
        return of(value, "u32", "vec2<u32>", 1, value)
    if dtype.itemsize == 4:
        value = {Kind.FLOAT: "f32", Kind.SIGNED: "i32", Kind.UNSIGNED: "u32"}[dtype.kind]
        return of(value, value, f"vec4<{value}>", 1, value)
    if dtype is dt.complex64:
        return of("vec2<f32>", "vec2<f32>", "vec4<f32>", 2, name)
    if dtype is dt.complex128:
        return of("vec2<f64>", "vec2<f64>", "vec2<f64>", 4, name, "shader-f64", "shader-int64")
    if dtype is dt.float64:
        return of("f64", "f64", "vec2<f64>", 2, "f64", "shader-f64", "shader-int64")
    value = "i64" if dtype is dt.int64 else "u64"
    return of(value, value, f"vec2<{value}>", 2, value, "shader-int64")


def encode_scalar(value: PythonScalar, dtype: DType) -> bytes:
    """A scalar as parameter words, as `ShaderType.parameter` reads them: bool and integers of up
    to 32 bits fill one word, float16 is widened to f32, 64-bit types take two words, complex128
    four. Integers wrap to their type's width; floats beyond it become infinite."""
    if isinstance(value, complex) or dtype.kind is Kind.COMPLEX:
        number = complex(value)
        form = _FLOAT_FORMS[dt.real_of(dtype).itemsize]
        return _pack_float(form, number.real) + _pack_float(form, number.imag)
    if dtype.kind is Kind.FLOAT:
        if dtype is dt.float16:
            (value,) = struct.unpack("<e", _pack_float("<e", value))
            return struct.pack("<f", value)
        return _pack_float(_FLOAT_FORMS[dtype.itemsize], value)
    if dtype.kind is Kind.BOOL:
        return struct.pack("<I", bool(value))
    bits = 8 * dtype.itemsize
    number_bits = int(value) & ((1 << bits) - 1)
    if dtype.kind is Kind.SIGNED and bits < 32 and number_bits >> (bits - 1):
        number_bits += (1 << 32) - (1 << bits)
    return number_bits.to_bytes(max(4, dtype.itemsize), "little")


_FLOAT_FORMS = {2: "<e", 4: "<f", 8: "<d"}


def _pack_float(form: str, value: float) -> bytes:
    try:
        return struct.pack(form, value)
    except OverflowError:
        return struct.pack(form, math.copysign(math.inf, value))
