"""Python numbers that are not known yet: what stands for a compiled function's numeric arguments.

Arithmetic on them is written down and done over again at each call, by Python itself, so that
`lr * 0.5` is as exact as without compilation and meets an array as any Python number does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from gpuwire.errors import TracingError
from gpuwire.ir.dtypes import PythonScalar

Number = type[bool] | type[int] | type[float] | type[complex]

_NUMBERS = frozenset((bool, int, float, complex))


@dataclass(frozen=True, slots=True)
class _Step:
    """One operation of Python on numbers and on results of steps before."""

    function: Callable[..., Any]
    operands: tuple[Any, ...]
    kind: Number
    line: str | None


class ScalarProgram:
    """The arithmetic that one traced function does on its numbers."""

    def __init__(
        self, function: str, arguments: Sequence[PythonScalar], line: Callable[[], str | None]
    ) -> None:
        """`arguments` are the numbers of the call that is traced, `line` tells the user's line."""
        self.function = function
        self.arguments = [
            ScalarExpression(self, number, value.__class__)
            for number, value in enumerate(arguments)
        ]
        self._values = list(arguments)
        self._steps: list[_Step] = []
        self._line = line
        self._is_open = True

    def close(self) -> None:
        """The function has been traced: nothing more is written down."""
        self._is_open = False
        self._values = []

    def evaluate(self, arguments: Sequence[PythonScalar]) -> list[PythonScalar]:
        """The values of all expressions for one call, by number. Raises what the arithmetic raises,
        with a note that names the line of the function."""
        values: list[Any] = list(arguments)
        for step in self._steps:
            try:
                value = step.function(*[_value(operand, values) for operand in step.operands])
            except ArithmeticError as error:
                error.add_note(f"computed at {step.line}, in the compiled {self.function}")
                raise
            if value.__class__ is not step.kind:
                raise TracingError(
                    f"{self.function} was traced where {step.line} gave {_name(step.kind)}, and "
                    f"now it gives {_name(value.__class__)}; {self._advice()}",
                    function=self.function,
                )
            values.append(value)
        return values

    def apply(self, function: Callable[..., Any], *operands: Any) -> Any:
        """The expression of an operation over expressions and numbers. The operation is done at
        once too, on the traced call's values: so it raises where Python does, and has a type."""
        if not self._is_open:
            raise TracingError(
                f"a number of the compiled {self.function} was kept beyond the call that traced "
                "it; return it instead",
                function=self.function,
            )
        value: PythonScalar = function(*[_value(operand, self._values) for operand in operands])
        self._steps.append(_Step(function, operands, value.__class__, self._line()))
        self._values.append(value)
        return ScalarExpression(self, len(self._values) - 1, value.__class__)

    def refusal(self, what: str) -> TracingError:
        """The error for what cannot be had of a number that is not known yet."""
        return TracingError(
            f"{what}: a number given to the compiled {self.function} has no value while it is "
            f"traced, for one trace serves all values. {self._advice()}; or choose on the device, "
            "with gpuwire.where",
            function=self.function,
        )

    def _advice(self) -> str:
        return (
            "Where code depends on the number's value, as a branch, a shape or an axis does, name "
            "the argument in static_argnames: the function is then traced for each of its values"
        )


def _value(operand: Any, values: list[Any]) -> Any:
    return values[operand.number] if operand.__class__ is ScalarExpression else operand


def _name(kind: type) -> str:
    return f"an {kind.__name__}" if kind is int else f"a {kind.__name__}"


