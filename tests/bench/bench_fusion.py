"""Fusion: graphs of many operations as few kernels against one kernel for each operation.

    python tests/bench/bench_fusion.py [--json PATH] [--scale N] [--only TEXT]

`scale` is the MiB of an array (1 on a software adapter, 64 on a GPU; softmax and layer norm take
four times as much). Device times are of windows over ten executions; host times are Python's
alone, per execution of a plan that is known. Bytes a second are counted as one read of
each input and one write of each output. On a GPU with torch, its copy stands beside them.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from report import Report, repeat

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from building_graphs import (
    GraphBuilder,
    layer_norm,
    matrix,
    residual_layers,
    scalar,
    softmax,
)
from gpuwire.compute.handles import Binding, Handle
from gpuwire.compute.launches import LaunchArguments
from gpuwire.ir import dtypes as dt
from gpuwire.ir.graphs import InputRef, NodeRef, OpGraph, ValueRef
from gpuwire.ir.tensors import Scalar, row_major_strides
from gpuwire.lowering import Lowering, Value
from gpuwire.lowering.builder import KernelCache
from gpuwire.lowering.facts import device_facts
from gpuwire.lowering.planner import plan_graph
from gpuwire.lowering.steps import KernelStep
from lowered import Machine

BATCH = 10


def chain_of_ten(count: int) -> OpGraph:
    """Ten elementwise operations, one array and one number."""
    make = GraphBuilder(matrix(count))
    x: ValueRef = InputRef(0)
    for name in ("add", "multiply", "subtract", "maximum", "multiply"):
        x = make.op("abs", make.op(name, x, scalar(0)))
    assert isinstance(x, NodeRef)
    return make.graph(x)


class Bench:
    """One device, with fusion and without."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.machine = Machine()
        self.server = self.machine.server
        self.plain = Lowering(self.server, fuse=False)

    def random(self, *shape: int) -> Value:
        values = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
        return self.machine.upload(values)

    def run(self, graph: OpGraph, inputs: list[Value], *, fuse: bool) -> Callable[[], object]:
        lowering = self.machine.lowering if fuse else self.plain
        scalars = (Scalar(0.5, dt.float32),)
        return lambda: lowering.execute(graph, inputs, scalars, 0)

    def seconds(self, work: Callable[[], object]) -> list[float]:
        """Of one execution, by the device's own clock if it has one."""
        found = []
        for number in range(9):
            token = self.server.start_profile()
            for _ in range(BATCH):
                work()
            window = self.server.end_profile(0, token)
            self.server.sync().wait()
            if number > 1:
                found.append(window.wait() / BATCH)
        return found

    def bandwidth(self, what: str, graph: OpGraph, inputs: list[Value]) -> tuple[float, float]:
        """Report fused and unfused bytes a second; the medians of their seconds."""
        moved = sum(type_.nbytes for type_ in graph.inputs)
        moved += sum(graph.nodes[output.index].type.nbytes for output in graph.outputs)
        found = []
        for fuse in (True, False):
            seconds = self.seconds(self.run(graph, inputs, fuse=fuse))
            form = "fused" if fuse else "unfused"
            self.report.add(f"{what}, {form}", [moved / s / 1e9 for s in seconds], "GB/s")
            found.append(statistics.median(seconds))
        return found[0], found[1]

    def agree(self, graph: OpGraph, inputs: list[Value]) -> float:
        """The largest difference between fused and unfused results."""
        scalars = [Scalar(0.5, dt.float32)]
        most = 0.0
        for one, other in zip(
            self.machine.execute(graph, inputs, scalars),
            self.plain.execute(graph, inputs, scalars, 0),  # type: ignore[arg-type]
            strict=True,
        ):
            difference = self.machine.download(one) - self.machine.download(other)
            most = max(most, float(np.abs(difference).max(initial=0.0)))
        return most


def measure_copy(bench: Bench, scale: int) -> float:
    """Seconds a byte of copying, read and written."""
    values = bench.random(scale * 2**18)
    make = GraphBuilder(values.type)
    graph = make.graph(make.op("negative", InputRef(0)))
    seconds = bench.seconds(bench.run(graph, [values], fuse=True))
    moved = 2 * values.type.nbytes
    bench.report.add("one elementwise pass (-x)", [moved / s / 1e9 for s in seconds], "GB/s")
    copied = [moved / s / 1e9 for s in seconds]
    torch = cuda_torch()
    if torch is not None:
        x = torch.rand(values.type.size, device="cuda")
        y = torch.empty_like(x)

        def batch() -> None:
            for _ in range(BATCH):
                y.copy_(x)
            torch.cuda.synchronize()

        copied = [moved * BATCH / s / 1e9 for s in repeat(batch, 7, warm_up=2)]
        bench.report.add("torch: copy", copied, "GB/s")
    return statistics.median(copied)


def cuda_torch():  # type: ignore[no-untyped-def]
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def measure_chain(bench: Bench, scale: int) -> None:
    graph, inputs = chain_of_ten(scale * 2**18), [bench.random(scale * 2**18)]
    fused, unfused = bench.bandwidth(f"chain of ten, {scale} MiB", graph, inputs)
    bench.report.add("chain of ten: unfused / fused", [unfused / fused], "×", at_least=5)
    bench.report.add(
        "chain of ten: largest difference", [bench.agree(graph, inputs)], "", at_most=0
    )


