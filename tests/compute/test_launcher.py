"""Launches: counts, parameters, bindings, and what is refused."""

from __future__ import annotations

import asyncio
import itertools
import struct

import numpy as np
import pytest

from gpuwire.compute import Binding, Handle, Indirect, LaunchArguments, LaunchMode
from gpuwire.compute.launcher import folded
from gpuwire.errors import (
    ArgumentError,
    InvalidHandle,
    KernelCompileError,
    LaunchError,
    UnsupportedFeature,
)
from gpuwire.kernels.kernel import Access, Kernel

COUNTING = """\
@group(0) @binding(0) var<storage, read_write> seen: array<atomic<u32>>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>) {
    let i = (wid.z * count.y + wid.y) * count.x + wid.x;
    if (i < params[0].x) { atomicAdd(&seen[0], 1u); atomicMax(&seen[1], i); }
}
"""
ECHO = """\
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1)
fn main() {{ for (var i = 0u; i < {words}u; i++) {{ out[i] = params[i / 4][i % 4]; }} }}
"""
OUT_OF_BOUNDS = """\
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = 7u; }
"""


def test_a_kernel_computes(work):
    source, target = work.words(*range(100)), work.empty(400)
    work.add(source, target, 5)
    assert work.get_words(target) == list(range(5, 105))


@pytest.mark.parametrize("count", [1, 65_535, 65_536, 70_001, 200_000])
def test_a_linear_count_runs_each_workgroup_once(work, count):
    kernel = Kernel("counting", COUNTING, (Access.READ_WRITE,), (1, 1, 1), 1)
    seen = work.words(0, 0)
    work.server.launch(kernel, count, work.arguments((seen,), (count,)))
    assert work.get_words(seen) == [count, count - 1]


@pytest.mark.parametrize("count", [65_536, 131_071, 65_535**2, 65_535**2 + 1, 10**13])
def test_folding_covers_the_count_within_the_limit(count):
    x, y, z = folded(count, 65_535)
    assert x * y * z >= count
    assert max(x, y, z) <= 65_535
    assert x * y * z - count < x * y


def test_an_explicit_grid_and_counts_from_the_device_run_as_many(work):
    kernel = Kernel("counting", COUNTING, (Access.READ_WRITE,), (1, 1, 1), 1)
    seen, counts = work.words(0, 0), work.words(0, 3, 4, 5)
    work.server.launch(kernel, (2, 3, 1), work.arguments((seen,), (100,)))
    indirect = Indirect(Binding(counts, 4, 12))
    work.server.launch(kernel, indirect, work.arguments((seen,), (100,)))
    assert work.get_words(seen) == [66, 59]


@pytest.mark.parametrize("words", [1, 3, 4, 32, 33, 200])
def test_parameters_arrive_as_immediates_or_as_a_uniform(work, words):
    kernel = Kernel("echo", ECHO.format(words=words), (Access.READ_WRITE,), (1, 1, 1), words)
    for start in (1, 1000):
        values = list(range(start, start + words))
        out = work.empty(words * 4)
        work.server.launch(kernel, 1, work.arguments((out,), values))
        assert work.get_words(out) == values


def test_many_different_uniforms_keep_apart(work):
    kernel = Kernel("echo", ECHO.format(words=100), (Access.READ_WRITE,), (1, 1, 1), 100)
    outs = []
    for number in range(300):
        outs.append(work.empty(400))
        work.server.launch(kernel, 1, work.arguments((outs[-1],), [number] * 100))
    assert [work.get_words(out)[99] for out in outs] == list(range(300))


def test_one_page_may_be_read_and_written_by_one_launch(work):
    handles = [work.words(number) for number in range(4)]
    for source, target in itertools.pairwise(handles):
        work.add(source, target, 10)
    assert [work.get_words(handle)[0] for handle in handles] == [0, 10, 20, 30]


