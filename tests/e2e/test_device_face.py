"""What a device offers besides array operations, over a real link: kernels, captured graphs, memory
and time, and what becomes of a server whose device is given what it cannot end."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.client import CapturedGraph
from gpuwire.config import load_config
from gpuwire.errors import (
    ArgumentError,
    CaptureError,
    DeviceClosed,
    DeviceLost,
    DeviceMismatch,
    DTypeError,
    ExecutionError,
    KernelCompileError,
    LaunchError,
    ScalarOutOfRange,
    WatchdogExpired,
)
from servers import ServerProcess

SAXPY = """\
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = y[id.x] + bitcast<f32>(params[0].x) * x[id.x]; }
}
"""
NUMBERS = np.arange(100, dtype=np.float32)


@pytest.fixture
def dev(server_ticket: str) -> Iterator[gw.Device]:
    with gw.connect(server_ticket) as device:
        yield device


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(n for n, line in enumerate(lines, 1) if text in line)}"


# --- Kernels ---------------------------------------------------------------------------------


def test_a_kernel_writes_the_arrays_that_it_is_given_and_no_others(dev) -> None:
    saxpy = dev.kernel(SAXPY, name="saxpy")
    x, y = gw.asarray(NUMBERS, device=dev), gw.ones(100, dtype=gw.float32, device=dev)
    sharing, same = gw.asarray(y, copy=True), y
    saxpy(x, y, 2.0, grid=100)
    np.testing.assert_array_equal(np.asarray(y), 1 + 2 * NUMBERS)
    assert same is y
    np.testing.assert_array_equal(np.asarray(sharing), 1)
    np.testing.assert_array_equal(np.asarray(x), NUMBERS)
    saxpy(y, y, 1.0, grid=(2,))
    np.testing.assert_array_equal(np.asarray(y), 2 + 4 * NUMBERS)


def test_an_array_that_nothing_shares_is_written_where_it_lies(tmp_path: Path) -> None:
    """There is room for the array and not for a copy of it."""
    limit = "[server]\nmax_memory_bytes = 1048576\n"
    with ServerProcess(tmp_path, config=limit) as server, gw.connect(server.ticket) as dev:
        saxpy = dev.kernel(SAXPY)
        x, y = gw.ones(16, device=dev), gw.zeros(200_000, dtype=gw.float32, device=dev)
        for number in range(3):
            saxpy(x, y, float(number), grid=16)
        np.testing.assert_array_equal(np.asarray(y)[:16], 3)
        sharing = gw.reshape(y, (2, 100_000))
        saxpy(x, y, 1.0, grid=16)
        np.testing.assert_array_equal(np.asarray(sharing)[0, :16], 3)
        with pytest.raises(ExecutionError) as caught:
            np.asarray(y)
        assert isinstance(caught.value.__cause__, MemoryError)


@pytest.mark.parametrize("graph_cache", [True, False])
def test_kernels_and_operations_run_in_the_order_of_the_program(server_ticket, graph_cache) -> None:
    config = load_config(remote={"graph_cache": graph_cache})
    with gw.connect(server_ticket, config=config) as dev:
        saxpy = dev.kernel(SAXPY)
        x, y = gw.asarray(NUMBERS, device=dev), gw.zeros(100, dtype=gw.float32, device=dev)
        expected = np.zeros(100, np.float64)
        for step in range(30):
            moved = (x + 1.0) * 0.5
            saxpy(moved, y, float(step), grid=100)
            y = y * 0.5 + gw.abs(x)
            expected = (expected + step * (NUMBERS + 1) * 0.5) * 0.5 + NUMBERS
        np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-5)


def test_each_thread_launches_on_its_own(dev) -> None:
    saxpy = dev.kernel(SAXPY)
    x = gw.asarray(NUMBERS, device=dev)
    found = {}

    def work(number: int) -> None:
        y = gw.zeros(100, dtype=gw.float32, device=dev)
        for _ in range(10):
            saxpy(x, y, float(number), grid=100)
        found[number] = np.asarray(y)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        np.testing.assert_array_equal(found[number], 10 * number * NUMBERS)


def test_scalars_of_every_kind_reach_the_kernel(dev) -> None:
    source = """
    @group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(1) fn words() {
        for (var i = 0u; i < 6u; i++) { out[i] = params[i / 4u][i % 4u]; }
    }
    """
    with pytest.warns(RuntimeWarning, match="65,535") if dev.info.kind == "cpu" else nothing():
        words = dev.kernel(source, "words")
    out = gw.zeros(6, dtype=gw.uint32, device=dev)
    words(out, 7, -1, 1.5, True, np.uint32(1 << 31), np.float32(-0.5), grid=1)
    given = np.array([7, -1], np.int32).tobytes() + np.float32(1.5).tobytes()
    given += np.array([1, 1 << 31], np.uint32).tobytes() + np.float32(-0.5).tobytes()
    assert np.asarray(out).tobytes() == given


def nothing() -> warnings.catch_warnings:
    return warnings.catch_warnings()


def test_a_long_grid_is_folded_for_a_source_that_knows(dev) -> None:
    source = """
    @group(0) @binding(0) var<storage, read_write> out: array<atomic<u32>>;
    @compute @workgroup_size(1)
    fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>) {
        let i = (wid.z * count.y + wid.y) * count.x + wid.x;
        if (i < 70000u) { atomicAdd(&out[i % 16u], 1u); }
    }
    """
    out = gw.zeros(16, dtype=gw.uint32, device=dev)
    dev.kernel(source)(out, grid=70_000)
    np.testing.assert_array_equal(np.asarray(out), 70_000 // 16)


def test_a_source_that_does_not_compile_fails_what_it_would_have_written(dev) -> None:
    broken = dev.kernel(SAXPY.replace("* x[", "* xx["), name="broken")
    x, y = gw.asarray(NUMBERS, device=dev), gw.asarray(NUMBERS, device=dev)
    broken(x, y, 1.0, grid=100)  # the line of the call
    downstream = y + 1
    with pytest.raises(ExecutionError, match="broken") as caught:
        np.asarray(downstream)
    assert caught.value.location == line_of("# the line of the call")
    assert caught.value.operation == "broken"
    cause = caught.value.__cause__
    assert isinstance(cause, KernelCompileError)
    assert (cause.kernel, cause.line) == ("broken", 5)
    assert "xx" in cause.compiler
    np.testing.assert_array_equal(np.asarray(x), NUMBERS)
    broken(x, gw.asarray(NUMBERS, device=dev), 1.0, grid=100)
    with pytest.raises(ExecutionError, match="line 5"):
        dev.sync()
    dev.sync()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda k, x, y: k(x, y, 1.0), TypeError, "grid"),
        (lambda k, x, y: k(x, 1.0, grid=1), ArgumentError, r"2 arrays \(x, y\), and 1"),
        (lambda k, x, y: k(x, y, y, 1.0, grid=1), ArgumentError, "and 3 were given"),
        (lambda k, x, y: k(x, 1.0, y, grid=1), ArgumentError, "arrays come first"),
        (lambda k, x, y: k(x, NUMBERS, 1.0, grid=1), DTypeError, "gpuwire.asarray"),
        (lambda k, x, y: k(x, y, 1j, grid=1), DTypeError, "complex"),
        (lambda k, x, y: k(x, y, 1 << 40, grid=1), ScalarOutOfRange, "32-bit"),
        (lambda k, x, y: k(x, y, grid=1), ArgumentError, "reads 1 parameters, and 0"),
        (lambda k, x, y: k(x, y, 1.0, grid=0), ArgumentError, "0 workgroups"),
        (lambda k, x, y: k(x, y, 1.0, grid=-1), ArgumentError, "from 1 to"),
        (lambda k, x, y: k(x, y, 1.0, grid=65_536 * 64), ArgumentError, "65536 workgroups"),
        (lambda k, x, y: k(x, y, 1.0, grid=()), ArgumentError, "one to three"),
        (lambda k, x, y: k(x, y, 1.0, grid=(1, 0)), ArgumentError, "one to three"),
        (lambda k, x, y: k(x, y, 1.0, grid=(1, 65_536)), ArgumentError, "one to three"),
        (lambda k, x, y: k(x, y, 1.0, grid=(1, 1, 1, 1)), ArgumentError, "one to three"),
        (lambda k, x, y: k(x, y[:0], 1.0, grid=1), ArgumentError, "y has no elements"),
        (lambda k, x, y: k(x[:0], y, 1.0, grid=1), ArgumentError, "x has no elements"),
    ],
)
def test_a_call_that_cannot_be_is_refused_at_its_line(dev, call, error, text) -> None:
    saxpy = dev.kernel(SAXPY)
    x, y = gw.asarray(NUMBERS, device=dev), gw.asarray(NUMBERS, device=dev)
    with pytest.raises(error, match=text):
        call(saxpy, x, y)
    saxpy(x, y, 1.0, grid=100)
    np.testing.assert_array_equal(np.asarray(y), 2 * NUMBERS)
    with pytest.raises(ArgumentError, match="1 numbers before, not 2"):
        saxpy(x, y, 1.0, 2.0, grid=100)


def test_arrays_too_large_to_bind_and_of_other_devices(dev, server_ticket) -> None:
    saxpy = dev.kernel(SAXPY)
    x = gw.asarray(NUMBERS, device=dev)
    huge = gw.zeros(dev.info.max_binding_bytes // 4 + 1, dtype=gw.float32, device=dev)
    with pytest.raises(ArgumentError, match="at most"):
        saxpy(x, huge, 1.0, grid=1)
    with gw.connect(server_ticket) as other:
        y = gw.asarray(NUMBERS, device=other)
        with pytest.raises(DeviceMismatch):
            saxpy(x, y, 1.0, grid=1)
    with pytest.raises(DeviceClosed):
        other.kernel(SAXPY)(y, y, 1.0, grid=1)


@pytest.mark.parametrize(
    ("source", "arguments", "text"),
    [
        (SAXPY, {"entry_point": "other"}, "it has main"),
        (SAXPY, {"workgroup_size": 32}, "the source says"),
        (SAXPY.replace("64", "WIDTH"), {}, "pass workgroup_size"),
        (SAXPY.replace("64", "1024, 1024"), {}, "invocations"),
        (SAXPY.replace("read_write", "read"), {}, "writes no array"),
        (SAXPY + "//" + "x" * 100_000, {}, "bytes"),
    ],
)
def test_a_source_whose_interface_cannot_be(dev, source, arguments, text) -> None:
    with pytest.raises(ArgumentError, match=text):
        dev.kernel(source, **arguments)


def test_more_arrays_than_one_launch_takes(dev) -> None:
    def wide(count: int) -> str:
        declared = "@group(0) @binding({0}) var<storage, read_write> a{0}: array<u32>;"
        lines = [declared.format(number) for number in range(count)]
        return "\n".join([*lines, "@compute @workgroup_size(1) fn main() {}"])

    with pytest.raises(ArgumentError, match="65 arrays"):
        dev.kernel(wide(65))
    if dev.info.kind == "cpu":  # A GPU may take as many.
        arrays = [gw.zeros(1, dtype=gw.uint32, device=dev) for _ in range(64)]
        dev.kernel(wide(64))(*arrays, grid=1)
        with pytest.raises(ExecutionError, match="binds 64 buffers") as caught:
            np.asarray(arrays[0])
        assert isinstance(caught.value.__cause__, LaunchError)


def test_a_kernel_that_is_gone_leaves_nothing_and_its_last_launch_runs(dev) -> None:
    x, y = gw.asarray(NUMBERS, device=dev), gw.asarray(NUMBERS, device=dev)
    for _ in range(20):
        dev.kernel(SAXPY)(x, y, 0.0, grid=100)
        x = x + 0.0
    np.testing.assert_array_equal(np.asarray(y), NUMBERS)
    assert dev.memory_report().session_bytes == x.nbytes + y.nbytes


# --- Captured graphs -------------------------------------------------------------------------


def test_a_graph_is_replayed_over_arrays_as_they_are_then(dev) -> None:
    saxpy = dev.kernel(SAXPY)
    x, y = gw.asarray(NUMBERS, device=dev), gw.zeros(100, dtype=gw.float32, device=dev)
    with dev.capture() as graph:
        for factor in (1.0, 10.0):
            saxpy(x, y, factor, grid=100)
    assert graph.launches == 2
    np.testing.assert_array_equal(np.asarray(y), 0)
    graph.replay()
    graph.replay()
    np.testing.assert_array_equal(np.asarray(y), 22 * NUMBERS)
    before = gw.asarray(y, copy=True)
    x[...] = 1.0
    graph.replay()
    np.testing.assert_array_equal(np.asarray(y), 22 * NUMBERS + 11)
    np.testing.assert_array_equal(np.asarray(before), 22 * NUMBERS)
    saxpy(x, y, 1.0, grid=100)
    y += 1.0
    graph.replay()
    np.testing.assert_array_equal(np.asarray(y), 22 * NUMBERS + 24)
    with pytest.raises(CaptureError, match=r"float32\[100\].*float32\[2\]"):
        x._tensor = gw.ones(2, device=dev)._tensor
        graph.replay()


def test_memory_of_a_graph_comes_back_when_it_is_destroyed_or_forgotten(dev) -> None:
    saxpy = dev.kernel(SAXPY)
    x, y = gw.asarray(NUMBERS, device=dev), gw.asarray(NUMBERS, device=dev)
    dev.sync()
    before = dev.memory_report().session_bytes

    def captured() -> CapturedGraph:
        with dev.capture() as graph:
            saxpy(x, y, 1.0, grid=100)
        graph.replay()
        return graph

    with captured() as graph:
        assert dev.memory_report().session_bytes == before + 2 * x.nbytes
    with pytest.raises(CaptureError, match="destroyed"):
        graph.replay()
    graph.destroy()
    captured()
    gc.collect()
    dev.flush()
    dev.sync()
    assert dev.memory_report().session_bytes == before
    np.testing.assert_array_equal(np.asarray(y), 3 * NUMBERS)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("add", lambda dev, x: x + 1),
        ("a read", lambda dev, x: np.asarray(x)),
        ("an upload", lambda dev, x: gw.asarray(NUMBERS, device=dev)),
        ("sync", lambda dev, x: dev.sync()),
        ("sync", lambda dev, x: dev.synchronize()),
        ("profile", lambda dev, x: dev.profile().__enter__()),
        ("memory_report", lambda dev, x: dev.memory_report()),
        ("memory_cleanup", lambda dev, x: dev.memory_cleanup()),
        ("persistent_memory", lambda dev, x: dev.persistent_memory().__enter__()),
        ("another capture", lambda dev, x: dev.capture().__enter__()),
    ],
)
def test_what_is_no_launch_is_refused_by_name_and_spoils_the_graph(dev, name, use) -> None:
    saxpy = dev.kernel(SAXPY)
    x, y = gw.asarray(NUMBERS, device=dev), gw.asarray(NUMBERS, device=dev)
    with pytest.raises(CaptureError, match="spoiled") as caught, dev.capture() as graph:
        saxpy(x, y, 1.0, grid=100)
        with pytest.raises(CaptureError, match=f"{name} cannot be captured"):
            use(dev, x)
        saxpy(x, y, 1.0, grid=100)
    assert caught.value.state == "doomed"
    assert name in str(caught.value.__cause__)
    with pytest.raises(CaptureError, match="did not end well"):
        graph.replay()
    np.testing.assert_array_equal(np.asarray(y), NUMBERS)


def test_a_replay_inside_a_window_and_other_threads_beside_it(dev) -> None:
    saxpy = dev.kernel(SAXPY)
    x, y = gw.asarray(NUMBERS, device=dev), gw.asarray(NUMBERS, device=dev)
    with dev.capture() as graph:
        saxpy(x, y, 1.0, grid=100)
    with (
        pytest.raises(CaptureError, match="spoiled"),
        dev.capture(),
        pytest.raises(CaptureError, match="replay cannot be captured"),
    ):
        graph.replay()
    found = []
    with dev.capture() as second:
        saxpy(x, y, 1.0, grid=100)
        other = threading.Thread(target=lambda: found.append(np.asarray(x + 1)))
        other.start()
        other.join()
        saxpy(x, y, 1.0, grid=100)
    np.testing.assert_array_equal(found[0], NUMBERS + 1)
    second.replay()
    graph.replay()
    np.testing.assert_array_equal(np.asarray(y), 4 * NUMBERS)


def test_a_block_that_captures_nothing_or_raises_makes_no_graph(dev) -> None:
    saxpy = dev.kernel(SAXPY)
    x, y = gw.asarray(NUMBERS, device=dev), gw.asarray(NUMBERS, device=dev)
    with pytest.raises(CaptureError, match="nothing was launched"), dev.capture():
        pass
    with pytest.raises(ZeroDivisionError), dev.capture() as graph:
        saxpy(x, y, 1.0, grid=100)
        raise ZeroDivisionError
    with pytest.raises(CaptureError, match="did not end well"):
        graph.replay()
    with (
        pytest.raises(CaptureError, match="another of its arguments"),
        dev.capture(),
        pytest.raises(ArgumentError, match="another of its arguments"),
    ):
        saxpy(y, y, 1.0, grid=100)
    broken = dev.kernel(SAXPY.replace("* x[", "* xx["), name="broken")
    with pytest.raises(CaptureError) as caught, dev.capture():
        saxpy(x, y, 1.0, grid=100)
        broken(x, y, 1.0, grid=100)  # the line that spoils it
    assert isinstance(caught.value.__cause__, KernelCompileError)
    assert line_of("# the line that spoils it") in str(caught.value)
    np.testing.assert_array_equal(np.asarray(x + y), 2 * NUMBERS)


def test_a_replay_over_what_failed_raises_the_first_cause(dev) -> None:
    saxpy = dev.kernel(SAXPY)
    broken = dev.kernel(SAXPY.replace("* x[", "* xx["), name="broken")
    x, y = gw.asarray(NUMBERS, device=dev), gw.asarray(NUMBERS, device=dev)
    with dev.capture() as graph:
        saxpy(x, y, 1.0, grid=100)
    broken(x, x, 1.0, grid=100)
    graph.replay()
    with pytest.raises(ExecutionError, match="broken"):
        np.asarray(y)
    graph.replay()
    with pytest.raises(ExecutionError, match="broken"):
        np.asarray(y)
    for array in (x, y):
        array._tensor = gw.ones(100, dtype=gw.float32, device=dev)._tensor
    graph.replay()
    np.testing.assert_array_equal(np.asarray(y), 2)


# --- Memory and time -------------------------------------------------------------------------


def test_memory_is_reported_pool_by_pool_and_given_back(dev) -> None:
    x = gw.ones(1 << 20, dtype=gw.float32, device=dev)
    y = x + 1
    dev.synchronize()
    report = dev.memory_report()
    assert report.session_bytes == x.nbytes + y.nbytes
    assert report.session_limit == 0
    assert report.bytes_reserved >= report.bytes_in_use >= report.session_bytes
    assert report.bytes_in_use == sum(pool.bytes_in_use for pool in report.pools)
    assert {"sliced", "persistent", "direct", "exclusive"} == {pool.kind for pool in report.pools}
    for pool in report.pools:
        assert pool.high_water_reserved >= pool.bytes_reserved
    del x, y
    assert dev.memory_cleanup() >= 2 << 22
    after = dev.memory_report()
    assert after.session_bytes == 0
    assert after.bytes_reserved < report.bytes_reserved


def test_persistent_memory_is_of_the_block(dev) -> None:
    def persistent() -> int:
        pools = {pool.name: pool for pool in dev.memory_report().pools}
        return pools["persistent"].slices

    before = persistent()
    with dev.persistent_memory():
        x = gw.asarray(NUMBERS, device=dev)
        y = x + 1
        dev.sync()
    z = y + 1
    dev.sync()
    assert persistent() == before + 2
    np.testing.assert_array_equal(np.asarray(z), NUMBERS + 2)


def test_a_block_is_timed_on_the_device(dev) -> None:
    x = gw.ones((512, 512), dtype=gw.float32, device=dev)
    dev.sync()
    with dev.profile() as short:
        pass
    with dev.profile() as p:
        with pytest.raises(ArgumentError, match="after the block"):
            _ = p.seconds
        y = x @ x
    assert p.seconds > short.seconds >= 0
    assert isinstance(p.by_device, bool)
    assert float(y[0, 0]) == 512


def test_a_failure_in_the_block_spoils_its_time(dev) -> None:
    broken = dev.kernel(SAXPY.replace("* x[", "* xx["), name="broken")
    x = gw.asarray(NUMBERS, device=dev)
    broken(x, gw.asarray(NUMBERS, device=dev), 1.0, grid=1)
    with dev.profile() as fine:
        x = x + 1
    with dev.profile() as spoiled:
        broken(x, x, 1.0, grid=1)
    assert fine.seconds >= 0
    with pytest.raises(ExecutionError, match="means nothing") as caught:
        _ = spoiled.seconds
    assert isinstance(caught.value.__cause__, ExecutionError)
    assert isinstance(caught.value.__cause__.__cause__, KernelCompileError)


def test_the_asyncio_face_has_all_of_it(server_ticket) -> None:
    async def scenario() -> None:
        async with gw.aio.connect(server_ticket) as dev:
            saxpy = dev.kernel(SAXPY)
            x, y = gw.asarray(NUMBERS, device=dev), gw.asarray(NUMBERS, device=dev)
            async with dev.profile() as p:
                saxpy(x, y, 1.0, grid=100)
            assert await p.seconds() >= 0
            assert isinstance(await p.by_device(), bool)
            async with dev.capture() as graph:
                saxpy(x, y, 1.0, grid=100)
            with pytest.raises(CaptureError, match="spoiled"):
                async with dev.capture():
                    with pytest.raises(CaptureError, match="sync"):
                        await dev.synchronize()
            graph.replay()
            with dev.persistent_memory():
                z = y + 1
            np.testing.assert_array_equal(await z.to_numpy(), 3 * NUMBERS + 1)
            assert (await dev.memory_report()).session_bytes == 5 * x.nbytes
            graph.destroy()
            assert await dev.memory_cleanup() >= 0
            await dev.sync()

    asyncio.run(scenario())


# --- What the device cannot end, and what ends the process ------------------------------------

SPIN = """\
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var s = id.x;
    for (var a = 0u; a < 60000u; a++) { s = s * 1664525u + y[a % 7u]; }
    y[id.x % 64u] = s;
}
"""
"""A software adapter ends all loops of an invocation after 65,535 rounds, so it takes many."""

TWO_DEVICES = """
[server]
devices = [0, 0]
max_host_restarts = 0
[compute]
watchdog_seconds = 1.0
"""


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that lends one adapter twice, and gives a device up that dies of itself once."""
    with ServerProcess(tmp_path_factory.mktemp("two"), config=TWO_DEVICES) as server:
        yield server