def measure_rows(bench: Bench, scale: int, copied: float) -> None:
    side = 2 ** int(math.log2(4 * scale * 2**18) / 2)
    graph, inputs = softmax(side, side), [bench.random(side, side)]
    fused, _ = bench.bandwidth(f"softmax, {side} × {side}", graph, inputs)
    share = 8 * side * side / fused / 1e9 / copied
    bench.report.add("softmax: share of a copy's bytes a second", [share], "", at_least=0.7)
    for columns in (256, 1024, 4096):
        rows = side * side // columns
        inputs = [bench.random(rows, columns), bench.random(columns), bench.random(columns)]
        bench.bandwidth(f"layer norm, {rows} × {columns}", layer_norm(rows, columns), inputs)
    columns = 10
    rows = side * side // 16
    bench.bandwidth(f"softmax, {rows} × 10", softmax(rows, 10), [bench.random(rows, 10)])


def measure_layers(bench: Bench) -> None:
    graph, inputs = residual_layers(64, 8), [bench.random(64, 64) for _ in range(9)]
    for fuse in (True, False):
        run = bench.run(graph, inputs, fuse=fuse)
        form = "fused" if fuse else "unfused"
        seconds = bench.seconds(run)
        bench.report.add(f"eight layers 64 × 64, {form}", [s * 1e6 for s in seconds], "µs")


def measure_host(bench: Bench) -> None:
    """Python's share: an execution of a known plan, and a replay of the same launches captured."""
    graph, inputs = residual_layers(4, 8), [bench.random(4, 4) for _ in range(9)]
    run = bench.run(graph, inputs, fuse=True)
    kernels = 8
    bench.report.add(
        "host: eight fused kernels, a call",
        host_microseconds(bench, run),
        "µs",
        at_most=5 + 8 * kernels,
    )
    single, one = chain_of_ten(16), [bench.random(16)]
    run = bench.run(single, one, fuse=True)
    bench.report.add(
        "host: one fused kernel, a call", host_microseconds(bench, run), "µs", at_most=13
    )
    captured = capture(bench, graph, inputs)
    bench.report.add(
        "host: the eight kernels as a captured graph",
        host_microseconds(bench, lambda: bench.server.replay(captured)),
        "µs",
    )
    for name, made in (("softmax", softmax(64, 64)), ("eight layers", residual_layers(64, 8))):
        bench.report.add(f"host: planning {name}", planning_microseconds(bench, made), "µs")


def planning_microseconds(bench: Bench, graph: OpGraph) -> list[float]:
    """With the kernels generated before."""
    layouts = [(row_major_strides(type_.shape), 0) for type_ in graph.inputs]
    facts = device_facts(bench.server.utilities().properties)
    cache = KernelCache()
    seconds = repeat(lambda: plan_graph(graph, layouts, cache, facts), 9)
    return [s * 1e6 for s in seconds]


def capture(bench: Bench, graph: OpGraph, inputs: list[Value]) -> int:
    """The launches of a graph's plan as a captured graph over memory of its own."""
    server = bench.server
    layouts = [(value.strides, value.offset) for value in inputs]
    plan = plan_graph(graph, layouts, KernelCache(), device_facts(server.utilities().properties))
    handles = [value.handle for value in inputs]
    for _ in range(plan.slots - len(handles)):
        handle = Handle()
        server.initialize_memory(handle, 1 << 16, 7)
        handles.append(handle)
    launches = [step for step in plan.steps if isinstance(step, KernelStep)]

    def launch_all() -> None:
        for step in launches:
            words = step.words + b"".join(make([Scalar(0.5, dt.float32)]) for make in step.scalars)
            bound = [Binding(handles[p.slot], p.offset, p.size) for p in step.buffers]
            server.launch(step.kernel, step.workgroups, LaunchArguments(bound, words), 7)

    server.graph_prepare(7)
    launch_all()
    server.begin_capture(7)
    launch_all()
    return server.end_capture(7)


def host_microseconds(bench: Bench, run: Callable[[], object]) -> list[float]:
    """Of Python, in batches that are not large enough to be submitted on the way."""
    costs = []
    for _ in range(30):
        began = time.perf_counter()
        for _ in range(7):
            run()
        costs.append((time.perf_counter() - began) / 7 * 1e6)
        bench.server.sync().wait()
    return costs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=int)
    parser.add_argument("--only", default="")
    arguments, _ = parser.parse_known_args()
    report = Report("Fusion")
    bench = Bench(report)
    properties = bench.server.utilities().properties
    report.title = f"Fusion on {properties.name}"
    scale = arguments.scale or (1 if properties.kind == "cpu" else 64)
    copied = measure_copy(bench, scale)
    parts: dict[str, Callable[[], None]] = {
        "chain": lambda: measure_chain(bench, scale),
        "rows": lambda: measure_rows(bench, scale, copied),
        "layers": lambda: measure_layers(bench),
        "host": lambda: measure_host(bench),
    }
    for name, measure in parts.items():
        if arguments.only in name:
            measure()
    report.finish()


if __name__ == "__main__":
    main()
