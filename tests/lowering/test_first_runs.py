"""A graph that may run once is fused at its first run only where that compiles less."""

from __future__ import annotations

import numpy as np
import pytest

from building_graphs import GraphBuilder, matrix, scalar
from gpuwire.compute.memory.manager import MIB
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import ALL_DTYPES
from gpuwire.ir.graphs import InputRef
from gpuwire.ir.operations import OpClass
from gpuwire.ir.tensors import Scalar, row_major_strides
from gpuwire.lowering import Lowering
from gpuwire.lowering.builder import KernelCache
from gpuwire.lowering.facts import DeviceFacts
from gpuwire.lowering.first_runs import MAX_MOVED_BYTES_SOFTWARE, FirstRuns
from gpuwire.lowering.planner import plan_graph
from gpuwire.lowering.steps import KernelStep
from lowered import Machine

FACTS = DeviceFacts(ALL_DTYPES, 1 << 27, 32, 1024, 32768, is_software=True)
NUMBERS = (Scalar(0.5, dt.float32),)


def chain(*names, count=64):
    """Operations on one array and one number, one after the other."""
    make = GraphBuilder(matrix(count))
    value = InputRef(0)
    for name in names:
        value = make.op(name, value, scalar(0))
    return make.graph(value)


class Choice:
    """What would be compiled so far, and the choice of plans by it."""

    def __init__(self):
        self.compiled = set()
        self.kernels = KernelCache()
        self.first_runs = FirstRuns(self.compiled.__contains__, is_software=True)

    def plan(self, graph, *, fuse):
        layouts = [(row_major_strides(type_.shape), 0) for type_ in graph.inputs]
        return plan_graph(graph, layouts, self.kernels, FACTS, fuse=fuse)

    def run(self, graph):
        """Run a graph for the first time; its fused plan, and whether it was by that."""
        fused = self.plan(graph, fuse=True)
        chosen = self.first_runs.chosen(fused, lambda: self.plan(graph, fuse=False))
        self.compile(chosen)
        return fused, chosen is fused

    def compile(self, plan):
        self.compiled |= {step.kernel for step in plan.steps if isinstance(step, KernelStep)}


def test_one_kernel_in_place_of_several_that_are_not_there_is_fused():
    _, was_fused = Choice().run(chain("add", "multiply", "subtract", "maximum"))
    assert was_fused


def test_kernels_that_are_there_are_used_first():
    choice = Choice()
    choice.compile(choice.plan(chain("add", "multiply"), fuse=False))
    _, was_fused = choice.run(chain("multiply", "add"))
    assert not was_fused
    choice.compile(choice.plan(chain("multiply", "add"), fuse=True))
    _, was_fused = choice.run(chain("multiply", "add"))
    assert was_fused


def test_what_was_fused_in_vain_speaks_for_single_operations():
    choice = Choice()
    first, was_fused = choice.run(chain("add", "multiply", "subtract", "maximum"))
    assert was_fused
    _, was_fused = choice.run(chain("multiply", "subtract", "maximum", "add"))
    assert not was_fused
    again = Choice()
    first, _ = again.run(chain("add", "multiply", "subtract", "maximum"))
    again.first_runs.ran_again(first)
    _, was_fused = again.run(chain("multiply", "subtract", "maximum", "add"))
    assert was_fused


def test_passes_over_much_memory_cost_more_than_a_kernel():
    choice = Choice()
    count = MAX_MOVED_BYTES_SOFTWARE // 8
    graph = chain("add", "multiply", count=count)
    choice.compile(choice.plan(graph, fuse=False))
    _, was_fused = choice.run(graph)
    assert was_fused


@pytest.fixture
def lowering(machine):
    return Lowering(machine.server)


def run_single(lowering, x, *names):
    for name in names:
        lowering.execute(chain(name), [x], NUMBERS, 0)


def test_the_second_run_is_fused_and_gives_the_same(machine, lowering):
    x = machine.upload(np.arange(64, dtype=np.float32))
    run_single(lowering, x, "add", "multiply", "subtract")
    graph = chain("add", "multiply", "subtract")
    for fused, unfused in ((0, 6), (3, 6), (6, 6)):
        (found,) = lowering.execute(graph, [x], NUMBERS, 0, recurs=False)
        wanted = (np.arange(64, dtype=np.float32) + 0.5) * 0.5 - 0.5
        np.testing.assert_array_equal(machine.download(found), wanted)
        assert lowering.operations.fused().get(OpClass.ELEMENTWISE, 0) == fused
        assert lowering.operations.unfused()[OpClass.ELEMENTWISE] == unfused


def test_what_is_known_to_recur_is_fused_at_once(machine, lowering):
    x = machine.upload(np.ones(64, np.float32))
    run_single(lowering, x, "add", "multiply", "subtract")
    lowering.execute(chain("add", "multiply", "subtract"), [x], NUMBERS, 0)
    assert lowering.operations.fused() == {OpClass.ELEMENTWISE: 3}


def test_where_single_results_do_not_fit_the_fused_ones_are_made(runtime_directory):
    machine = Machine()
    run_single(machine.lowering, machine.upload(np.ones(64, np.float32)), "add", "multiply")
    count = 4 * MIB // 4
    x = machine.upload(np.ones(count, np.float32))
    machine.server.sync().wait()
    machine.server.memory_cleanup()
    storage = machine.server._storage
    storage._limit = storage.reserved + 6 * MIB
    graph = chain("add", "multiply", "add", count=count)
    (found,) = machine.lowering.execute(graph, [x], NUMBERS, 0, recurs=False)
    assert machine.lowering.operations.fused() == {OpClass.ELEMENTWISE: 3}
    storage._limit = None
    np.testing.assert_array_equal(machine.download(found), np.full(count, 1.25, np.float32))
    machine.server.close()