def test_a_kernel_that_runs_on_ends_its_session_and_nobody_elses_device(two_devices) -> None:
    server = two_devices
    with (
        gw.connect(server.ticket) as culprit,
        gw.connect(server.ticket) as bystander,
        gw.connect(server.ticket, device=1) as elsewhere,
    ):
        kept = [gw.ones(3, device=device) for device in (bystander, elsewhere)]
        with warnings.catch_warnings(action="ignore"):
            spin = culprit.kernel(SPIN, name="spin")
        y = gw.zeros(64, dtype=gw.uint32, device=culprit)
        spin(y, grid=(65_535, 65_535))
        with pytest.raises(WatchdogExpired, match="'spin'") as caught:
            np.asarray(y)
        assert (caught.value.kernel, caught.value.seconds) == ("spin", 1.0)
        with pytest.raises(DeviceLost) as lost:
            np.asarray(kept[0])
        assert "spin" not in str(lost.value), "what others run is their own affair"
        np.testing.assert_array_equal(np.asarray(kept[1]), 1)
        with gw.connect(server.ticket) as again:
            assert float(gw.sum(gw.ones(3, device=again))) == 3.0


def test_an_input_that_ends_the_process_is_told_to_who_sent_it(two_devices) -> None:
    """The library's parser runs out of stack over an expression of so many terms."""
    server = two_devices
    deep = SPIN[: SPIN.index("    var s")] + "    y[0] = 1u" + "+y[0]" * 15_000 + ";\n}\n"
    with (
        gw.connect(server.ticket) as culprit,
        gw.connect(server.ticket) as bystander,
        gw.connect(server.ticket, device=1) as elsewhere,
    ):
        kept = [gw.ones(3, device=device) for device in (bystander, elsewhere)]
        y = gw.zeros(64, dtype=gw.uint32, device=culprit)
        culprit.kernel(deep, name="deep")(y, grid=1)
        with pytest.raises(DeviceLost, match="'deep'") as caught:
            np.asarray(y)
        assert caught.value.kernel == "deep"
        with pytest.raises(DeviceLost) as lost:
            np.asarray(kept[0])
        assert lost.value.kernel is None
        np.testing.assert_array_equal(np.asarray(kept[1]), 1)
        with gw.connect(server.ticket) as again:
            assert float(gw.sum(gw.ones(3, device=again))) == 3.0
