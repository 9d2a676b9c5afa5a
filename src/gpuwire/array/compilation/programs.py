"""A traced function, ready to be called: one graph, and where its results go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuwire.array.array_object import Array
from gpuwire.array.compilation.structures import is_same, mapped
from gpuwire.array.compilation.tracing import RecordedOps, TracedTensor, TracingDevice
from gpuwire.array.connecting import tracing
from gpuwire.array.devices import ArrayDevice, ArrayTensor
from gpuwire.array.scalar_expressions import ScalarExpression, ScalarProgram, expression_of
from gpuwire.array.scalars import typed_scalar
from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.errors import GpuwireError, TracingError
from gpuwire.ids import LocationId
from gpuwire.ir.dtypes import DType, PythonScalar
from gpuwire.ir.graphs import InputRef, NodeRef
from gpuwire.ir.tensors import Scalar


@dataclass(frozen=True, slots=True)
class Made:
    """Where a tensor is found after a run: an output of the graph by number."""

    number: int


@dataclass(frozen=True, slots=True)
class Given:
    """… or the tensor that an argument had."""

    number: int


@dataclass(frozen=True, slots=True)
class Fixed:
    """… or one that is the same at every call."""

    tensor: ArrayTensor


Source = Made | Given | Fixed


@dataclass(frozen=True, slots=True)
class Bound:
    """A number that is computed at each call, in one data type."""

    number: int
    """Among the values of the function's arithmetic."""
    dtype: DType
    places: tuple[int, ...]
    """Among the graph's scalars: all that are this number."""
    location: LocationId
    """The first line that uses it."""


@dataclass(frozen=True, slots=True)
class _NewArray:
    """A leaf of the result: the new array of that number."""

    number: int


@dataclass(frozen=True, slots=True)
class _Argument:
    """A leaf of the result: the array that was given, itself."""

    number: int


