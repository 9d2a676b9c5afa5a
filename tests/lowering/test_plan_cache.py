"""Plans are found again, by graph and by how inputs lie; the least recently used goes."""

from __future__ import annotations

import copy

import pytest

from building_graphs import GraphBuilder
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import ALL_DTYPES
from gpuwire.ir.graphs import InputRef
from gpuwire.ir.tensors import TensorType
from gpuwire.lowering.builder import KernelCache
from gpuwire.lowering.facts import DeviceFacts
from gpuwire.lowering.plan_cache import MAX_TWINS, PlanCache
from gpuwire.lowering.planner import plan_graph

FACTS = DeviceFacts(ALL_DTYPES, 1 << 27, 32, 1024, 32768, is_software=True)
CONTIGUOUS = (((1,), 0),)
STRIDED = (((2,), 0),)


def negated(length: int):
    make = GraphBuilder(TensorType(dt.float32, (length,)))
    return make.graph(make.op("negative", InputRef(0)))


def planned(graph, layouts=CONTIGUOUS):
    return plan_graph(graph, layouts, KernelCache(8), FACTS)


def lying(graph, layouts=CONTIGUOUS):
    return [(type_, *layout) for type_, layout in zip(graph.inputs, layouts, strict=True)]


def test_a_plan_is_found_by_graph_and_layout():
    cache, graph = PlanCache(4, 4), negated(3)
    plan, strided = planned(graph), planned(graph, STRIDED)
    cache.add(graph, CONTIGUOUS, plan)
    cache.add(graph, STRIDED, strided)
    assert cache.find(negated(3), CONTIGUOUS) is plan
    assert cache.find(graph, STRIDED) is strided
    assert cache.find(negated(4), CONTIGUOUS) is None


def test_inputs_that_lie_otherwise_are_not_those_of_the_last_time():
    cache, graph = PlanCache(4, 4), negated(3)
    plan = planned(graph)
    cache.add(graph, CONTIGUOUS, plan)
    assert cache.again(graph, lying(graph)) is None
    cache.remember(graph, lying(graph), plan)
    assert cache.again(graph, lying(copy.deepcopy(graph))) is plan
    assert cache.again(graph, lying(graph, STRIDED)) is None
    assert cache.again(graph, lying(negated(4))) is None
    assert cache.again(negated(3), lying(graph)) is None


def test_another_plan_for_the_same_takes_the_place_of_the_first():
    cache, graph = PlanCache(4, 4), negated(3)
    first, second = planned(graph), planned(graph)
    cache.add(graph, CONTIGUOUS, first)
    cache.remember(graph, lying(graph), first)
    cache.add(graph, CONTIGUOUS, second)
    assert cache.again(graph, lying(graph)) is None
    assert cache.find(graph, CONTIGUOUS) is second


@pytest.mark.parametrize("by", ["find", "again"])
def test_the_graph_that_was_not_used_for_longest_goes_first(by):
    cache = PlanCache(2, 4)
    old, middle, new = (negated(length) for length in (2, 3, 4))
    for graph in (old, middle):
        plan = planned(graph)
        cache.add(graph, CONTIGUOUS, plan)
        cache.remember(graph, lying(graph), plan)
    used = cache.find(old, CONTIGUOUS) if by == "find" else cache.again(old, lying(old))
    assert used is not None
    cache.add(new, CONTIGUOUS, planned(new))
    assert len(cache) == 2
    assert cache.find(middle, CONTIGUOUS) is None
    assert cache.again(middle, lying(middle)) is None
    assert cache.find(old, CONTIGUOUS) is not None


def test_layouts_of_one_graph_are_bounded_too():
    cache, graph = PlanCache(4, 2), negated(3)
    for step in (1, 2, 3):
        layouts = (((step,), 0),)
        cache.add(graph, layouts, planned(graph, layouts))
    found = [cache.find(graph, (((step,), 0),)) is not None for step in (1, 2, 3)]
    assert found == [False, True, True]


def test_plans_are_bounded_by_their_steps():
    cache = PlanCache(100, 100, max_steps=6)
    graphs = [negated(length) for length in range(1, 6)]
    for graph in graphs:
        plan = planned(graph)
        assert len(plan.steps) == 2
        cache.add(graph, CONTIGUOUS, plan)
        cache.add(graph, CONTIGUOUS, planned(graph))
    found = [cache.find(graph, CONTIGUOUS) is not None for graph in graphs]
    assert found == [False, False, True, True, True]
    large = PlanCache(100, 100, max_steps=1)
    large.add(graphs[0], CONTIGUOUS, planned(graphs[0]))
    assert large.find(graphs[0], CONTIGUOUS) is not None


def test_many_objects_of_one_graph_are_one_graph():
    cache, graph = PlanCache(1, 4), negated(3)
    plan = planned(graph)
    cache.add(graph, CONTIGUOUS, plan)
    for _ in range(3 * MAX_TWINS):
        assert cache.find(negated(3), CONTIGUOUS) is plan
    assert cache.find(graph, CONTIGUOUS) is plan
    cache.add(negated(4), CONTIGUOUS, planned(negated(4)))
    assert cache.find(graph, CONTIGUOUS) is None
    assert len(cache) == 1
