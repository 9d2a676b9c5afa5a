"""Functions of each element (Array API standard, "Element-wise functions").

Two arrays broadcast and promote; a Python number takes the array's type. One of two partners
must be an array, both of the same device. The functions of calculus (`sqrt`, `sin`, `exp`, …) and
true division take integers and booleans as the default float, as NumPy does; other functions
refuse what the standard leaves out. All raise `DTypeError`, `ShapeError`, `DeviceMismatch` and
`DeviceClosed` at the call; nothing waits.
"""

from __future__ import annotations

from gpuwire.array.array_object import Array
from gpuwire.array.operators import check_exponent
from gpuwire.array.recording import (
    binary,
    binary_floating,
    expect_arrays,
    foreign,
    own,
    unary,
    unary_floating,
)
from gpuwire.ir.operations import OPERATIONS, OpDef

Number = bool | int | float | complex


_ABS = OPERATIONS["abs"]
_ACOS = OPERATIONS["acos"]
_ACOSH = OPERATIONS["acosh"]
_ADD = OPERATIONS["add"]
_ASIN = OPERATIONS["asin"]
_ASINH = OPERATIONS["asinh"]
_ATAN = OPERATIONS["atan"]
_ATAN2 = OPERATIONS["atan2"]
_ATANH = OPERATIONS["atanh"]
_BITWISE_AND = OPERATIONS["bitwise_and"]
_BITWISE_INVERT = OPERATIONS["bitwise_invert"]
_BITWISE_LEFT_SHIFT = OPERATIONS["bitwise_left_shift"]
_BITWISE_OR = OPERATIONS["bitwise_or"]
_BITWISE_RIGHT_SHIFT = OPERATIONS["bitwise_right_shift"]
_BITWISE_XOR = OPERATIONS["bitwise_xor"]
_CEIL = OPERATIONS["ceil"]
_CONJ = OPERATIONS["conj"]
_COPYSIGN = OPERATIONS["copysign"]
_COS = OPERATIONS["cos"]
_COSH = OPERATIONS["cosh"]
_DIVIDE = OPERATIONS["divide"]
_EQUAL = OPERATIONS["equal"]
_EXP = OPERATIONS["exp"]
_EXPM1 = OPERATIONS["expm1"]
_FLOOR = OPERATIONS["floor"]
_FLOOR_DIVIDE = OPERATIONS["floor_divide"]
_GREATER = OPERATIONS["greater"]
_GREATER_EQUAL = OPERATIONS["greater_equal"]
_HYPOT = OPERATIONS["hypot"]
_IMAG = OPERATIONS["imag"]
_ISFINITE = OPERATIONS["isfinite"]
_ISINF = OPERATIONS["isinf"]
_ISNAN = OPERATIONS["isnan"]
_LESS = OPERATIONS["less"]
_LESS_EQUAL = OPERATIONS["less_equal"]
_LOG = OPERATIONS["log"]
_LOG10 = OPERATIONS["log10"]
_LOG1P = OPERATIONS["log1p"]
_LOG2 = OPERATIONS["log2"]
_LOGADDEXP = OPERATIONS["logaddexp"]
_LOGICAL_AND = OPERATIONS["logical_and"]
_LOGICAL_NOT = OPERATIONS["logical_not"]
_LOGICAL_OR = OPERATIONS["logical_or"]
_LOGICAL_XOR = OPERATIONS["logical_xor"]
_MAXIMUM = OPERATIONS["maximum"]
_MINIMUM = OPERATIONS["minimum"]
_MULTIPLY = OPERATIONS["multiply"]
_NEGATIVE = OPERATIONS["negative"]
_NEXTAFTER = OPERATIONS["nextafter"]
_NOT_EQUAL = OPERATIONS["not_equal"]
_POSITIVE = OPERATIONS["positive"]
_POW = OPERATIONS["pow"]
_REAL = OPERATIONS["real"]
_RECIPROCAL = OPERATIONS["reciprocal"]
_REMAINDER = OPERATIONS["remainder"]
_ROUND = OPERATIONS["round"]
_SIGN = OPERATIONS["sign"]
_SIGNBIT = OPERATIONS["signbit"]
_SIN = OPERATIONS["sin"]
_SINH = OPERATIONS["sinh"]
_SQRT = OPERATIONS["sqrt"]
_SQUARE = OPERATIONS["square"]
_SUBTRACT = OPERATIONS["subtract"]
_TAN = OPERATIONS["tan"]
_TANH = OPERATIONS["tanh"]
_TRUNC = OPERATIONS["trunc"]


def abs(x: Array, /) -> Array:
    """The absolute value of numbers; of complex ones the magnitude, a real number."""
    return _unary(_ABS, x)


def acos(x: Array, /) -> Array:
    """The inverse cosine, in radians from 0 to π."""
    return _unary_floating(_ACOS, x)


def acosh(x: Array, /) -> Array:
    """The inverse hyperbolic cosine."""
    return _unary_floating(_ACOSH, x)