@dataclass(frozen=True, slots=True)
class _Number:
    """A leaf of the result: a number that is computed at each call."""

    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One function, traced for one signature. `run` may be called on any thread."""

    device: ArrayDevice
    name: str
    ops: RecordedOps
    graph: RecordedGraph | None
    """None if the function records nothing."""
    arithmetic: ScalarProgram
    constants: tuple[Scalar, ...]
    """All scalars, as they were when traced."""
    bound: tuple[Bound, ...]
    computes: bool
    """Whether a call needs the values of the arithmetic."""
    assigned: tuple[tuple[int, Source], ...]
    """Arguments that the function changes in place, and what they become."""
    arrays: tuple[Source, ...]
    """The arrays that the function makes."""
    result: Any
    """The result with stand-ins for its leaves."""

    def run(self, arrays: Sequence[Array], numbers: Sequence[PythonScalar]) -> Any:
        """The result for these arguments. Raises what the function's arithmetic on numbers raises,
        `ScalarOutOfRange`, and why the session ended."""
        values: Sequence[PythonScalar] = ()
        scalars = self.constants
        if self.computes:
            values = self.arithmetic.evaluate(numbers)
            scalars = self._scalars(values)
        made: Sequence[ArrayTensor] = ()
        if self.graph is not None:
            inputs = [arrays[number]._tensor for number in self.ops.arguments]
            inputs += self.ops.captured
            made = self.device.run_graph(self.graph, inputs, scalars)
        device = self.device
        fresh = [Array(_tensor(source, made, arrays), device) for source in self.arrays]
        if self.assigned:
            # All are looked up before any is changed: one may become what another was.
            became = [_tensor(source, made, arrays) for _, source in self.assigned]
            for (number, _), tensor in zip(self.assigned, became, strict=True):
                arrays[number]._tensor = tensor
        if self.result.__class__ is _NewArray:
            return fresh[self.result.number]
        return _built(self.result, fresh, arrays, values)

    def _scalars(self, values: Sequence[PythonScalar]) -> tuple[Scalar, ...]:
        scalars = list(self.constants)
        for one in self.bound:
            try:
                scalar = typed_scalar(values[one.number], one.dtype)
            except GpuwireError as error:
                line = self.device.line(one.location)
                error.add_note(f"used at {line}, in the compiled {self.name}")
                raise
            for place in one.places:
                scalars[place] = scalar
        return tuple(scalars)


def trace(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static: frozenset[int | str],
    arrays: Sequence[Array],
    numbers: Sequence[PythonScalar],
    device: ArrayDevice,
) -> Program:
    """Runs `function` once over stand-ins for its arguments, on `device`'s behalf.

    `arrays` and `numbers` are the leaves of the arguments; those of the positions and names in
    `static` are given to the function as they are. Raises what the function raises, and
    `TracingError` for what cannot be traced.
    """
    name = getattr(function, "__qualname__", repr(function))
    place = TracingDevice(device, name, [array._tensor.type for array in arrays])
    arithmetic = ScalarProgram(name, numbers, lambda: device.line(device.location()))
    # An array that is given twice is one object inside, too.
    stand_ins: dict[int, Array] = {}
    for array, tensor in zip(arrays, place.arguments, strict=True):
        stand_ins.setdefault(id(array), Array(tensor, place))
    rest = iter(arithmetic.arguments)

    def traced(value: Any) -> Any:
        return mapped(value, lambda array: stand_ins[id(array)], lambda number: next(rest))

    new_args = [arg if i in static else traced(arg) for i, arg in enumerate(args)]
    new_kwargs = {key: arg if key in static else traced(arg) for key, arg in kwargs.items()}
    before = mapped((new_args, new_kwargs), lambda array: array, lambda number: number)
    try:
        with tracing(place):
            result = function(*new_args, **new_kwargs)
        if not is_same(before, (new_args, new_kwargs)):
            raise TracingError(
                f"the compiled {name} changed a list or dict that it was given; return the new "
                "one (x += … and x[…] = … on its arrays are fine)",
                function=name,
            )
        found = [stand_ins[id(array)] for array in arrays]
        return _program(result, found, place, arithmetic)
    finally:
        place.close()
        arithmetic.close()


def _program(
    result: Any, stand_ins: list[Array], place: TracingDevice, arithmetic: ScalarProgram
) -> Program:
    """What is to be run, from what the function left behind."""
    arguments: dict[int, int] = {}
    """By id() of the object inside, the first argument that it is."""
    for number, array in enumerate(stand_ins):
        arguments.setdefault(id(array), number)
    new: dict[int, tuple[int, Array]] = {}
    computed = False

    def array_leaf(array: Array) -> Any:
        if array._device is not place:
            return array
        number = arguments.get(id(array))
        if number is not None:
            return _Argument(number)
        return _NewArray(new.setdefault(id(array), (len(new), array))[0])

    def number_leaf(number: Any) -> Any:
        nonlocal computed
        if number.__class__ is not ScalarExpression:
            return number
        computed = True
        return _Number(number.number)

    template = mapped(result, array_leaf, number_leaf)
    made = [array._tensor for _, array in new.values()]
    changed = [
        (number, stand_ins[number]._tensor)
        for number in arguments.values()
        if stand_ins[number]._tensor is not place.arguments[number]
    ]
    ops = place.recorded(
        [
            tensor.ref.index
            for tensor in (*made, *(tensor for _, tensor in changed))
            if isinstance(tensor, TracedTensor) and isinstance(tensor.ref, NodeRef)
        ]
    )
    bound = _bound(ops)
    graph = place.target.recorded_graph(ops.graph, ops.locations) if ops.graph.outputs else None
    return Program(
        device=place.target,
        name=place.function,
        ops=ops,
        graph=graph,
        arithmetic=arithmetic,
        constants=tuple([scalar for scalar, _ in ops.scalars]),
        bound=bound,
        computes=computed or bool(bound),
        assigned=tuple([(number, _source(tensor, ops)) for number, tensor in changed]),
        arrays=tuple([_source(tensor, ops) for tensor in made]),
        result=template,
    )


def _bound(ops: RecordedOps) -> tuple[Bound, ...]:
    places: dict[tuple[int, DType], list[int]] = {}
    for place, (scalar, _) in enumerate(ops.scalars):
        expression = expression_of(scalar.value)
        if expression is not None:
            places.setdefault((expression.number, scalar.dtype), []).append(place)
    return tuple(
        [
            Bound(number, dtype, tuple(found), ops.scalars[found[0]][1])
            for (number, dtype), found in places.items()
        ]
    )


def _source(tensor: ArrayTensor, ops: RecordedOps) -> Source:
    if not isinstance(tensor, TracedTensor):
        return Fixed(tensor)
    match tensor.ref:
        case NodeRef(index):
            return Made(ops.places[index])
        case InputRef(index):
            return Given(index)


def _tensor(source: Source, made: Sequence[ArrayTensor], arrays: Sequence[Array]) -> ArrayTensor:
    match source:
        case Made(number):
            return made[number]
        case Given(number):
            return arrays[number]._tensor
        case Fixed(tensor):
            return tensor


def _built(
    template: Any, fresh: list[Array], arrays: Sequence[Array], values: Sequence[PythonScalar]
) -> Any:
    kind = template.__class__
    if kind is _NewArray:
        return fresh[template.number]
    if kind is _Argument:
        return arrays[template.number]
    if kind is _Number:
        return values[template.number]
    if kind is dict:
        return {name: _built(part, fresh, arrays, values) for name, part in template.items()}
    if isinstance(template, tuple | list):
        parts = [_built(part, fresh, arrays, values) for part in template]
        return kind(*parts) if hasattr(template, "_fields") else kind(parts)
    return template
