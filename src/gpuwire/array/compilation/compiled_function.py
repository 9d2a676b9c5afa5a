"""`gpuwire.compile`: a function over arrays, called by one task."""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
import types
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, overload

from gpuwire.array.array_object import Array
from gpuwire.array.compilation.lowered import Lowered
from gpuwire.array.compilation.programs import Program, trace
from gpuwire.array.compilation.structures import flatten, static_key
from gpuwire.array.connecting import default_device, traced_device
from gpuwire.array.devices import ArrayDevice
from gpuwire.array.recording import same_device
from gpuwire.client.facts import DeviceFacts
from gpuwire.errors import ArgumentError
from gpuwire.ir.dtypes import PythonScalar

SIGNATURES_MAX = 64
"""The traces that one function keeps; the one not called for longest goes first."""

P = ParamSpec("P")
R = TypeVar("R")


@overload
def compile(
    function: Callable[P, R], /, *, static_argnames: str | Iterable[str] = ()
) -> CompiledFunction[P, R]: ...


@overload
def compile(
    *, static_argnames: str | Iterable[str] = ()
) -> Callable[[Callable[P, R]], CompiledFunction[P, R]]: ...


def compile(
    function: Callable[P, R] | None = None,
    /,
    *,
    static_argnames: str | Iterable[str] = (),
) -> CompiledFunction[P, R] | Callable[[Callable[P, R]], CompiledFunction[P, R]]:
    """A function that is traced once and then runs on the device as one op-graph, by one small task
    for each call. As a decorator, plain or with arguments, or called with the function.

    The function takes and returns arrays, Python numbers, and nested tuples, lists and dicts of
    them. It is run once for each **signature**: the shapes and data types of the arrays, their
    device, the classes of the numbers, the form of the containers, and the values of strings, None,
    data types, devices, and of the arguments in `static_argnames` (which must be hashable). The
    latest 64 traces of a function are kept.

    What it is made of:

    - Python numbers are bindings: another learning rate is no new trace. Arithmetic on them is
      Python's own, at each call. `if`, comparison, `int()`, shapes and axes need a value that is
      not there yet, and raise `TracingError`: name such arguments in `static_argnames`. A default
      that the caller leaves out is a constant.
    - Arrays from outside (closures, globals) are taken as they are when the function is traced, and
      kept; so is everything else that it looks up. Later changes of them are not seen.
    - Side effects, `print` for one, happen when it is traced, not at each call.
    - Reading values inside (`np.asarray(x)`, `float(x)`, `if x:`, `x[mask]`) raises `TracingError`;
      `gpuwire.where` chooses on the device.
    - `x += y` and `x[key] = y` on an argument change the caller's array, as without compilation.
      An argument that is returned is the caller's array itself.
    - A compiled function that is called inside another one becomes part of it.
    - It may be called on any thread.
    - It may be of any length. One graph holds 4,096 operations and 96 KiB; a longer function is cut
      into several, which run one after the other, each by a task of its own.

    Errors in shapes and types are raised at the line that wrote them, when it is traced. What fails
    on the device raises `ExecutionError` where a result is read, with the operation and its line in
    the function. `f.lower(…)` shows what is run; `f.__wrapped__` is the plain function.
    """
    if function is None:
        return lambda function: CompiledFunction(function, static_argnames)
    return CompiledFunction(function, static_argnames)


@dataclass(slots=True, eq=False)
class _Trace:
    program: Program
    used: int = 0
    """When it was called last, counted in calls."""


