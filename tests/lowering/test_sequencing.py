"""Which steps of a plan are queued in one call."""

from __future__ import annotations

import numpy as np

from building_graphs import GraphBuilder, matrix, residual_layers, scalar
from gpuwire.compute.sequences import BufferRange
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.graphs import InputRef
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar, TensorType, row_major_strides
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.lowering import Lowering
from gpuwire.lowering.builder import KernelCache
from gpuwire.lowering.facts import device_facts
from gpuwire.lowering.layouts import placed_contiguously
from gpuwire.lowering.planner import plan_graph
from gpuwire.lowering.sequencing import MAX_HELD_BYTES, MAX_LAUNCHES, sequenced
from gpuwire.lowering.steps import (
    AllocateStep,
    HostStep,
    KernelStep,
    ReleaseStep,
    SequenceStep,
)

IMMEDIATES = 128


def launch(source, target, *, words=0, makers=(), size=16):
    kernel = Kernel("k", "", (Access.READ, Access.WRITE), (1, 1, 1), words)
    buffers = (BufferRange(source, 0, 16), BufferRange(target, 0, size))
    return KernelStep(kernel, 1, buffers, b"", makers)


def chain(count, *, size=16):
    """Each launch makes a slot of what the one before has made, which is let go of then."""
    steps = []
    for slot in range(1, count + 1):
        steps += [AllocateStep(slot, size), launch(slot - 1, slot, size=size)]
        if slot > 1:
            steps.append(ReleaseStep((slot - 1,)))
    return steps


def of(steps):
    return sequenced(steps, IMMEDIATES)


def test_steps_on_the_device_are_one_sequence():
    (part,) = of(chain(5))
    assert isinstance(part, SequenceStep)
    assert part.sequence is not None
    assert len(part.sequence.launches) == 5
    assert [slot for slot, _ in part.sequence.given] == [0]
    assert part.released == (1, 2, 3, 4)


def test_a_step_on_the_host_stands_between_two():
    type_ = TensorType(dt.float32, (4,))
    host = HostStep(
        OPERATIONS["sin"],
        NO_ATTRIBUTES,
        (placed_contiguously(1, type_),),
        placed_contiguously(2, type_),
    )
    steps = [*chain(1), AllocateStep(2, 16), host, AllocateStep(3, 16), launch(2, 3)]
    before, between, after = of(steps)
    assert between is host
    assert before.sequence is not None
    assert after.sequence is not None
    assert [slot for slot, _ in after.sequence.given] == [2]


def test_a_sequence_is_no_longer_than_a_submission():
    parts = of(chain(2 * MAX_LAUNCHES + 3))
    assert [len(part.sequence.launches) for part in parts] == [MAX_LAUNCHES, MAX_LAUNCHES, 3]


def test_long_plans_are_sequences_throughout(machine):
    """Their tensors take over memory from each other across the borders."""
    layers = 2 * MAX_LAUNCHES + 5
    graph = residual_layers(4, layers)
    layouts = [(row_major_strides(type_.shape), 0) for type_ in graph.inputs]
    facts = device_facts(machine.server.utilities().properties)
    plan = plan_graph(graph, layouts, KernelCache(), facts)
    assert sum(isinstance(step, KernelStep) for step in plan.steps) == layers
    assert all(part.sequence is not None for part in plan.parts)


def test_a_sequence_does_not_keep_much_memory_from_its_own_tensors():
    size = MAX_HELD_BYTES // 2 + 16
    parts = of(chain(7, size=size))
    assert all(part.sequence is not None for part in parts)
    assert [len(part.sequence.launches) for part in parts] == [3, 3, 1]
    assert len(of(chain(7, size=16))) == 1


def test_long_parameters_that_a_run_brings_stand_by_themselves():
    words = IMMEDIATES // 4 + 1
    makers = (lambda scalars: b"\0" * 4 * words,)
    alone = launch(1, 2, words=words, makers=makers)
    steps = [*chain(1), AllocateStep(2, 16), alone, AllocateStep(3, 16), launch(2, 3)]
    before, between, after = of(steps)
    assert between is alone
    assert before.sequence is not None
    assert after.sequence is not None
    fixed = launch(1, 2, words=words)
    assert len(of([*chain(1), AllocateStep(2, 16), fixed])) == 1


class Observer:
    def before(self, kernel, stream):
        self.launches = getattr(self, "launches", 0) + 1

    def after(self, kernel, stream):
        pass


def test_launches_one_by_one_give_the_same(machine):
    """While launches are observed each is told of, and none is queued with others."""
    graph = residual_layers(8, 5)
    random = np.random.default_rng(0)
    inputs = [
        machine.upload(random.uniform(-1, 1, type_.shape).astype(np.float32))
        for type_ in graph.inputs
    ]
    zero = (Scalar(0.0, dt.float32),)
    (together,) = machine.execute(graph, inputs, zero)
    observer = Observer()
    machine.server.observe_launches(observer)
    try:
        (single,) = machine.execute(graph, inputs, zero)
    finally:
        machine.server.observe_launches(None)
    assert observer.launches == 5
    np.testing.assert_array_equal(machine.download(single), machine.download(together))


def test_scalars_that_change_reach_the_kernels(machine):
    lowering = Lowering(machine.server)
    make = GraphBuilder(matrix(4))
    graph = make.graph(make.op("multiply", make.op("add", InputRef(0), scalar(0)), scalar(1)))
    x = machine.upload(np.arange(4, dtype=np.float32))
    same = (Scalar(1.0, dt.float32), Scalar(2.0, dt.float32))
    for scalars in (same, same, [*same], (Scalar(3.0, dt.float32), same[1]), same):
        (found,) = lowering.execute(graph, [x], scalars, 0)
        wanted = (np.arange(4, dtype=np.float32) + scalars[0].value) * 2
        np.testing.assert_array_equal(machine.download(found), wanted)
