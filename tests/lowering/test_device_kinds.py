"""Plans made for other devices than the one at hand: kernels that only a GPU is given, limits that
only a small device has."""

from __future__ import annotations

import numpy as np
import pytest

from building_graphs import GraphBuilder, matrix
from gpuwire.errors import LaunchError, UnsupportedDType
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import ArgReduceAttributes, CastAttributes, ReduceAttributes
from gpuwire.ir.graphs import InputRef
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.kernels.matmul_spec import Tile
from gpuwire.lowering import plan_transposing
from gpuwire.lowering.facts import BINDING_ALIGNMENT, ReductionShape
from lowered import Machine


@pytest.fixture(scope="module")
def gpu(machine: Machine) -> Machine:
    return machine.assuming(is_software=False)


def test_reductions_by_workgroups(gpu: Machine) -> None:
    random = np.random.default_rng(0)
    for shape in ((3, 300), (2, 5000), (40_003,), (40_000,)):
        values = random.uniform(-1, 1, shape).astype(np.float32)
        axis = len(shape) - 1
        got = gpu.run("sum", values, attributes=ReduceAttributes((axis,), False, dt.float32))
        np.testing.assert_allclose(got, values.sum(axis, np.float64), rtol=1e-4, atol=1e-4)
        values[..., 77] = np.nan
        reduce = ArgReduceAttributes(axis, False, dt.int32)
        np.testing.assert_array_equal(
            gpu.run("argmax", values, attributes=reduce), values.argmax(axis)
        )
        whole = (values > 0.99).astype(np.int8)
        got = gpu.run("any", whole, attributes=ReduceAttributes((axis,), False, dt.bool_))
        np.testing.assert_array_equal(got, whole.any(axis))
        got = gpu.run("sum", whole[..., ::-1], attributes=ReduceAttributes((axis,), False, dt.int8))
        np.testing.assert_array_equal(got, whole.sum(axis, dtype=np.int8))
    values = random.uniform(0, 1, (5, 70)).astype(np.float16)
    got = gpu.run("mean", values, attributes=ReduceAttributes((1,), False, dt.float16))
    np.testing.assert_allclose(got, values.mean(1, np.float64), rtol=1e-3)


def test_reductions_whose_parts_take_turns(machine: Machine) -> None:
    shape = ReductionShape(workers=1 << 12, workgroup_size=128, unroll=8, interleaved=True)
    gpu = machine.assuming(is_software=False, reductions=shape)
    values = np.random.default_rng(0).uniform(-1, 1, (2, 70_000)).astype(np.float32)
    for array, form in ((values, "quads_by8_turns"), (values[:, :-1], "group128_by8_turns")):
        reduce = ReduceAttributes((1,), False, dt.float32)
        got = gpu.run("sum", array, attributes=reduce)
        np.testing.assert_allclose(got, array.sum(1, np.float64), rtol=1e-4, atol=1e-4)
        best = ArgReduceAttributes(1, False, dt.int32)
        np.testing.assert_array_equal(gpu.run("argmax", array, attributes=best), array.argmax(1))
        make = GraphBuilder(matrix(*array.shape))
        graph = make.graph(make.op("sum", InputRef(0), by=reduce))
        assert form in gpu.lowering.describe(graph)


@pytest.mark.parametrize("unroll", [4, 8])
def test_products_with_steps_written_out(machine: Machine, unroll: int) -> None:
    tile = Tile(64, 64, 8, 8, 8, unroll)
    gpu = machine.assuming(is_software=False, large_tile=tile)
    random = np.random.default_rng(0)
    # As many tiles as the device is to have workgroups, or another tile would be chosen.
    left = random.integers(-4, 4, (256, 64, 11)).astype(np.float32)
    right = random.integers(-4, 4, (256, 11, 64)).astype(np.float32)
    np.testing.assert_array_equal(gpu.run("matmul", left, right), left @ right)
    make = GraphBuilder(matrix(*left.shape), matrix(*right.shape))
    graph = make.graph(make.op("matmul", InputRef(0), InputRef(1)))
    assert f"64x64x8by{unroll}" in gpu.lowering.describe(graph)


@pytest.mark.parametrize("dtype", (dt.int8, dt.float16, dt.float32, dt.complex64), ids=str)
def test_transposes_through_tiles(
    gpu: Machine, dtype: dt.DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_transposing, "FEWEST_ELEMENTS", 1)
    cube = np.arange(24 * 40 * 36).reshape(24, 40, 36).astype(dtype.numpy)
    for view in (
        cube[0].T,
        cube.transpose(0, 2, 1),
        cube.transpose(2, 0, 1),
        cube.transpose(2, 1, 0)[::-1, :, ::-1],
        cube[:, :9, :].transpose(2, 1, 0),
    ):
        np.testing.assert_array_equal(gpu.download(gpu.view(view)), view)


def test_results_follow_the_memory_of_large_operands(gpu: Machine) -> None:
    values = np.arange(130 * 140, dtype=np.float32).reshape(130, 140)
    turned = gpu.view(values.T)
    result = gpu.apply("add", turned, Scalar(1.0, dt.float32))
    assert result.strides == (1, 140)
    np.testing.assert_array_equal(gpu.download(result), values.T + 1)
    mixed = gpu.apply("add", turned, gpu.upload(values.reshape(140, 130)))
    np.testing.assert_array_equal(gpu.download(mixed), values.T + values.reshape(140, 130))
    row = gpu.apply("multiply", turned, gpu.upload(values[0, :130]))
    np.testing.assert_array_equal(gpu.download(row), values.T * values[0, :130])


def test_operands_larger_than_a_binding_are_split(machine: Machine) -> None:
    small = machine.assuming(max_binding_bytes=8 * BINDING_ALIGNMENT)
    values = np.arange(3000, dtype=np.float32)
    bytes_ = np.arange(3000).astype(np.int8)
    np.testing.assert_array_equal(small.run("add", values, values), values + values)
    np.testing.assert_array_equal(small.run("add", bytes_, Scalar(3, dt.int8)), bytes_ + np.int8(3))
    np.testing.assert_array_equal(small.run("less", values, bytes_), values < bytes_)
    np.testing.assert_array_equal(
        small.run("cast", values[::-1], attributes=CastAttributes(dt.int16)), values[::-1]
    )
    matrix = values[:2944].reshape(46, 64)
    np.testing.assert_array_equal(small.run("add", matrix, values[:64]), matrix + values[:64])


def test_what_cannot_be_split_names_the_limit(machine: Machine) -> None:
    small = machine.assuming(max_binding_bytes=2 * BINDING_ALIGNMENT)
    values = np.ones((40, 40), np.float32)
    with pytest.raises(LaunchError, match="binds 512 at once"):
        small.run("matmul", values, values)
    with pytest.raises(LaunchError, match="binds 512 at once"):
        small.run("sum", values, attributes=ReduceAttributes((0, 1), False, dt.float32))


def test_types_the_device_lacks_are_refused_by_name(machine: Machine) -> None:
    dtypes = tuple(dtype for dtype in machine.lowering.dtypes if dtype is not dt.float64)
    poor = machine.assuming(dtypes=dtypes)
    assert dt.float64 not in poor.lowering.dtypes
    with pytest.raises(UnsupportedDType, match="no float64; use float32") as caught:
        poor.lowering.allocate(TensorType(dt.float64, (3,)), 0)
    assert caught.value.fields["instead"] == "float32"
    with pytest.raises(UnsupportedDType):
        poor.run("cast", np.ones(3, np.float32), attributes=CastAttributes(dt.float64))