def test_bindings_may_start_within_a_buffer(work):
    alignment = work.server.utilities().memory.alignment
    source = work.put(np.arange(alignment, dtype=np.uint32))
    target = work.empty(4)
    arguments = LaunchArguments(
        (Binding(source, alignment, 4), work.binding(target)), struct.pack("<2I", 1, 0)
    )
    work.server.launch(work.add_kernel, 1, arguments)
    assert work.get_words(target) == [alignment // 4]


def test_writing_out_of_bounds_touches_no_neighbour(work):
    handles = [work.put(np.full(8, number, np.uint32)) for number in range(9)]
    kernel = Kernel("out of bounds", OUT_OF_BOUNDS, (Access.READ_WRITE,), (64, 1, 1))
    work.server.launch(kernel, 4, work.arguments((handles[4],)))
    for number, handle in enumerate(handles):
        assert work.get_words(handle) == [7 if number == 4 else number] * 8


def test_what_is_declared_read_only_cannot_be_written(work):
    """Buffers are all bound as writable; a source that was not written here is held to its word."""
    writes = work.add_kernel.source.replace("target_[i] = source[i]", "source[i] = target_[i]")
    kernel = Kernel("writes its input", writes, work.add_kernel.access, (64, 1, 1), 2)
    source, target = work.words(1), work.words(0)
    work.server.launch(kernel, 1, work.arguments((source, target), (1, 1)))
    with pytest.raises(KernelCompileError, match="for a store"):
        work.get(target)
    assert work.get_words(source) == [1]


def test_skip_compiles_and_runs_nothing(work):
    target = work.words(1)
    kernel = Kernel("zero", OUT_OF_BOUNDS, (Access.READ_WRITE,), (64, 1, 1))
    work.server.launch(kernel, 1, work.arguments((target,)), 0, LaunchMode.SKIP)
    assert work.get_words(target) == [1]


def test_queue_waits_for_compile_queued(work):
    target = work.words(1)
    kernel = Kernel("zero", OUT_OF_BOUNDS, (Access.READ_WRITE,), (64, 1, 1))
    work.server.launch(kernel, 1, work.arguments((target,)), 0, LaunchMode.QUEUE)
    work.server.compile_queued()
    assert work.get_words(target) == [1]


def test_a_kernel_that_does_not_compile_taints_its_outputs_with_the_line(work):
    source, target, other = work.words(1), work.words(2), work.words(3)
    work.fail(source, target)
    with pytest.raises(KernelCompileError) as raised:
        work.get(target)
    assert raised.value.kernel == "broken"
    assert raised.value.line == 4
    assert "sauce" in raised.value.compiler
    with pytest.raises(KernelCompileError):
        work.server.check([work.binding(target)])
    with pytest.raises(KernelCompileError):
        work.server.sync([target]).wait(60)
    with pytest.raises(KernelCompileError):
        work.server.flush()
    work.server.flush()
    work.add(source, other, 1)
    assert work.get_words(other) == [2]


def test_awaiting_a_tainted_read_raises_too(work):
    source, target = work.words(1), work.words(2)
    work.fail(source, target)

    async def read() -> None:
        await work.server.read([work.descriptor(target, 4)])

    with pytest.raises(KernelCompileError):
        asyncio.run(read())


@pytest.mark.parametrize(
    ("source", "entry_point", "access"),
    [
        (OUT_OF_BOUNDS, "nothing", (Access.READ_WRITE,)),
        (OUT_OF_BOUNDS, "main", ()),
        (OUT_OF_BOUNDS.replace("(64)", "(100000)"), "main", (Access.READ_WRITE,)),
        ("", "main", (Access.READ_WRITE,)),
        (OUT_OF_BOUNDS.replace("binding(0)", "binding(5)"), "main", (Access.READ_WRITE,)),
    ],
)
def test_kernels_that_cannot_be_are_compile_errors(work, source, entry_point, access):
    kernel = Kernel("impossible", source, access, (64, 1, 1), 0, entry_point)
    target = work.words(1)
    handles = (target,) if access else ()
    work.server.launch(kernel, 1, work.arguments(handles))
    with pytest.raises(KernelCompileError, match="impossible"):
        work.server.flush()


def test_a_feature_that_the_adapter_lacks_is_named(work):
    needs = frozenset({"warp-drive"})
    kernel = Kernel("needy", OUT_OF_BOUNDS, (Access.READ_WRITE,), (64, 1, 1), features=needs)
    target = work.words(1)
    work.server.launch(kernel, 1, work.arguments((target,)))
    with pytest.raises(UnsupportedFeature, match="warp-drive"):
        work.get(target)


def test_too_many_bindings_are_refused_by_name(work):
    count = work.server.utilities().properties.max_buffers + 1
    kernel = Kernel("greedy", OUT_OF_BOUNDS, (Access.READ_WRITE,) * count, (64, 1, 1))
    handles = [work.words(1) for _ in range(count)]
    work.server.launch(kernel, 1, work.arguments(handles))
    with pytest.raises(LaunchError, match="greedy"):
        work.server.flush()


@pytest.mark.parametrize("count", [0, -1, 65_536**3, (0, 1, 1), (1, 70_000, 1), (1, 1)])
def test_counts_that_cannot_be_are_refused(work, count):
    source, target = work.words(1), work.words(2)
    with pytest.raises(LaunchError, match="workgroups"):
        work.server.launch(work.add_kernel, count, work.arguments((source, target), (1, 1)))
    assert work.get_words(target) == [2]


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 0), (0, -4), (-32, 4), (4, 4), (0, 4096), (1 << 20, 4), (0, 1 << 40)]
)
def test_bindings_that_cannot_be_are_refused(work, offset, size):
    source, target = work.words(1), work.words(2)
    arguments = LaunchArguments(
        (work.binding(source), Binding(target, offset, size)), struct.pack("<2I", 1, 1)
    )
    with pytest.raises(LaunchError, match="add"):
        work.server.launch(work.add_kernel, 1, arguments)
    assert work.get_words(target) == [2]


