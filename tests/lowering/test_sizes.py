"""What is too large is refused before it is planned: planning takes no time that grows with it."""

from __future__ import annotations

import numpy as np
import pytest

from building_graphs import GraphBuilder, matrix, scalar
from gpuwire.errors import LaunchError, OutOfMemory
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    ArgReduceAttributes,
    AxisAttributes,
    ReduceAttributes,
    ShapeAttributes,
)
from gpuwire.ir.dtypes import ALL_DTYPES
from gpuwire.ir.graphs import InputRef
from gpuwire.ir.tensors import Scalar
from gpuwire.lowering.builder import MAX_LAUNCHES, KernelCache
from gpuwire.lowering.facts import DeviceFacts
from gpuwire.lowering.planner import plan_graph
from gpuwire.lowering.steps import KernelStep

HUGE = 1 << 42
"""Elements. In launches of one binding each they would be 131,072 launches."""
SOFTWARE, GPU = (
    DeviceFacts(
        ALL_DTYPES, 1 << 27, 32, 1024, 32768, is_software=software, max_tensor_bytes=1 << 31
    )
    for software in (True, False)
)


def wide(make, *shape):
    """One number, seen as that many."""
    return make.op("broadcast_to", InputRef(0), by=ShapeAttributes(shape))


def plan(graph, facts):
    return plan_graph(graph, [((1,), 0)], KernelCache(), facts)


@pytest.mark.parametrize("facts", [SOFTWARE, GPU], ids=["software", "gpu"])
@pytest.mark.parametrize("name", ["elementwise", "full", "concat", "outer"])
def test_results_that_no_buffer_holds_are_out_of_memory(facts, name):
    make = GraphBuilder(matrix(1))
    match name:
        case "elementwise":
            made = make.op("abs", make.op("add", wide(make, HUGE), scalar(0)))
        case "full":
            made = make.op("full", scalar(0), by=ShapeAttributes((HUGE,)))
        case "concat":
            made = make.op("concat", *[wide(make, HUGE)] * 2, by=AxisAttributes(0))
        case "outer":
            made = make.op("matmul", wide(make, HUGE, 1), wide(make, 1, HUGE))
    with pytest.raises(OutOfMemory, match="one tensor holds at most 2147483648") as raised:
        plan(make.graph(make.op("negative", made)), facts)
    assert raised.value.limit == 1 << 31
    assert raised.value.wanted >= 4 * HUGE


@pytest.mark.parametrize("facts", [SOFTWARE, GPU], ids=["software", "gpu"])
@pytest.mark.parametrize("name", ["sum", "max", "argmax"])
def test_kernels_do_not_count_beyond_32_bits(facts, name):
    """One number can be seen as 2^42 without memory; taken modulo 2^32 they would be none."""
    by = {"argmax": ArgReduceAttributes(0, False, dt.int32)}
    make = GraphBuilder(matrix(1))
    reduced = make.op(
        name, wide(make, HUGE), by=by.get(name, ReduceAttributes((0,), False, dt.float32))
    )
    with pytest.raises(LaunchError, match="count to 4398046511104"):
        plan(make.graph(reduced), facts)


def test_a_product_is_not_split_into_millions():
    make = GraphBuilder(matrix(1))
    product = make.op("matmul", wide(make, 1, HUGE), wide(make, HUGE, 1))
    with pytest.raises(LaunchError, match="matmul would take 134217728 launches"):
        plan(make.graph(product), SOFTWARE)


def test_an_operation_is_not_split_into_more_launches_than_planning_can_bear():
    facts = DeviceFacts(ALL_DTYPES, 1 << 12, 32, 1024, 32768, is_software=True)
    make = GraphBuilder(matrix(1))
    with pytest.raises(LaunchError, match="launches"):
        plan(make.graph(make.op("negative", wide(make, 1 << 36))), facts)
    make = GraphBuilder(matrix(1))
    split = plan(make.graph(make.op("negative", wide(make, 1 << 20))), facts)
    launches = sum(isinstance(step, KernelStep) for step in split.steps)
    assert 1024 < launches <= MAX_LAUNCHES


def test_what_is_huge_and_never_lies_in_memory_is_no_matter(machine):
    """A view of any size has a small part, and that is worked on."""
    make = GraphBuilder(matrix(1))
    view = make.op("reshape", wide(make, HUGE), by=ShapeAttributes((1 << 21, 1 << 21)))
    graph = make.graph(view)
    (found,) = machine.execute(graph, [machine.upload(np.ones(1, np.float32))])
    assert found.type.size == HUGE
    make = GraphBuilder(matrix(1))
    failing = make.graph(make.op("add", wide(make, HUGE), scalar(0)))
    one = [machine.upload(np.ones(1, np.float32))]
    with pytest.raises(OutOfMemory):
        machine.execute(failing, one, [Scalar(1.0, dt.float32)])
    assert machine.download(machine.apply("negative", one[0])).tolist() == [-1.0]
