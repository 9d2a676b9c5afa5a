"""The compute server alone: launches, replays, memory, transfers.

    python tests/bench/bench_compute.py [--json PATH]

What Python does is timed without what the device does: from the call to its return, in batches that
are submitted afterwards. Replays are compared over a sweep of sizes, as CubeCL's graph_bench does,
down to a row that the device bounds, where both must take the same time. On a discrete GPU the
bandwidths are measured too, beside torch's where that is installed.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import struct
import sys
import time
from collections.abc import Callable

import numpy as np
import wgpu
from report import Report, repeat

from gpuwire.compute import (
    Binding,
    CopyDescriptor,
    Handle,
    LaunchArguments,
    LaunchMode,
    WgpuServer,
    adapters,
)
from gpuwire.compute.memory.report import PoolKind
from gpuwire.kernels.kernel import Access, Kernel

MIB = 2**20
LAUNCHES = 64
ADD = """\
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = ((wid.z * count.y + wid.y) * count.x + wid.x) * 256u + lane;
    if (i < params[0].x) { c[i] = a[i] + b[i]; }
}
"""


class Device:
    """A server with the add kernel, and the words to use it."""

    def __init__(self) -> None:
        self.server = WgpuServer.init(0, tasks_max=1_000_000)
        access = (Access.READ, Access.READ, Access.WRITE)
        self.kernel = Kernel("vec4 add", ADD, access, (256, 1, 1), 1)

    def memory(self, nbytes: int) -> Handle:
        handle = Handle()
        self.server.initialize_memory(handle, nbytes)
        return handle

    def zeros(self, nbytes: int) -> Handle:
        handle = self.memory(nbytes)
        self.server.write([(descriptor(handle, nbytes), bytes(nbytes))])
        return handle

    def arguments(self, nbytes: int, *handles: Handle) -> LaunchArguments:
        bindings = tuple(Binding(handle, 0, nbytes) for handle in handles)
        return LaunchArguments(bindings, struct.pack("<I", nbytes // 16))

    def launch(self, arguments: LaunchArguments) -> None:
        vectors = arguments.buffers[0].size // 16
        self.server.launch(self.kernel, -(-vectors // 256), arguments)

    def sync(self) -> None:
        self.server.sync().wait()


def descriptor(handle: Handle, nbytes: int) -> CopyDescriptor:
    return CopyDescriptor(Binding(handle, 0, nbytes), (nbytes,), (1,), 1)


def per_launch(device: Device, body: Callable[[], object], rounds: int = 40) -> list[float]:
    """Microseconds of this thread for each launch of `body`, not counting the submission."""
    costs = []
    for _ in range(rounds + 5):
        began = time.perf_counter_ns()
        body()
        costs.append((time.perf_counter_ns() - began) / LAUNCHES / 1e3)
        device.sync()
    return costs[5:]


def capture(device: Device, body: Callable[[], object]) -> int:
    device.server.graph_prepare()
    body()
    device.sync()
    device.server.begin_capture()
    body()
    return device.server.end_capture()


def chain(device: Device, nbytes: int) -> Callable[[], None]:
    """64 launches, each over the result of the one before."""
    handles = [device.zeros(nbytes) for _ in range(LAUNCHES + 1)]
    calls = [
        device.arguments(nbytes, source, source, target)
        for source, target in zip(handles, handles[1:], strict=False)  # noqa: RUF007
    ]

    def body() -> None:
        for arguments in calls:
            device.launch(arguments)

    return body


def measure_launches(report: Report, device: Device) -> None:
    body = chain(device, 4096)
    graph = capture(device, body)
    launch = per_launch(device, body)
    replay = per_launch(device, lambda: device.server.replay(graph))
    report.add("launch, cached, 3 buffers", launch, "µs", at_most=12)
    report.add("the same through wgpu's Python objects", through_objects(), "µs")
    report.add("replay, per launch", replay, "µs", at_most=2.5)
    ratio = statistics.median(launch) / statistics.median(replay)
    report.add("launch over replay, 64 small kernels", [ratio], "×", at_least=4)
    device.server.graph_destroy(graph)
    same = device.arguments(4096, device.zeros(4096), device.zeros(4096), device.memory(4096))

    def alike() -> None:
        for _ in range(LAUNCHES):
            device.launch(same)

    graph = capture(device, alike)
    report.add("launch, the same buffers each time", per_launch(device, alike), "µs")
    replay = per_launch(device, lambda: device.server.replay(graph))
    report.add("replay, the same buffers each time", replay, "µs")
    device.server.graph_destroy(graph)


def measure_sweep(report: Report, device: Device, control: int) -> None:
    """To the end of the work: what a caller gains who waits for it."""
    sizes = (4096, 64 * 1024, MIB, control)
    for nbytes in sizes:
        body = chain(device, nbytes)
        graph = capture(device, body)
        launched, replayed = [], []
        for _ in range(15):
            launched += repeat(lambda body=body: (body(), device.sync()), 1, warm_up=0)
            replayed += repeat(
                lambda graph=graph: (device.server.replay(graph), device.sync()), 1, warm_up=0
            )
        ratio = statistics.median(launched) / statistics.median(replayed)
        label = f"launch over replay to the end, 64 × {nbytes // 1024} KiB"
        report.add(label + (" (control: 1.0)" if nbytes == sizes[-1] else ""), [ratio], "×")
        device.server.graph_destroy(graph)
        del body
        device.server.memory_cleanup()


def through_objects() -> list[float]:
    """Microseconds a launch with a new bind group, through wgpu's own objects."""
    adapter = wgpu.gpu.enumerate_adapters_sync()[0]
    gpu = adapter.request_device_sync()
    source = ADD.replace("params[0].x", "256u")
    module = gpu.create_shader_module(code=source)
    pipeline = gpu.create_compute_pipeline(
        layout="auto", compute={"module": module, "entry_point": "main"}
    )
    layout = pipeline.get_bind_group_layout(0)
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    buffers = [gpu.create_buffer(size=4096, usage=usage) for _ in range(3)]

    def once() -> None:
        encoder = gpu.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        for _ in range(LAUNCHES):
            entries = [
                {"binding": n, "resource": {"buffer": b, "offset": 0, "size": 4096}}
                for n, b in enumerate(buffers)
            ]
            group = gpu.create_bind_group(layout=layout, entries=entries)
            compute_pass.set_pipeline(pipeline)
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(1)
        compute_pass.end()
        gpu.queue.submit([encoder.finish()])

    return [seconds / LAUNCHES * 1e6 for seconds in repeat(once, 15, warm_up=3)]