def add(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 + x2."""
    return _binary(_ADD, x1, x2)


def asin(x: Array, /) -> Array:
    """The inverse sine, in radians from -π/2 to π/2."""
    return _unary_floating(_ASIN, x)


def asinh(x: Array, /) -> Array:
    """The inverse hyperbolic sine."""
    return _unary_floating(_ASINH, x)


def atan(x: Array, /) -> Array:
    """The inverse tangent, in radians from -π/2 to π/2."""
    return _unary_floating(_ATAN, x)


def atan2(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The angle of the point (x2, x1) in radians, from -π to π; real numbers."""
    return _floating(_ATAN2, x1, x2)


def atanh(x: Array, /) -> Array:
    """The inverse hyperbolic tangent."""
    return _unary_floating(_ATANH, x)


def bitwise_and(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Bits set in both; integers or booleans."""
    return _binary(_BITWISE_AND, x1, x2)


def bitwise_invert(x: Array, /) -> Array:
    """Each bit the other way; of booleans, not. Integers and booleans only."""
    return _unary(_BITWISE_INVERT, x)


def bitwise_left_shift(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 shifted left by x2 bits; integers, x2 from 0 below x1's width."""
    return _binary(_BITWISE_LEFT_SHIFT, x1, x2)


def bitwise_or(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Bits set in either; integers or booleans."""
    return _binary(_BITWISE_OR, x1, x2)


def bitwise_right_shift(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 shifted right by x2 bits, keeping its sign; integers."""
    return _binary(_BITWISE_RIGHT_SHIFT, x1, x2)


def bitwise_xor(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Bits set in exactly one; integers or booleans."""
    return _binary(_BITWISE_XOR, x1, x2)


def ceil(x: Array, /) -> Array:
    """The least integer not below each real number, in the same type."""
    return _unary(_CEIL, x)


def clip(
    x: Array, /, min: Array | Number | None = None, max: Array | Number | None = None
) -> Array:
    """Each real number, but not below `min` nor above `max`, which broadcast; None is no bound.

    Where the bounds cross, the result is `max`.
    """
    expect_arrays("clip", x)
    result = x if min is None else binary(_MAXIMUM, x, min)
    return own(result if max is None else binary(_MINIMUM, result, max), x)


def conj(x: Array, /) -> Array:
    """The complex conjugate; real numbers are their own."""
    return _unary(_CONJ, x)


def copysign(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The magnitude of x1 with the sign of x2; real numbers."""
    return _floating(_COPYSIGN, x1, x2)


def cos(x: Array, /) -> Array:
    """The cosine of angles in radians."""
    return _unary_floating(_COS, x)


def cosh(x: Array, /) -> Array:
    """The hyperbolic cosine."""
    return _unary_floating(_COSH, x)


def divide(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 / x2; two integers give the default float."""
    return _floating(_DIVIDE, x1, x2)


def equal(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 == x2; booleans out."""
    return _binary(_EQUAL, x1, x2)


def exp(x: Array, /) -> Array:
    """e to the power of each element."""
    return _unary_floating(_EXP, x)


def expm1(x: Array, /) -> Array:
    """exp(x) - 1, exact to the type's precision near 0."""
    return _unary_floating(_EXPM1, x)


def floor(x: Array, /) -> Array:
    """The greatest integer not above each real number, in the same type."""
    return _unary(_FLOOR, x)


def floor_divide(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The greatest integer not above x1 / x2, in the promoted type; real numbers."""
    return _binary(_FLOOR_DIVIDE, x1, x2)


def greater(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 > x2; real numbers in, booleans out."""
    return _binary(_GREATER, x1, x2)


def greater_equal(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 >= x2; real numbers in, booleans out."""
    return _binary(_GREATER_EQUAL, x1, x2)


def hypot(x1: Array | Number, x2: Array | Number, /) -> Array:
    """sqrt(x1² + x2²); real numbers."""
    return _floating(_HYPOT, x1, x2)


def imag(x: Array, /) -> Array:
    """The imaginary part of complex numbers; `DTypeError` for others."""
    return _unary(_IMAG, x)


def isfinite(x: Array, /) -> Array:
    """Whether each number is neither infinite nor NaN; booleans out."""
    return _unary(_ISFINITE, x)


def isinf(x: Array, /) -> Array:
    """Whether each number is infinite, of either sign; booleans out."""
    return _unary(_ISINF, x)


def isnan(x: Array, /) -> Array:
    """Whether each number is NaN; booleans out."""
    return _unary(_ISNAN, x)


def less(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 < x2; real numbers in, booleans out."""
    return _binary(_LESS, x1, x2)


def less_equal(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 <= x2; real numbers in, booleans out."""
    return _binary(_LESS_EQUAL, x1, x2)


def log(x: Array, /) -> Array:
    """The natural logarithm."""
    return _unary_floating(_LOG, x)


def log10(x: Array, /) -> Array:
    """The logarithm to base 10."""
    return _unary_floating(_LOG10, x)


def log1p(x: Array, /) -> Array:
    """log(1 + x), exact to the type's precision near 0."""
    return _unary_floating(_LOG1P, x)


def log2(x: Array, /) -> Array:
    """The logarithm to base 2."""
    return _unary_floating(_LOG2, x)


def logaddexp(x1: Array | Number, x2: Array | Number, /) -> Array:
    """log(exp(x1) + exp(x2)) without overflow; real numbers."""
    return _floating(_LOGADDEXP, x1, x2)


def logical_and(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Whether both are true (not zero); booleans out."""
    return _binary(_LOGICAL_AND, x1, x2)


def logical_not(x: Array, /) -> Array:
    """Whether each element is zero or False; booleans out."""
    return _unary(_LOGICAL_NOT, x)


def logical_or(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Whether either is true (not zero); booleans out."""
    return _binary(_LOGICAL_OR, x1, x2)


def logical_xor(x1: Array | Number, x2: Array | Number, /) -> Array:
    """Whether exactly one is true (not zero); booleans out."""
    return _binary(_LOGICAL_XOR, x1, x2)


def maximum(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The larger of both, NaN where either is; real numbers."""
    return _binary(_MAXIMUM, x1, x2)


def minimum(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The smaller of both, NaN where either is; real numbers."""
    return _binary(_MINIMUM, x1, x2)


def multiply(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 * x2."""
    return _binary(_MULTIPLY, x1, x2)


def negative(x: Array, /) -> Array:
    """Each number with the other sign; unsigned integers wrap."""
    return _unary(_NEGATIVE, x)


def nextafter(x1: Array | Number, x2: Array | Number, /) -> Array:
    """The next number of the type from x1 towards x2; real numbers."""
    return _floating(_NEXTAFTER, x1, x2)


def not_equal(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 != x2; booleans out."""
    return _binary(_NOT_EQUAL, x1, x2)


def positive(x: Array, /) -> Array:
    """Each number as it is."""
    return _unary(_POSITIVE, x)


def pow(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 to the power x2; integers have no negative powers."""
    return _power(_POW, x1, x2)


def real(x: Array, /) -> Array:
    """The real part; real numbers are their own."""
    return _unary(_REAL, x)


def reciprocal(x: Array, /) -> Array:
    """1 / x."""
    return _unary_floating(_RECIPROCAL, x)


def remainder(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 - floor(x1 / x2) * x2, with the sign of x2; real numbers."""
    return _binary(_REMAINDER, x1, x2)


def round(x: Array, /) -> Array:
    """The nearest integer in the same type; halves go to the even one."""
    return _unary(_ROUND, x)


def sign(x: Array, /) -> Array:
    """-1, 0 or 1 by each number's sign; complex ones divided by their magnitude."""
    return _unary(_SIGN, x)


def signbit(x: Array, /) -> Array:
    """Whether the sign bit of real floating-point numbers is set, -0.0 included."""
    return _unary_floating(_SIGNBIT, x)


def sin(x: Array, /) -> Array:
    """The sine of angles in radians."""
    return _unary_floating(_SIN, x)


def sinh(x: Array, /) -> Array:
    """The hyperbolic sine."""
    return _unary_floating(_SINH, x)


def sqrt(x: Array, /) -> Array:
    """The square root; NaN below 0."""
    return _unary_floating(_SQRT, x)


def square(x: Array, /) -> Array:
    """x * x."""
    return _unary(_SQUARE, x)


def subtract(x1: Array | Number, x2: Array | Number, /) -> Array:
    """x1 - x2."""
    return _binary(_SUBTRACT, x1, x2)


def tan(x: Array, /) -> Array:
    """The tangent of angles in radians."""
    return _unary_floating(_TAN, x)


def tanh(x: Array, /) -> Array:
    """The hyperbolic tangent."""
    return _unary_floating(_TANH, x)


def trunc(x: Array, /) -> Array:
    """Each real number without its fraction, in the same type."""
    return _unary(_TRUNC, x)


def _unary(definition: OpDef, x: Array) -> Array:
    if x.__class__ is not Array:
        expect_arrays(definition.name, x)
    return unary(definition, x)


def _unary_floating(definition: OpDef, x: Array) -> Array:
    if x.__class__ is not Array:
        expect_arrays(definition.name, x)
    return unary_floating(definition, x)


def _binary(definition: OpDef, x1: Array | Number, x2: Array | Number) -> Array:
    if isinstance(x1, Array):
        return binary(definition, x1, x2)
    if isinstance(x2, Array):
        return binary(definition, x2, x1, reflected=True)
    raise foreign(definition.name, x1)


def _floating(definition: OpDef, x1: Array | Number, x2: Array | Number) -> Array:
    if isinstance(x1, Array):
        return binary_floating(definition, x1, x2)
    if isinstance(x2, Array):
        return binary_floating(definition, x2, x1, reflected=True)
    raise foreign(definition.name, x1)


def _power(definition: OpDef, x1: Array | Number, x2: Array | Number) -> Array:
    if isinstance(x1, Array):
        check_exponent(x1, x2)
    return _binary(definition, x1, x2)
