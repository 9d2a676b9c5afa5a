"""Which nodes share a kernel."""

from __future__ import annotations

import pytest

from building_graphs import ROWS, GraphBuilder, layer_norm, matrix, residual_layers, scalar, softmax
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    AxisAttributes,
    CastAttributes,
    PermuteAttributes,
    ReduceAttributes,
    ShapeAttributes,
)
from gpuwire.ir.dtypes import ALL_DTYPES
from gpuwire.ir.graphs import InputRef, OpGraph, ValueRef
from gpuwire.lowering.facts import DeviceFacts
from gpuwire.lowering.fusion.grouping import MAX_WEIGHT, grouped
from gpuwire.lowering.fusion.groups import Group, node_reads, weight_of
from gpuwire.lowering.fusion.merging import merged
from gpuwire.lowering.fusion.rewriting import rewritten
from random_graphs import random_graph, seeded

GPU = DeviceFacts(ALL_DTYPES, 1 << 31, 32, 1024, 49152, is_software=False)
SUM = ReduceAttributes((0, 1), False, dt.float32)


def _groups(graph: OpGraph, facts: DeviceFacts = GPU) -> tuple[Group, ...]:
    flow = rewritten(graph)
    return merged(flow, grouped(flow, facts), facts)


def _kinds(graph: OpGraph) -> list[str]:
    return [group.kind.value for group in _groups(graph)]


@pytest.mark.parametrize(
    ("graph", "kinds"),
    (
        (softmax(512, 1000), ["rows"]),
        (layer_norm(512, 1000), ["rows"]),
        (residual_layers(64, 3), ["product"] * 3),
    ),
    ids=("softmax", "layer norm", "layers"),
)
def test_what_is_known_by_name_elsewhere_is_found(graph: OpGraph, kinds: list[str]) -> None:
    assert _kinds(graph) == kinds


def test_a_row_by_itself_leaves_the_device_idle() -> None:
    assert "rows" not in _kinds(softmax(1, 1 << 20))
    assert _kinds(softmax(1, 1000)) == ["rows"]


def test_a_reduction_takes_in_what_comes_before_and_after() -> None:
    make = GraphBuilder(matrix(64, 64), matrix(64, 64))
    loss = make.op("sum", make.op("square", make.op("subtract", *map(InputRef, (0, 1)))), by=SUM)
    graph = make.graph(make.op("multiply", loss, scalar(0)))
    (group,) = _groups(graph)
    assert group.kind.value == "reduce" and group.stored == (3,)


def test_several_results_of_one_shape_share_a_kernel() -> None:
    make = GraphBuilder(matrix(64), matrix(64))
    moment = make.op("add", make.op("multiply", InputRef(0), scalar(0)), InputRef(1))
    step = make.op("tanh", moment)
    (group,) = _groups(make.graph(moment, step))
    assert group.stored == (1, 2)


def test_light_operations_are_done_again_heavy_ones_stored() -> None:
    for name, is_stored in (("negative", False), ("tanh", True)):
        make = GraphBuilder(matrix(64, 64))
        x = make.op(name, InputRef(0))
        sums = [
            make.op("sum", x, by=ReduceAttributes((axis,), False, dt.float32)) for axis in (0, 1)
        ]
        groups = _groups(make.graph(*sums))
        assert len(groups) == 2
        assert any(x.index in group.stored for group in groups) is is_stored


def test_a_result_that_is_read_across_is_not_handed_on_in_registers() -> None:
    make = GraphBuilder(matrix(64, 64))
    x = make.op("tanh", InputRef(0))
    turned = make.op("permute_dims", x, by=PermuteAttributes((1, 0)))
    graph = make.graph(make.op("add", x, turned), x)
    assert [group.stored for group in _groups(graph)] == [(0,), (2,)]


def test_a_square_matrix_of_row_sums_along_the_wrong_axis() -> None:
    """Sums of rows that are subtracted from columns: shapes fit, rows do not."""
    make = GraphBuilder(matrix(64, 64))
    sums = make.op("sum", InputRef(0), by=ReduceAttributes((1,), False, dt.float32))
    assert _kinds(make.graph(make.op("subtract", InputRef(0), sums))) == ["reduce", "map"]
    aligned = make.op("reshape", sums, by=ShapeAttributes((64, 1)))
    assert _kinds(make.graph(make.op("subtract", InputRef(0), aligned))) == ["rows"]


def test_narrow_results_are_kept_out_of_products() -> None:
    make = GraphBuilder(matrix(64, 64), matrix(64, 64))
    product = make.op("matmul", InputRef(0), InputRef(1))
    half = make.op("cast", product, by=CastAttributes(dt.float16))
    assert _kinds(make.graph(half)) == ["product", "map"]


def test_no_group_waits_for_itself_and_none_is_too_large() -> None:
    """Also where what lies between two groups could be of both."""
    make = GraphBuilder(matrix(64, 64))
    x = make.op("tanh", InputRef(0))
    product = make.op("matmul", x, x)
    graphs = [make.graph(make.op("add", make.op("exp", x), product), x)]
    graphs += [random_graph(seeded(seed), nodes=40).graph for seed in range(40)]
    long: ValueRef = InputRef(0)
    make = GraphBuilder(matrix(64, 64))
    for _ in range(MAX_WEIGHT):
        long = make.op("add", make.op("multiply", long, scalar(0)), long)
    graphs.append(make.graph(long))  # type: ignore[arg-type]
    for graph in graphs:
        flow = rewritten(graph)
        made: set[int] = set()
        for group in merged(flow, grouped(flow, GPU), GPU):
            assert node_reads(group) <= made
            assert len(group.reads) + len(group.stored) <= GPU.max_buffers
            assert weight_of(flow, group.members) <= MAX_WEIGHT
            made |= set(group.stored)


def test_operations_that_need_memory_end_a_kernel() -> None:
    make = GraphBuilder(matrix(4, 4))
    x = make.op("exp", InputRef(0))
    joined = make.op("concat", x, InputRef(0), by=AxisAttributes(0))
    total = make.op("sum", make.op("square", joined), by=ROWS)
    assert _kinds(make.graph(total)) == ["map", "single", "reduce"]