class ScalarExpression:
    """A number of a call that is yet to come. It takes part in Python's arithmetic, with numbers
    and with arrays; what asks for its value raises `TracingError`."""

    __slots__ = ("kind", "number", "program")

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, program: ScalarProgram, number: int, kind: Number) -> None:
        self.program = program
        self.number = number
        """Its place among the values of `ScalarProgram.evaluate`."""
        self.kind = kind
        """bool, int, float or complex; the same at every call."""

    def __repr__(self) -> str:
        return f"<{self.kind.__name__} {self.number} of the compiled {self.program.function}>"

    def _with(self, function: Callable[..., Any], other: object) -> Any:
        other = _python(other)
        if other is None:
            return NotImplemented
        return self.program.apply(function, self, other)

    def _reflected(self, function: Callable[..., Any], other: object) -> Any:
        other = _python(other)
        if other is None:
            return NotImplemented
        return self.program.apply(function, other, self)

    # --- Arithmetic --------------------------------------------------------------------------

    def __pos__(self) -> Any:
        return self.program.apply(operator.pos, self)

    def __neg__(self) -> Any:
        return self.program.apply(operator.neg, self)

    def __abs__(self) -> Any:
        return self.program.apply(operator.abs, self)

    def __invert__(self) -> Any:
        return self.program.apply(operator.invert, self)

    def __add__(self, other: object) -> Any:
        return self._with(operator.add, other)

    def __radd__(self, other: object) -> Any:
        return self._reflected(operator.add, other)

    def __sub__(self, other: object) -> Any:
        return self._with(operator.sub, other)

    def __rsub__(self, other: object) -> Any:
        return self._reflected(operator.sub, other)

    def __mul__(self, other: object) -> Any:
        return self._with(operator.mul, other)

    def __rmul__(self, other: object) -> Any:
        return self._reflected(operator.mul, other)

    def __truediv__(self, other: object) -> Any:
        return self._with(operator.truediv, other)

    def __rtruediv__(self, other: object) -> Any:
        return self._reflected(operator.truediv, other)

    def __floordiv__(self, other: object) -> Any:
        return self._with(operator.floordiv, other)

    def __rfloordiv__(self, other: object) -> Any:
        return self._reflected(operator.floordiv, other)

    def __mod__(self, other: object) -> Any:
        return self._with(operator.mod, other)

    def __rmod__(self, other: object) -> Any:
        return self._reflected(operator.mod, other)

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> Any:
        return other // self, other % self

    def __pow__(self, other: object) -> Any:
        return self._with(operator.pow, other)

    def __rpow__(self, other: object) -> Any:
        return self._reflected(operator.pow, other)

    def __and__(self, other: object) -> Any:
        return self._with(operator.and_, other)

    def __rand__(self, other: object) -> Any:
        return self._reflected(operator.and_, other)

    def __or__(self, other: object) -> Any:
        return self._with(operator.or_, other)

    def __ror__(self, other: object) -> Any:
        return self._reflected(operator.or_, other)

    def __xor__(self, other: object) -> Any:
        return self._with(operator.xor, other)

    def __rxor__(self, other: object) -> Any:
        return self._reflected(operator.xor, other)

    def __lshift__(self, other: object) -> Any:
        return self._with(operator.lshift, other)

    def __rlshift__(self, other: object) -> Any:
        return self._reflected(operator.lshift, other)

    def __rshift__(self, other: object) -> Any:
        return self._with(operator.rshift, other)

    def __rrshift__(self, other: object) -> Any:
        return self._reflected(operator.rshift, other)

    # --- What asks for the value -------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise self.program.refusal("if, and, or, not, bool()")

    def __int__(self) -> NoReturn:
        raise self.program.refusal("int()")

    def __index__(self) -> NoReturn:
        raise self.program.refusal("a length, an axis, an index")

    def __float__(self) -> NoReturn:
        raise self.program.refusal("float(), or a function of Python's math")

    def __complex__(self) -> NoReturn:
        raise self.program.refusal("complex()")

    def __round__(self, digits: int | None = None) -> NoReturn:
        raise self.program.refusal("round()")

    def __trunc__(self) -> NoReturn:
        raise self.program.refusal("math.trunc()")

    def __floor__(self) -> NoReturn:
        raise self.program.refusal("math.floor()")

    def __ceil__(self) -> NoReturn:
        raise self.program.refusal("math.ceil()")

    def __format__(self, spec: str) -> str:
        if spec:
            raise self.program.refusal(f"formatting it as {spec!r}")
        return repr(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise self.program.refusal("a NumPy array of it")

    def _compare(self, other: object, sign: str) -> Any:
        if _python(other) is None:
            return NotImplemented
        raise self.program.refusal(f"comparing it ({sign})")

    def __eq__(self, other: object) -> Any:
        return self._compare(other, "==")

    def __ne__(self, other: object) -> Any:
        return self._compare(other, "!=")

    def __lt__(self, other: object) -> Any:
        return self._compare(other, "<")

    def __le__(self, other: object) -> Any:
        return self._compare(other, "<=")

    def __gt__(self, other: object) -> Any:
        return self._compare(other, ">")

    def __ge__(self, other: object) -> Any:
        return self._compare(other, ">=")


def _python(value: object) -> Any:
    """A number as Python's, an expression as it is; None for anything else."""
    if value.__class__ in _NUMBERS or value.__class__ is ScalarExpression:
        return value
    number = value.item() if isinstance(value, np.generic) else None
    return number if number.__class__ in _NUMBERS else None


def number_class(value: object) -> type:
    """The class of a number, or of the number that an expression stands for."""
    return value.kind if isinstance(value, ScalarExpression) else value.__class__


def expression_of(value: object) -> ScalarExpression | None:
    """`value`, if it is an expression: it is handed on where numbers are, and has their type."""
    return value if isinstance(value, ScalarExpression) else None
