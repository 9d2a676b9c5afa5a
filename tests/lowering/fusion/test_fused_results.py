"""Fused kernels on a device: the bits of one kernel for each operation, where the arithmetic is the
same, and NumPy's numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building_graphs import ROWS, GraphBuilder, layer_norm, matrix, residual_layers, scalar, softmax
from gpuwire.errors import LaunchError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    ArgReduceAttributes,
    CastAttributes,
    ReduceAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.graphs import InputRef, OpGraph, ValueRef
from gpuwire.ir.operations import OpClass
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.lowering import Lowering
from gpuwire.lowering import plan_rows as rows
from lowered import Array, Machine
from random_graphs import assert_agree, largest, on_numpy, random_graph, trusts

FIRST_ROW = SliceAttributes((0, 0), (1, 1), (1, 16))
HALF = Scalar(0.5, dt.float32)


@pytest.fixture(scope="module")
def unfused(machine: Machine) -> Machine:
    plain = Machine(server=machine.server)
    plain.lowering = Lowering(machine.server, fuse=False)
    return plain


@pytest.fixture(scope="module")
def gpu(machine: Machine) -> Machine:
    return machine.assuming(is_software=False)


def _run(machine: Machine, graph: OpGraph, *arrays: Array) -> list[Array]:
    inputs = [machine.view(array) for array in arrays]
    return [machine.download(value) for value in machine.execute(graph, inputs, [HALF])]


def _softmax(x: Array) -> Array:
    powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def test_rows_in_every_form(
    machine: Machine, gpu: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held and looped, by lanes and by workgroups, in fours and singly, with a rest and without."""
    random = np.random.default_rng(0)
    for device, columns in (
        *((machine, columns) for columns in (8, 10, 37, 200)),
        *((gpu, columns) for columns in (6, 512, 100, 131)),
    ):
        x = random.normal(size=(5, columns)).astype(np.float32)
        (got,) = _run(device, softmax(5, columns), x)
        np.testing.assert_allclose(got, _softmax(x), rtol=3e-6)
    monkeypatch.setattr(rows, "MOST_HELD", 1)
    for columns in (260, 131):
        x = random.normal(size=(5, columns)).astype(np.float32)
        (got,) = _run(gpu, softmax(5, columns), x)
        np.testing.assert_allclose(got, _softmax(x), rtol=3e-6)


def test_layer_norm_of_what_is_not_contiguous(machine: Machine, gpu: Machine) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 6)).astype(np.float32).T
    factor, summand = random.normal(size=(2, 40)).astype(np.float32)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    wanted = centred / np.sqrt(wide.var(1, keepdims=True) + 0.5) * factor + summand
    for device in (machine, gpu):
        (got,) = _run(device, layer_norm(6, 40), x, factor, summand)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_rows_hold_to_nan_and_infinity(machine: Machine, gpu: Machine) -> None:
    x = np.ones((5, 64), np.float32)
    x[0, 7], x[1, 63], x[2] = np.nan, np.inf, -np.inf
    x[3, 1] = -np.inf
    with np.errstate(invalid="ignore"):
        wanted = _softmax(x)
    for device in (machine, gpu):
        (got,) = _run(device, softmax(5, 64), x)
        np.testing.assert_allclose(got, wanted, rtol=3e-6)


def test_a_row_over_a_sum_that_is_nothing_or_all(gpu: Machine) -> None:
    """Divisors whose reciprocals are of no use."""
    make = GraphBuilder(matrix(6, 64))
    total = make.op("sum", InputRef(0), by=ROWS)
    graph = make.graph(make.op("divide", InputRef(0), total))
    x = np.zeros((6, 64), np.float32)
    x[1, :2] = 1, -1
    x[2, 0], x[3, 0] = np.inf, 3e38
    x[4, 5] = 1e-36
    x[5, :3] = 5, 7, 9
    with np.errstate(all="ignore"):
        wanted = x / x.sum(1, keepdims=True)
    np.testing.assert_array_equal(_run(gpu, graph, x)[0], wanted)


