"""Tensors share memory, and none is written over while it is still wanted."""

from __future__ import annotations

import numpy as np
import pytest

from building_graphs import residual_layers
from gpuwire.compute.sequences import BufferRange
from gpuwire.ir.dtypes import ALL_DTYPES
from gpuwire.ir.tensors import row_major_strides
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.lowering.builder import KernelCache
from gpuwire.lowering.facts import DeviceFacts
from gpuwire.lowering.memory_plan import with_releases, with_shared_memory
from gpuwire.lowering.planner import plan_graph
from gpuwire.lowering.steps import (
    AllocateStep,
    KernelStep,
    Plan,
    ReleaseStep,
    Step,
)

FACTS = DeviceFacts(ALL_DTYPES, 1 << 27, 32, 1024, 32768, is_software=True)


def _memory(plan: Plan) -> list[AllocateStep]:
    return [step for step in plan.steps if isinstance(step, AllocateStep)]


def test_layers_take_turns_on_two_pieces_of_memory() -> None:
    graph = residual_layers(16, 9)
    layouts = [(row_major_strides(type_.shape), 0) for type_ in graph.inputs]
    plan = plan_graph(graph, layouts, KernelCache(), FACTS)
    assert len(_memory(plan)) == 2


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_read_is_what_was_written_for_it(seed: int) -> None:
    """A random row of launches over tensors of random sizes and lifetimes."""
    random = np.random.default_rng(seed)
    inputs = 2
    sizes = {slot: int(random.choice([16, 64, 100, 1000, 4000])) for slot in range(2, 30)}
    steps: list[Step] = []
    for slot, size in sizes.items():
        reads = {int(random.integers(max(0, slot - 6), slot)) for _ in range(2)}
        steps += [AllocateStep(slot, size), _launch(reads, slot, sizes)]
    outputs = {int(slot) for slot in random.integers(2, 30, 4)}
    shared, places = with_shared_memory(steps, outputs, inputs)
    held = {slot: slot for slot in range(inputs)}
    capacity = {step.slot: step.size for step in shared if isinstance(step, AllocateStep)}
    launches = [step for step in shared if isinstance(step, KernelStep)]
    for step, before in zip(launches, [s for s in steps if isinstance(s, KernelStep)], strict=True):
        for part, original in zip(step.buffers, before.buffers, strict=True):
            assert part.slot < inputs or part.size <= capacity[part.slot]
            if original is before.buffers[-1]:
                held[part.slot] = original.slot
            else:
                assert held[part.slot] == original.slot
    assert all(held[places[slot]] == slot for slot in outputs)
    assert all(capacity[places[slot]] == sizes[slot] for slot in outputs)
    assert len(capacity) < len(sizes)
    released = [
        slot
        for step in with_releases(shared, {places[slot] for slot in outputs})
        if isinstance(step, ReleaseStep)
        for slot in step.slots
    ]
    assert len(set(released)) == len(released)
    assert not set(released) & {places[slot] for slot in outputs}


def _launch(reads: set[int], writes: int, sizes: dict[int, int]) -> KernelStep:
    buffers = tuple(BufferRange(slot, 0, sizes.get(slot, 16)) for slot in (*sorted(reads), writes))
    access = (Access.READ,) * len(reads) + (Access.WRITE,)
    return KernelStep(Kernel("k", "", access, (1, 1, 1)), 1, buffers, b"", ())