def measure_round_trips(report: Report, device: Device) -> None:
    result = device.memory(16)

    def begin() -> object:
        source = device.zeros(16)
        device.launch(device.arguments(16, source, source, result))
        return device.server.read([descriptor(result, 16)])

    waited = repeat(lambda: begin().wait(), 300, warm_up=30)
    report.add("write, launch, read of 16 bytes, wait()", [s * 1e6 for s in waited], "µs")

    async def awaited() -> list[float]:
        costs = []
        for _ in range(330):
            began = time.perf_counter()
            await begin()
            costs.append(time.perf_counter() - began)
        return costs[30:]

    costs = asyncio.run(awaited())
    report.add("write, launch, read of 16 bytes, await", [s * 1e6 for s in costs], "µs")


def measure_memory(report: Report, device: Device) -> None:
    kept = [device.memory(1024) for _ in range(5000)]
    kept.clear()
    server = device.server

    def allocate() -> None:
        for _ in range(1000):
            server.initialize_memory(Handle(), 1024)

    costs = [s * 1e3 for s in repeat(allocate, 30, warm_up=3)]
    report.add("allocation from a warm pool, with its release", costs, "µs", at_most=3)
    report.add(
        "reserved over high water, 100,000 random sizes", [reserved_ratio()], "×", at_most=1.5
    )


def reserved_ratio() -> float:
    """What sliced and direct pools reserved at most, over the live bytes at most; sizes from 16
    bytes to 8 MiB, alike in number for each octave, up to 512 MiB alive."""
    server = WgpuServer.init(0)
    chance = random.Random(1)
    held: list[Handle] = []
    live = high = 0
    for _ in range(100_000):
        while held and (live > 512 * MIB or chance.random() < 0.45):
            index = chance.randrange(len(held))
            held[index], held[-1] = held[-1], held[index]
            live -= held.pop().slice.size
        handle = Handle()
        server.initialize_memory(handle, int(2 ** chance.uniform(4, 23)))
        held.append(handle)
        live += handle.slice.size
        high = max(high, live)
    kinds = (PoolKind.SLICED, PoolKind.DIRECT)
    pools = [pool for pool in server.memory_report().pools if pool.kind in kinds]
    reserved = sum(pool.high_water_reserved for pool in pools)
    held.clear()
    server.close()
    return reserved / high