def test_products_go_on_to_what_follows(machine: Machine, gpu: Machine, unfused: Machine) -> None:
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(20, 20)).astype(np.float32) / 4 for _ in range(3)]
    h = arrays[0].astype(np.float64)
    for w in arrays[1:]:
        h = np.maximum(h @ w, 0.5) + h
    graph = residual_layers(20, 2)
    for device in (machine, gpu):
        np.testing.assert_allclose(_run(device, graph, *arrays)[0], h, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(_run(machine, graph, *arrays), _run(unfused, graph, *arrays))


def test_a_batch_of_products_with_a_bias_and_both_results(machine: Machine, gpu: Machine) -> None:
    random = np.random.default_rng(0)
    left, right, bias = (
        random.normal(size=shape).astype(np.float32) for shape in ((3, 1, 5, 6), (2, 6, 7), (7,))
    )
    make = GraphBuilder(matrix(3, 1, 5, 6), matrix(2, 6, 7), matrix(7))
    product = make.op("matmul", InputRef(0), InputRef(1))
    graph = make.graph(
        product, make.op("add", make.op("multiply", product, scalar(0)), InputRef(2))
    )
    for device in (machine, gpu):
        plain, after = _run(device, graph, left, right, bias)
        np.testing.assert_allclose(plain, left @ right, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(after, left @ right * 0.5 + bias, rtol=1e-5, atol=1e-5)


def test_reductions_with_steps_before_and_after(machine: Machine, gpu: Machine) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 12, 64)).astype(np.float32)
    make = GraphBuilder(matrix(12, 64), matrix(12, 64), matrix(12))
    products = make.op("multiply", InputRef(0), InputRef(1))
    sums = make.op("sum", products, by=ReduceAttributes((1,), False, dt.float32))
    after = make.op("subtract", make.op("multiply", sums, scalar(0)), InputRef(2))
    place = make.op(
        "argmax", make.op("abs", InputRef(0)), by=ArgReduceAttributes(0, False, dt.int32)
    )
    whole = make.op(
        "max",
        make.op("add", InputRef(0), scalar(0)),
        by=ReduceAttributes((0, 1), False, dt.float32),
    )
    graph = make.graph(after, make.op("add", place, place), whole)
    for device in (machine, gpu):
        got = _run(device, graph, x, y, x[:, 0].copy())
        np.testing.assert_allclose(got[0], (x * y).sum(1) * 0.5 - x[:, 0], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(got[1], 2 * np.abs(x).argmax(0))
        np.testing.assert_array_equal(got[2], (x + np.float32(0.5)).max())


@pytest.mark.parametrize("dtype", (dt.float32, dt.float64, dt.float16), ids=str)
def test_chains_are_neither_contracted_nor_simplified(
    machine: Machine, unfused: Machine, dtype: dt.DType
) -> None:
    """What compilers would make of a * b + c, (a + b) - a, x - x, and of rounding to float16."""
    type_ = TensorType(dtype, (400,))
    make = GraphBuilder(type_, type_, type_)
    a, b, c = (InputRef(number) for number in range(3))
    outputs = (
        make.op("add", make.op("multiply", a, b), c),
        make.op("subtract", make.op("add", a, b), a),
        make.op("subtract", a, a),
        make.op("multiply", make.op("divide", a, b), b),
        make.op("log1p", make.op("subtract", make.op("square", a), make.op("square", c))),
    )
    random = np.random.default_rng(0)
    arrays = [random.normal(size=400).astype(dtype.numpy) for _ in range(3)]
    arrays[0][:4] = np.inf, -np.inf, np.nan, 0
    arrays[1][5] = 1e-3
    graph = make.graph(*outputs)
    assert machine.lowering.describe(graph).startswith("1 launches")
    for one, other in zip(
        _run(machine, graph, *arrays), _run(unfused, graph, *arrays), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_signs_of_widened_integers(machine: Machine) -> None:
    make = GraphBuilder(TensorType(dt.int32, (8,)))
    wide = make.op("cast", InputRef(0), by=CastAttributes(dt.int64))
    graph = make.graph(make.op("sign", wide), make.op("abs", wide))
    x = np.array([-3, 3, 0, -1, 5, -(2**31), 2**31 - 1, -7], np.int32)
    sign, magnitude = _run(machine, graph, x)
    np.testing.assert_array_equal(sign, np.sign(x.astype(np.int64)))
    np.testing.assert_array_equal(magnitude, np.abs(x.astype(np.int64)))


def test_a_plan_too_large_for_shared_kernels_runs_node_by_node(machine: Machine) -> None:
    small = machine.assuming(max_binding_bytes=2048)
    x = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    assert small.lowering.describe(softmax(16, 16)).startswith("1 launches")
    make = GraphBuilder(matrix(64, 16))
    most = make.op("max", make.op("slice", InputRef(0), by=FIRST_ROW), by=ROWS)
    graph = make.graph(make.op("exp", make.op("subtract", InputRef(0), most)))
    np.testing.assert_allclose(_run(small, graph, x)[0], np.exp(x - x[0].max()), rtol=1e-6)
    # The rows of all of x at once are more than a binding holds; node by node all but the maxima
    # can be taken in parts, so that it is the maxima that are named.
    with pytest.raises(LaunchError, match=r"^max reaches over 4096 bytes"):
        _run(small, softmax(64, 16), x)


def test_rows_that_a_kernel_cannot_store_run_node_by_node(machine: Machine) -> None:
    """Results of half a word each, from a matrix that lies in memory the other way round."""
    make = GraphBuilder(matrix(6, 8))
    shifted = make.op("subtract", InputRef(0), make.op("max", InputRef(0), by=ROWS))
    graph = make.graph(make.op("cast", shifted, by=CastAttributes(dt.float16)))
    x = np.arange(48, dtype=np.float32).reshape(8, 6).T
    assert machine.lowering.describe(graph).startswith("1 launches")
    assert machine.lowering.describe(graph, [((1, 6), 0)]).startswith("3 launches")
    for array in (x, x.copy()):
        (got,) = _run(machine, graph, array)
        np.testing.assert_array_equal(got, (x - x.max(1, keepdims=True)).astype(np.float16))


def test_deep_graphs(machine: Machine) -> None:
    """Deeper than Python's stack, and than one kernel."""
    make = GraphBuilder(matrix(3))
    x: ValueRef = InputRef(0)
    for number in range(1500):
        x = make.op(
            "reshape", make.op("add", x, scalar(0)), by=ShapeAttributes(((3, 1), (3,))[number % 2])
        )
    (got,) = _run(machine, make.graph(x), np.zeros(3, np.float32))  # type: ignore[arg-type]
    np.testing.assert_array_equal(got, np.full(3, 750, np.float32))


def test_operations_are_counted_by_class(machine: Machine) -> None:
    lowering = Lowering(machine.server)
    make = GraphBuilder(matrix(4, 4))
    product = make.op("matmul", InputRef(0), InputRef(0))
    after = make.op("tanh", make.op("add", product, scalar(0)))
    alone = make.op("sum", after, by=ReduceAttributes((0, 1), False, dt.float32))
    graph = make.graph(after, alone)
    value = machine.upload(np.ones((4, 4), np.float32))
    for _ in range(3):
        lowering.execute(graph, [value], [HALF], 0)
    assert lowering.operations.fused() == {OpClass.MATMUL: 3, OpClass.ELEMENTWISE: 6}
    assert lowering.operations.unfused() == {OpClass.REDUCTION: 3}


@settings(max_examples=25, derandomize=True, deadline=None)
@given(st.data())
def test_random_graphs(machine: Machine, unfused: Machine, data: st.DataObject) -> None:
    case = random_graph(lambda n: data.draw(st.integers(0, n - 1)), nodes=8)
    with np.errstate(all="ignore"):
        wanted = on_numpy(case)
        scale = largest([*case.inputs, *wanted])
    inputs = [machine.view(array) for array in case.inputs]
    fused = machine.execute(case.graph, inputs, case.scalars)
    plain = unfused.execute(case.graph, inputs, case.scalars)
    same, near = trusts(case.graph, kernels=True), trusts(case.graph, kernels=False)
    for output, one, other in zip(case.graph.outputs, fused, plain, strict=True):
        got = machine.download(one)
        what = f"%{output.index}"
        assert_agree(got, machine.download(other), same[output.index], scale=scale, what=what)
        if scale < 1e6:
            assert_agree(got, wanted[output.index], near[output.index], scale=scale, what=what)