class CompiledFunction(Generic[P, R]):
    """What `compile` gives: called as the function is."""

    def __init__(self, function: Callable[P, R], static_argnames: str | Iterable[str]) -> None:
        if not callable(function):
            raise ArgumentError(f"compile takes a function, not {type(function).__name__}")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise ArgumentError(
                f"{function.__qualname__} is asynchronous or a generator: a compiled function "
                "records in one go; compile the part between two awaits or yields"
            )
        functools.update_wrapper(self, function)
        self._function = function
        self._static = _static_places(function, static_argnames)
        self._traces: dict[tuple[Hashable, ...], _Trace] = {}
        self._calls = itertools.count()
        self._tracing = threading.RLock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if traced_device() is not None:
            return self._function(*args, **kwargs)
        program, arrays, numbers = self._find(args, kwargs)
        result: R = program.run(arrays, numbers)
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a method, it takes the instance first, which is to be named in `static_argnames`."""
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<compiled {self._function!r}, {len(self._traces)} traced>"

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowered:
        """What a call with these arguments runs, as text; traces the function if need be, and runs
        nothing."""
        program, _, _ = self._find(args, kwargs)
        return Lowered(program)

    def _find(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Program, list[Array], list[PythonScalar]]:
        arrays: list[Array] = []
        numbers: list[PythonScalar] = []
        key: list[Any] = [len(args)]
        if not self._static:
            flatten(args, arrays, numbers, key)
            if kwargs:
                key.append(tuple(kwargs))
                flatten(kwargs.values(), arrays, numbers, key)
        else:
            self._flatten_others(args, kwargs, arrays, numbers, key)
        if len(arrays) > 1 and len(set(map(id, arrays))) < len(arrays):
            first: dict[int, int] = {}
            key.append(tuple([first.setdefault(id(x), n) for n, x in enumerate(arrays)]))
        device = _device(arrays, key)
        key.append(device)
        signature = tuple(key)
        found = self._traces.get(signature)
        if found is None:
            found = self._trace(signature, args, kwargs, arrays, numbers, device)
        found.used = next(self._calls)
        return found.program, arrays, numbers

    def _flatten_others(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        arrays: list[Array],
        numbers: list[PythonScalar],
        key: list[Any],
    ) -> None:
        """All arguments, those that are static by their values."""
        for number, arg in enumerate(args):
            if number in self._static:
                key.append(static_key(arg, f"argument {number}"))
            else:
                flatten((arg,), arrays, numbers, key)
        for name, arg in kwargs.items():
            key.append(name)
            if name in self._static:
                key.append(static_key(arg, name))
            else:
                flatten((arg,), arrays, numbers, key)

    def _trace(
        self,
        signature: tuple[Hashable, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        arrays: list[Array],
        numbers: list[PythonScalar],
        device: ArrayDevice,
    ) -> _Trace:
        with self._tracing:
            found = self._traces.get(signature)
            if found is None:
                found = _Trace(
                    trace(self._function, args, kwargs, self._static, arrays, numbers, device)
                )
                self._make_room()
                self._traces[signature] = found
            return found

    def _make_room(self) -> None:
        """Forgets traces for devices that are gone, and the oldest beyond the bound."""
        ended = [key for key, one in self._traces.items() if one.program.device.ended is not None]
        for key in ended:
            del self._traces[key]
        while len(self._traces) >= SIGNATURES_MAX:
            del self._traces[min(self._traces, key=lambda key: self._traces[key].used)]


def _device(arrays: list[Array], key: list[Any]) -> ArrayDevice:
    """Where the function runs."""
    if arrays:
        device = arrays[0]._device
        for array in arrays:
            if array._device is not device:
                return same_device("a compiled function", tuple(arrays))
        return device
    named = [part for part in key if isinstance(part, DeviceFacts)]
    return named[0] if named else default_device()  # type: ignore[return-value]


def _static_places(
    function: Callable[..., Any], names: str | Iterable[str]
) -> frozenset[int | str]:
    """Positions and names of the static arguments. `ArgumentError` for a name that is none."""
    wanted = (names,) if isinstance(names, str) else tuple(names)
    if not wanted:
        return frozenset()
    parameters = inspect.signature(function).parameters
    places: set[int | str] = set()
    for name in wanted:
        parameter = parameters.get(name)
        if parameter is None or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise ArgumentError(
                f"static_argnames: {getattr(function, '__qualname__', function)} has no argument "
                f"{name!r}; it has {', '.join(parameters)}"
            )
        places.add(name)
        if parameter.kind is not parameter.KEYWORD_ONLY:
            places.add(list(parameters).index(name))
    return frozenset(places)