def measure_transfers(report: Report, device: Device, nbytes: int, asked: dict[str, float]) -> None:
    values = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    handle = device.memory(nbytes)

    def upload() -> None:
        device.server.write([(descriptor(handle, nbytes), values)])
        device.sync()

    def download() -> None:
        (view,) = device.server.read([descriptor(handle, nbytes)]).wait()
        assert view.nbytes == nbytes

    def download_into_numpy() -> None:
        (view,) = device.server.read([descriptor(handle, nbytes)]).wait()
        np.frombuffer(view, np.uint8).copy()

    label = f"{nbytes // MIB} MiB"
    rates = {
        "upload": [nbytes / s / 1e9 for s in repeat(upload, 7, warm_up=2)],
        "read": [nbytes / s / 1e9 for s in repeat(download, 7, warm_up=2)],
        "read and copy": [nbytes / s / 1e9 for s in repeat(download_into_numpy, 7, warm_up=1)],
    }
    for name, values_ in rates.items():
        report.add(f"{name} of {label}", values_, "GB/s", at_least=asked.get(name))
    plain = [nbytes / s / 1e9 for s in repeat(lambda: read_buffer(nbytes), 5, warm_up=1)]
    report.add(f"queue.read_buffer of {label}", plain, "GB/s")
    ratio = statistics.median(rates["read"]) / statistics.median(plain)
    report.add("read over queue.read_buffer", [ratio], "×", at_least=2)


_PLAIN: dict[int, tuple[object, object]] = {}


def read_buffer(nbytes: int) -> None:
    if nbytes not in _PLAIN:
        adapter = wgpu.gpu.enumerate_adapters_sync()[0]
        gpu = adapter.request_device_sync()
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
        _PLAIN[nbytes] = gpu, gpu.create_buffer(size=nbytes, usage=usage)
    gpu, buffer = _PLAIN[nbytes]
    gpu.queue.read_buffer(buffer)


def measure_bandwidth(report: Report, device: Device) -> None:
    nbytes = 1024 * MIB
    a, b, c = (device.memory(nbytes) for _ in range(3))
    fill = Kernel("fill", FILL, (Access.WRITE,), (256, 1, 1), 1)
    for handle in (a, b):
        arguments = device.arguments(nbytes, handle)
        device.server.launch(fill, nbytes // 16 // 256, arguments)
    arguments = device.arguments(nbytes, a, b, c)
    device.server.launch(device.kernel, 1, arguments, 0, LaunchMode.SKIP)
    rates = []
    for _ in range(12):
        device.sync()
        token = device.server.start_profile()
        for _ in range(10):
            device.launch(arguments)
        seconds = device.server.end_profile(0, token).wait() / 10
        rates.append(3 * nbytes / seconds / 1e9)
    ours = report.add("vec4 add over 1 GiB", rates[2:], "GB/s", at_least=4350 * 0.95)
    theirs = torch_add(nbytes)
    if theirs:
        report.add("torch.add over 1 GiB", theirs, "GB/s")
        report.add("ours over torch's", [ours / statistics.median(theirs)], "×", at_least=0.95)


FILL = """\
@group(0) @binding(0) var<storage, read_write> c: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = ((wid.z * count.y + wid.y) * count.x + wid.x) * 256u + lane;
    if (i < params[0].x) { c[i] = vec4(f32(i)); }
}
"""


def torch_add(nbytes: int) -> list[float]:
    try:
        import torch
    except ImportError:
        return []
    a, b, c = (torch.ones(nbytes // 4, device="cuda") for _ in range(3))
    rates = []
    for _ in range(12):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(10):
            torch.add(a, b, out=c)
        end.record()
        end.synchronize()
        rates.append(3 * nbytes / (begin.elapsed_time(end) / 10 / 1e3) / 1e9)
    return rates[2:]


def main() -> None:
    found = adapters()[0]
    device = Device()
    report = Report(f"the compute server on {found.name}")
    measure_launches(report, device)
    measure_round_trips(report, device)
    measure_memory(report, device)
    if found.kind == "discrete":
        measure_sweep(report, device, 256 * MIB)
        measure_transfers(report, device, 256 * MIB, {"upload": 3.5, "read": 3.0})
        measure_bandwidth(report, device)
    else:
        measure_sweep(report, device, 16 * MIB)
        measure_transfers(report, device, 64 * MIB, {})
    device.server.close()
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
