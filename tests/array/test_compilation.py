"""Compiled functions, traced over a device that computes in NumPy: signatures, bindings, in-place
forms, what is refused, and that a compiled function gives what it gives without compilation."""

from __future__ import annotations

import math
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuwire as gw
from gpuwire.array.compilation.compiled_function import SIGNATURES_MAX
from gpuwire.errors import (
    ArgumentError,
    DeviceMismatch,
    NotSupported,
    ScalarOutOfRange,
    ShapeError,
    TracingError,
    UnsupportedDType,
)
from gpuwire.ir import dtypes as dt
from numpy_device import NumpyDevice

Make = Callable[..., gw.Array]
Point = namedtuple("Point", "x y")


@pytest.fixture
def dev() -> NumpyDevice:
    return NumpyDevice()


@pytest.fixture
def make(dev: NumpyDevice) -> Make:
    def make(value: Any, dtype: Any = np.float32) -> gw.Array:
        return gw.asarray(np.asarray(value, dtype), device=dev)

    return make


def same(found: gw.Array, wanted: Any) -> None:
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


class Counted:
    """A function that knows how often it really ran."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.traces = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.traces += 1
            return function(*args, **kwargs)

        counted.__signature__ = __import__("inspect").signature(function)  # type: ignore[attr-defined]
        self.compiled = gw.compile(counted, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*args, **kwargs)


# --- One task for each call ------------------------------------------------------------------


def test_a_call_is_one_run_of_one_graph(dev: NumpyDevice, make: Make) -> None:
    f = Counted(lambda x, w: gw.sum(gw.exp(x @ w) * 2.0, axis=0))
    x, w = make(np.ones((2, 3))), make(np.eye(3))
    before = dev.recorded
    for _ in range(3):
        same(f(x, w), np.full(3, 4 * np.exp(np.float32(1))))
    assert (f.traces, dev.runs, dev.recorded) == (1, 3, before)


def test_the_signature_is_shapes_types_classes_and_form(make: Make) -> None:
    f = Counted(lambda x, n: x + n)
    calls: list[tuple[Any, Any, int]] = [
        (make([1, 2]), 1.0, 1),
        (make([3, 4]), 2.0, 1),
        (make([1, 2, 3]), 1.0, 2),
        (make([1, 2], np.int64), 1.0, 3),
        (make([1, 2]), 1, 4),
        (make([1, 2]), True, 5),
        (make([1, 2]), np.float64(3.0), 5),
        (make([1, 2]), 7, 5),
        (make([1, 2]), make([1, 2]), 6),
    ]
    for x, n, traces in calls:
        f(x, n)
        assert f.traces == traces


def test_nested_arguments_and_results_keep_their_form(make: Make) -> None:
    @gw.compile
    def f(state: Any, *, scale: float) -> Any:
        point = state["point"]
        return {
            "sum": [point.x + point.y, (state["more"][0] * scale,)],
            "point": Point(point.y, None),
            "name": "done",
            "number": scale,
        }

    state = {"point": Point(make([1.0]), make([2.0])), "more": [make([3.0])]}
    for scale in (2.0, 4.0):
        found = f(state, scale=scale)
        assert list(found) == ["sum", "point", "name", "number"]
        assert isinstance(found["point"], Point)
        assert (found["name"], found["number"], found["point"].y) == ("done", scale, None)
        same(found["sum"][0], [3.0])
        same(found["sum"][1][0], [3.0 * scale])
        assert found["point"].x is state["point"].y  # type: ignore[attr-defined]
    with pytest.raises(ArgumentError, match="static_argnames"):
        f({"point": Point(object(), 1.0), "more": []}, scale=1.0)


def test_each_call_gives_containers_and_arrays_of_its_own(make: Make) -> None:
    f = gw.compile(lambda x: [x + 1, {}])
    first, second = f(make([1.0])), f(make([1.0]))
    first[0] += 5
    first[1]["key"] = 1
    same(second[0], [2.0])
    assert second[1] == {}


def test_the_same_array_twice_is_one_array_inside_and_out(make: Make) -> None:
    @gw.compile
    def f(x: gw.Array, y: gw.Array) -> Any:
        x += 1
        z = x + y
        return x is y, z, z

    x, y = make([1.0]), make([1.0])
    is_same, first, again = f(x, y)
    assert not is_same
    assert first is again
    same(first, [3.0])
    is_same, first, _ = f(y, y)
    assert is_same
    same(first, [4.0])
    same(y, [2.0])


# --- Numbers are bindings --------------------------------------------------------------------


def test_numbers_are_computed_by_python_at_each_call(make: Make) -> None:
    def plain(x: gw.Array, rate: float, step: int) -> Any:
        decay = 1.0 / (1.0 + 0.1 * step)
        return (
            x - rate * decay,
            -rate,
            rate**2,
            step // 2 + (step % 3),
            (*divmod(step, 2), *divmod(9, step)),
        )

    f = Counted(plain)
    x = make([1.0, 2.0])
    for step in range(1, 6):
        found, wanted = f(x, 0.1 * step, step), plain(x, 0.1 * step, step)
        same(found[0], wanted[0])
        assert found[1:] == wanted[1:]
        assert [type(number) for number in found[1:]] == [type(number) for number in wanted[1:]]
    assert f.traces == 1


def test_a_number_takes_the_type_of_the_array_that_it_meets(make: Make) -> None:
    f = gw.compile(lambda x, n: (x * n, n * x, x**2 + n, gw.where(x > n, x, n), gw.clip(x, n, 9)))
    for dtype, number in ((np.float16, 2), (np.float32, 2.0), (np.int8, 3), (np.uint64, 4)):
        x = make([1, 2, 5], dtype)
        for one in f(x, number):
            assert one.dtype == x.dtype
    assert f(make([1, 2], np.int32), 0.5)[0].dtype == gw.float32
    g = gw.compile(lambda x, n: x * n)
    assert g(make([1, 2]), 2j).dtype == gw.complex64


def test_a_number_that_does_not_fit_is_an_error_of_its_call(make: Make) -> None:
    f = gw.compile(lambda x, n: x + n * 2)
    x = make([1], np.int8)
    same(f(x, 3), [7])
    with pytest.raises(ScalarOutOfRange) as caught:
        f(x, 100)
    assert "test_compilation.py" in "".join(caught.value.__notes__)
    same(f(x, 4), [9])


def test_arithmetic_that_fails_names_its_line(make: Make) -> None:
    f = gw.compile(lambda x, n: x * (1 / n))
    same(f(make([1.0]), 2), [0.5])
    with pytest.raises(ZeroDivisionError) as caught:
        f(make([1.0]), 0)
    assert "test_compilation.py" in "".join(caught.value.__notes__)
    g = gw.compile(lambda x, n: x * 2**n)
    same(g(make([1.0]), 3), [8.0])
    with pytest.raises(TracingError, match="gave an int, and now it gives a float"):
        g(make([1.0]), -1)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x if n else -x,
        lambda x, n: x if n > 1 else -x,
        lambda x, n: x if n == 1 else -x,
        lambda x, n: gw.zeros(n),
        lambda x, n: gw.sum(x, axis=n),
        lambda x, n: x[n],
        lambda x, n: gw.reshape(x, (n, -1)),
        lambda x, n: x * math.sqrt(n),
        lambda x, n: x * round(n),
        lambda x, n: [x for _ in range(n)],
        lambda x, n: x + np.asarray(n),
        lambda x, n: gw.asarray([n, 1]),
        lambda x, n: gw.arange(n),
        lambda x, n: f"{n:.2f}",
    ],
)
def test_what_needs_a_number_now_names_static_argnames(make: Make, use: Any) -> None:
    with pytest.raises(TracingError, match="static_argnames"):
        gw.compile(use)(make([1.0, 2.0]), 1)


def test_static_arguments_are_traced_for_each_value(make: Make) -> None:
    def plain(x: gw.Array, n: int, *, mode: str = "up") -> gw.Array:
        for _ in range(n):
            x = x + 1 if mode == "up" else x - 1
        return x

    f = Counted(plain, static_argnames=("n", "mode"))
    x = make([0.0])
    for n, mode, traces in ((2, "up", 1), (3, "up", 2), (2, "down", 3), (2, "up", 3)):
        same(f(x, n, mode=mode), [n if mode == "up" else -n])
        assert f.traces == traces
    same(f(x, n=2), [2.0])
    for one in (1, 1.0, True, (1,), (1.0,)):
        Counted(lambda x, n: x, static_argnames="n")(x, one)
    g = Counted(lambda x, n: x + len(str(n)), static_argnames="n")
    for number, one in enumerate((1, 1.0, True, (1,), (1.0,)), start=1):
        g(x, one)
        assert g.traces == number
    with pytest.raises(ArgumentError, match="n is named static, and a list"):
        f(x, n=[1])
    with pytest.raises(ArgumentError, match="no argument 'k'; it has x, n, mode"):
        gw.compile(plain, static_argnames="k")


# --- In-place forms --------------------------------------------------------------------------


def test_an_argument_changed_in_place_is_the_callers(make: Make) -> None:
    @gw.compile
    def f(x: gw.Array, params: dict[str, gw.Array]) -> gw.Array:
        before = x + 0
        x += 1
        x[0] = 9
        params["w"] -= 0.5
        params["w"] *= x[1]
        return before

    x, w = make([1.0, 2.0]), make([1.0])
    alias, copy = x, x[:]
    for round_number in range(2):
        before = np.asarray(x)
        w_before = np.asarray(w)
        same(f(x, {"w": w}), before)
        same(alias, [9.0, 3.0 + round_number])
        same(w, (w_before - np.float32(0.5)) * np.float32(3.0 + round_number))
    same(copy, [1.0, 2.0])


def test_arguments_may_be_swapped_in_place(make: Make) -> None:
    @gw.compile
    def swap(x: gw.Array, y: gw.Array) -> None:
        old = x[:]
        x[:] = y
        y[:] = old

    x, y = make([1.0]), make([2.0])
    assert swap(x, y) is None
    same(x, [2.0])
    same(y, [1.0])


def test_a_changed_container_is_refused(make: Make) -> None:
    @gw.compile
    def f(params: dict[str, gw.Array]) -> None:
        params["w"] = params["w"] * 2

    @gw.compile
    def g(values: list[gw.Array]) -> None:
        values.append(values[0])

    with pytest.raises(TracingError, match="changed a list or dict"):
        f({"w": make([1.0])})
    with pytest.raises(TracingError, match="changed a list or dict"):
        g([make([1.0])])


def test_an_array_from_outside_is_not_changed(make: Make) -> None:
    outside = make([1.0, 2.0])

    def add(x: gw.Array) -> None:
        nonlocal outside
        outside += x

    def write(x: gw.Array) -> None:
        outside[0] = x[0]

    for function in (add, write):
        with pytest.raises(TracingError, match="argument"):
            gw.compile(function)(make([1.0, 1.0]))
    same(outside, [1.0, 2.0])


# --- What a function looks up ----------------------------------------------------------------


def test_arrays_from_outside_are_inputs_and_frozen(dev: NumpyDevice, make: Make) -> None:
    table, weight = make(np.arange(6).reshape(3, 2)), make([10.0, 20.0])
    f = Counted(
        lambda x, i: (
            x + weight,
            weight - x,
            weight @ x,
            gw.where(x > 1, weight, x),
            gw.concat([weight, x]),
            table[i],
            gw.take(table, i, axis=0),
            gw.full((2,), x[0]),
            weight,
            weight * 2,
        )
    )
    x, i = make([1.0, 2.0]), make([2, 0], np.int64)
    found = f(x, i)
    wanted: list[Any] = [[11, 22], [9, 18], 50, [1, 20], [10, 20, 1, 2], [[4, 5], [0, 1]]]
    wanted += [[[4, 5], [0, 1]], [1, 1], [10, 20], [20, 40]]
    for one, values in zip(found, wanted, strict=True):
        same(one, values)
    assert found[8] is weight
    weight += 100
    same(f(x, i)[0], [11, 22])
    assert f.traces == 1


def test_creation_functions_record(dev: NumpyDevice, make: Make) -> None:
    @gw.compile
    def f(x: gw.Array) -> list[gw.Array]:
        here = x.device
        assert here == dev
        return [
            gw.zeros(2) + x,
            gw.ones(2, device=dev) + x,
            gw.arange(2, device=here) + x,
            gw.eye(2) @ x,
            gw.linspace(0, 1, 2) * x,
            gw.full_like(x, 3),
            gw.asarray(np.asarray([5.0, 6.0], np.float32)) + x,
            gw.asarray(x),
            x.to_device(dev),
        ]

    x = make([1.0, 2.0])
    before = dev.recorded
    values = [[1, 2], [2, 3], [1, 3], [1, 2], [0, 2], [3, 3], [6, 8], [1, 2], [1, 2]]
    for _ in range(2):
        for one, wanted in zip(f(x), values, strict=True):
            same(one, wanted)
    assert dev.recorded == before
    assert dev.uploads == 2  # the constant, once, and x


def test_a_function_without_arrays_runs_on_the_device_it_is_given(server_ticket: str) -> None:
    f = gw.compile(lambda dev, n: gw.full((2,), n, device=dev))
    with gw.connect(server_ticket) as dev:
        same(f(dev, 2.0), [2.0, 2.0])
        assert f(dev, 3.0).device is dev


def test_side_effects_happen_when_it_is_traced(make: Make) -> None:
    seen: list[str] = []

    @gw.compile
    def f(x: gw.Array) -> gw.Array:
        seen.append(repr(x))
        return x + len(seen)

    for _ in range(3):
        same(f(make([1.0])), [2.0])
    assert seen == ["Array(shape=(1,), dtype=float32, without values while its function is traced)"]


def test_a_compiled_function_inside_another_is_part_of_it(dev: NumpyDevice, make: Make) -> None:
    @gw.compile
    def inner(x: gw.Array, n: float) -> gw.Array:
        return x * n

    @gw.compile
    def outer(x: gw.Array, n: float) -> gw.Array:
        return inner(inner(x, n), 2.0) + inner(gw.ones(1), n)

    for n in (1.0, 3.0):
        same(outer(make([5.0]), n), [5 * n * 2 + n])
    assert dev.runs == 2


def test_what_is_not_needed_is_left_out(make: Make) -> None:
    outside = make([1.0])

    @gw.compile
    def f(x: gw.Array, y: gw.Array, n: float) -> gw.Array:
        z = x + outside
        z = z * n
        return y * 2.0

    graph = f.lower(make([1.0]), make([2.0]), 0.5).graph
    assert len(graph.nodes) == len(graph.inputs) == 1
    same(f(make([1.0]), make([2.0]), 0.5), [4.0])


def test_a_function_that_records_nothing_runs_nothing(dev: NumpyDevice, make: Make) -> None:
    f = gw.compile(lambda x, y: (y, x, 3))
    x, y = make([1.0]), make([2.0])
    assert f(x, y) == (y, x, 3) or f(x, y)[0] is y
    assert dev.runs == 0


# --- What is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        np.asarray,
        lambda x: x.to_numpy(),
        lambda x: float(x[0]),
        lambda x: int(x[0]),
        lambda x: bool(x[0]),
        lambda x: x.tolist(),
        lambda x: x if x[0] > 0 else -x,
        lambda x: x[x > 0],
        lambda x: 1.0 in x,
        lambda x: gw.zeros(x[0]) if x.dtype == gw.int64 else [x.item()],
    ],
)
def test_reading_inside_says_what_to_do(make: Make, use: Any) -> None:
    for dtype in (np.float32, np.int64):
        with pytest.raises(TracingError, match="while the function is traced"):
            gw.compile(use)(make([1], dtype))


def test_arrays_and_numbers_do_not_outlive_their_trace(make: Make) -> None:
    kept: list[Any] = []
    gw.compile(lambda x, n: kept.extend([x, n]))(make([1.0]), 2.0)
    array, number = kept
    for use in (
        lambda: array + 1,
        lambda: np.asarray(array),
        lambda: number * 2,
        lambda: gw.compile(lambda x: x + 1)(array),
        lambda: make([1.0]) + array,
    ):
        with pytest.raises(TracingError, match="kept beyond the call that traced it"):
            use()
    assert "float32" in repr(array)


def test_errors_are_raised_at_the_users_line_and_nothing_is_kept(
    dev: NumpyDevice, make: Make
) -> None:
    f = Counted(lambda x, y: x + y)
    for _ in range(2):
        with pytest.raises(ShapeError) as caught:
            f(make([1.0, 2.0]), make([1.0, 2.0, 3.0]))
        assert any(entry.name == "<lambda>" for entry in caught.traceback)
    assert f.traces == 2
    other = NumpyDevice(lacking=(dt.int64,))
    with pytest.raises(UnsupportedDType):
        gw.compile(lambda x: gw.astype(x, gw.int64))(gw.ones(2, device=other))
    with pytest.raises(DeviceMismatch):
        f(make([1.0]), gw.ones(1, device=other))
    with pytest.raises(NotSupported, match="asarray"):
        f(make([1.0]), np.ones(1))
    same(f(make([1.0]), make([2.0])), [3.0])


def test_what_is_no_plain_function_is_refused() -> None:
    async def coroutine() -> None: ...

    def generator() -> Any:
        yield 1

    for function in (coroutine, generator):
        with pytest.raises(ArgumentError, match="asynchronous or a generator"):
            gw.compile(function)
    with pytest.raises(ArgumentError, match="takes a function"):
        gw.compile(3)  # type: ignore[call-overload]


def test_a_function_too_large_for_one_graph_shows_its_parts(make: Make) -> None:
    @gw.compile
    def f(x: gw.Array) -> gw.Array:
        for _ in range(5000):
            x = x + 1.0
        return x

    same(f(make([1.0])), [5001.0])
    lines = f.lower(make([1.0])).op_graph.splitlines()
    assert len(lines) == 1 + 1 + 5000 + 2
    assert lines[2] == "-- part 1 of 2: %0 to %4095 --"
    assert lines[3 + 4096] == "-- part 2 of 2: %4096 to %4999 --"
    assert lines[4 + 4096].startswith("%4096 ")


# --- Bounds, threads, text -------------------------------------------------------------------


def test_traces_are_bounded_and_the_oldest_goes(make: Make) -> None:
    f = Counted(lambda x: x + 1)
    first = make(np.ones(1))
    f(first)
    for length in range(2, SIGNATURES_MAX + 1):
        f(make(np.ones(length)))
    f(first)
    assert f.traces == SIGNATURES_MAX
    f(make(np.ones(1000)))
    f(first)
    assert f.traces == SIGNATURES_MAX + 1
    f(make(np.ones(2)))
    assert f.traces == SIGNATURES_MAX + 2
    assert f"{SIGNATURES_MAX} traced" in repr(f.compiled)


def test_traces_for_ended_devices_go(dev: NumpyDevice, make: Make) -> None:
    f = gw.compile(lambda x: x + 1)
    f(make([1.0]))
    dev.ended = RuntimeError()
    f(gw.ones(1, device=NumpyDevice()))
    assert "1 traced" in repr(f)


def test_threads_share_one_trace(make: Make) -> None:
    f = Counted(lambda x, n: gw.sum(x * n))
    gate = threading.Barrier(4)
    found: dict[int, list[float]] = {}

    def work(number: int) -> None:
        gate.wait()
        found[number] = [float(f(make([number, i]), float(i))) for i in range(20)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert f.traces == 1
    for number in range(4):
        assert found[number] == [(number + i) * i for i in range(20)]


def test_methods_are_compiled_with_their_instance_static(make: Make) -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @gw.compile(static_argnames="self")
        def forward(self, x: gw.Array) -> gw.Array:
            """Scales."""
            return x * self.scale

    same(Model(2.0).forward(make([1.0])), [2.0])
    same(Model(3.0).forward(make([1.0])), [3.0])
    assert Model.forward.__doc__ == "Scales."
    assert Model.forward.__wrapped__(Model(4.0), 2.0) == 8.0  # type: ignore[attr-defined]


def test_the_text_names_operations_operands_types_and_lines(make: Make) -> None:
    outside = make([1.0, 1.0])

    @gw.compile
    def layer(x: gw.Array, w: gw.Array, rate: float) -> gw.Array:
        h = x @ w
        return gw.sum(h * rate + outside, axis=0)

    lowered = layer.lower(make(np.ones((3, 2))), make(np.eye(2)), 0.5)
    lines = lowered.op_graph.splitlines()
    assert lines[0].endswith("layer(a0: float32[3, 2], a1: float32[2, 2], c0: float32[2])")
    assert lines[1].split() == ["node", "operation", "operands", "type", "line"]
    first = layer.__wrapped__.__code__.co_firstlineno  # type: ignore[attr-defined]
    wanted = [
        ["%0", "matmul", "a0, a1", "float32[3, 2]", f"{__file__}:{first + 2}"],
        ["%1", "multiply", "%0, s0", "float32[3, 2]", f"{__file__}:{first + 3}"],
        ["%2", "add", "%1, c0", "float32[3, 2]", f"{__file__}:{first + 3}"],
        ["*%3", "sum", "%2, axes=(0,), keepdims=False, dtype=float32", "float32[2]"],
    ]
    for line, parts in zip(lines[2:], wanted, strict=True):
        assert [part.strip() for part in line.split("  ") if part][: len(parts)] == parts
    assert str(lowered).startswith(lowered.op_graph)


# --- Any program -----------------------------------------------------------------------------

_BINARY = (gw.add, gw.multiply, gw.maximum, lambda x, y: gw.where(x > y, x, y), lambda x, y: x - y)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(data=st.data())
def test_any_program_gives_what_it_gives_uncompiled(data: st.DataObject) -> None:
    """Random operations over arguments, numbers, outside arrays, constants and in-place forms."""
    steps = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(("binary", "number", "in place", "write", "outside", "new")),
                st.integers(0, 5),
                st.integers(0, 5),
                st.integers(0, len(_BINARY) - 1),
            ),
            max_size=12,
        )
    )
    kept = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=4))
    device = NumpyDevice()
    outside = gw.asarray(np.float32([0.5, 2.0]), device=device)

    def program(x: gw.Array, y: gw.Array, n: float) -> Any:
        values = [x, y]
        for kind, one, other, which in steps:
            a, b = values[one % len(values)], values[other % len(values)]
            match kind:
                case "binary":
                    values.append(_BINARY[which](a, b))
                case "number":
                    values.append(a * (n + one) - n)
                case "in place":
                    a += b
                case "write":
                    a[0] = b[1]
                case "outside":
                    values.append(_BINARY[which](outside, a))
                case "new":
                    values.append(gw.ones(2, device=a.device) * one)
        return [values[number % len(values)] for number in kept], n * 2

    compiled = gw.compile(program)
    for n in (1.5, -2.0):
        results = []
        for function in (program, compiled):
            x = gw.asarray(np.float32([n, 2.0]), device=device)
            y = gw.asarray(np.float32([3.0, -1.0]), device=device)
            found, number = function(x, y, n)
            results.append([number, *map(np.asarray, (x, y, *found))])
        for plain, traced in zip(*results, strict=True):
            np.testing.assert_array_equal(plain, traced)
