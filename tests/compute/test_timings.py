"""Profiling windows: nesting, failures, and both ways of measuring."""

from __future__ import annotations

import pytest

from gpuwire.compute import LaunchMode, WgpuServer
from gpuwire.compute.adapters import open_adapter
from gpuwire.compute.properties import (
    Backend,
    CompilationOptions,
    MemoryProperties,
    ServerUtilities,
    TimingMethod,
)
from gpuwire.config import MemoryConfig
from gpuwire.errors import ArgumentError, ExecutionError, KernelCompileError
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.telemetry.logs import disabled_logger

SLOW = """\
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var s = x[id.x % 64];
    for (var i = 0u; i < 20000u; i++) { s = s * 1.0001 + 0.5; }
    x[id.x % 64] = s;
}
"""


@pytest.fixture(params=[TimingMethod.DEVICE, TimingMethod.SYSTEM])
def timed(request, work):
    """Work on a server that measures in the one way, then in the other."""
    if request.param is TimingMethod.DEVICE:
        if work.server.timing_method is not TimingMethod.DEVICE:
            pytest.skip("the adapter has no timestamps")
        yield work
        return
    server = with_system_time()
    yield type(work)(server)
    server.close()


def with_system_time():
    opened = open_adapter(0)
    memory = MemoryProperties(256, opened.properties.max_buffer_bytes, None)
    return WgpuServer(
        memory,
        MemoryConfig(),
        CompilationOptions(),
        opened.device,
        64,
        Backend(opened.properties.backend),
        TimingMethod.SYSTEM,
        ServerUtilities(opened.properties, memory, disabled_logger("compute")),
    )


def slow(work, count=8):
    target = work.words(*range(64))
    kernel = Kernel("slow", SLOW, (Access.READ_WRITE,), (64, 1, 1))
    work.server.launch(kernel, 1, work.arguments((target,)), 0, LaunchMode.SKIP)
    work.server.launch(kernel, count, work.arguments((target,)))


def test_an_outer_window_is_no_shorter_than_what_lies_within(timed):
    slow(timed)
    outer = timed.server.start_profile()
    inner = timed.server.start_profile()
    slow(timed, 64)
    inner_time = timed.server.end_profile(0, inner)
    slow(timed, 64)
    outer_time = timed.server.end_profile(0, outer)
    assert 0 < inner_time.wait(60) <= outer_time.wait(60)


def test_windows_may_overlap(timed):
    first = timed.server.start_profile()
    slow(timed)
    second = timed.server.start_profile()
    slow(timed)
    first_time = timed.server.end_profile(0, first)
    slow(timed)
    second_time = timed.server.end_profile(0, second)
    assert first_time.wait(60) > 0
    assert second_time.wait(60) > 0


def test_a_window_at_launch_opens_with_the_next_launch(timed):
    token = timed.server.start_profile_at_launch()
    timed.words(1, 2, 3)
    slow(timed)
    assert timed.server.end_profile(0, token).wait(60) > 0


def test_a_window_at_launch_without_a_launch_says_so(timed):
    token = timed.server.start_profile_at_launch()
    with pytest.raises(ExecutionError, match="before any launch"):
        timed.server.end_profile(0, token).wait(60)
    slow(timed)


def test_a_failure_spoils_the_windows_it_lies_in_and_no_others(timed):
    source, target = timed.words(1), timed.words(2)
    outer = timed.server.start_profile()
    before = timed.server.start_profile()
    slow(timed)
    before_time = timed.server.end_profile(0, before)
    timed.fail(source, target)
    after = timed.server.start_profile()
    slow(timed)
    assert timed.server.end_profile(0, after).wait(60) > 0
    assert before_time.wait(60) > 0
    with pytest.raises(ExecutionError, match="means nothing") as raised:
        timed.server.end_profile(0, outer).wait(60)
    assert isinstance(raised.value.__cause__, KernelCompileError)


def test_an_abandoned_window_is_gone(timed):
    for token in (timed.server.start_profile(), timed.server.start_profile_at_launch()):
        timed.server.abandon_profile(0, token)
        with pytest.raises(ArgumentError, match=str(token)):
            timed.server.end_profile(0, token)
        with pytest.raises(ArgumentError, match=str(token)):
            timed.server.abandon_profile(0, token)
    slow(timed)


def test_a_window_of_another_stream_is_not_this_ones(timed):
    token = timed.server.start_profile(1)
    with pytest.raises(ArgumentError, match=str(token)):
        timed.server.end_profile(0, token)
    timed.server.abandon_profile(1, token)