def test_wrong_numbers_of_buffers_and_parameters_are_refused(work):
    source, target = work.words(1), work.words(2)
    with pytest.raises(LaunchError, match="2 buffers, not 1"):
        work.server.launch(work.add_kernel, 1, work.arguments((source,), (1, 1)))
    with pytest.raises(LaunchError, match="8 bytes of parameters, not 4"):
        work.server.launch(work.add_kernel, 1, work.arguments((source, target), (1,)))


def test_a_buffer_smaller_than_the_kernels_type_is_refused_and_harms_no_batch(work):
    wide = OUT_OF_BOUNDS.replace("array<u32>", "array<vec4<f32>, 4>").replace("7u", "vec4(7f)")
    kernel = Kernel("wide", wide, (Access.READ_WRITE,), (64, 1, 1))
    source, target, small = work.words(1), work.words(2), work.words(3)
    work.add(source, target, 1)
    with pytest.raises(LaunchError, match="wide"):
        work.server.launch(kernel, 1, work.arguments((small,)))
    assert work.get_words(target) == [2]


def test_handles_without_memory_or_of_another_server_are_refused(work, fresh_work):
    target, foreign = work.words(1), fresh_work.words(1)
    for bad in (Handle(), foreign):
        arguments = LaunchArguments(
            (Binding(bad, 0, 4), work.binding(target)), struct.pack("<2I", 1, 1)
        )
        with pytest.raises(InvalidHandle):
            work.server.launch(work.add_kernel, 1, arguments)


@pytest.mark.parametrize("size", [0, -1])
def test_memory_of_no_bytes_is_refused(work, size):
    with pytest.raises(ArgumentError, match="at least 1"):
        work.server.initialize_memory(Handle(), size)


@pytest.mark.parametrize(("offset", "size"), [(0, 8), (8, 12), (2, 12), (-4, 12)])
def test_counts_on_the_device_need_their_twelve_bytes(work, offset, size):
    counts, target = work.words(1, 1, 1), work.words(0)
    kernel = Kernel("counting", COUNTING, (Access.READ_WRITE,), (1, 1, 1), 1)
    with pytest.raises(LaunchError, match="12 bytes"):
        work.server.launch(
            kernel, Indirect(Binding(counts, offset, size)), work.arguments((target,), (1,))
        )
