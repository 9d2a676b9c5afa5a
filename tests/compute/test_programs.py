"""Compiled kernels and bind groups are bounded, and the least recently used goes first."""

from __future__ import annotations

import pytest

from gpuwire.compute.programs import MAX_GROUPS, Programs
from gpuwire.kernels.kernel import Kernel

EMPTY = "@compute @workgroup_size(1) fn main() {}"


def kernels(count):
    return [Kernel(f"empty {number}", EMPTY, (), (1, 1, 1)) for number in range(count)]


@pytest.fixture
def three(fresh_work):
    """Programs of which three are kept."""
    return Programs(
        fresh_work.server._device,
        features=frozenset(),
        max_immediate_bytes=64,
        max_buffers=8,
        checked=True,
        max_programs=3,
    )


def test_the_program_that_was_not_used_for_longest_goes_first(three):
    a, b, c, d = kernels(4)
    for kernel in (a, b, c, a, d):
        three.program(kernel)
    assert [three.knows(kernel) for kernel in (a, b, c, d)] == [True, False, True, True]


def test_programs_that_a_bound_sequence_holds_go_last(three):
    a, b, c, d, e = kernels(5)
    for kernel in (a, b, c):
        three.program(kernel).held += kernel is a
    for kernel in (d, e):
        three.program(kernel)
    assert [three.knows(kernel) for kernel in (a, b, c, d, e)] == [True, False, False, True, True]
    for kernel in (d, e):
        three.program(kernel).held += 1
    three.program(b)
    assert sum(three.knows(kernel) for kernel in (a, b, c, d, e)) == 3


def test_the_bind_group_that_was_not_used_for_longest_goes_first(work):
    source = work.words(1)
    size = 16
    targets = [work.empty(size) for _ in range(MAX_GROUPS + 1)]
    kernel = Kernel("add", work.add_kernel.source, work.add_kernel.access, (64, 1, 1), 2)
    for target in targets[:-1]:
        work.server.launch(kernel, 1, work.arguments((source, target), (1, 1)))
    program = work.server._programs.program(kernel)
    first, second = tuple(program.groups)[:2]
    work.server.launch(kernel, 1, work.arguments((source, targets[0]), (1, 1)))
    work.server.launch(kernel, 1, work.arguments((source, targets[-1]), (1, 1)))
    assert len(program.groups) == MAX_GROUPS
    assert first in program.groups
    assert second not in program.groups
