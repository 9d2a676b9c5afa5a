"""Lowering: the cost of a cached operation on the host, and what its kernels reach on the device.

    python tests/bench/bench_lowering.py [--json PATH] [--scale N] [--variants]

Kernels are timed over arrays of `scale` MiB (1 on a software adapter, 256 on a GPU), ten operations
to a window of the device's clock, and given as bytes read and written a second, or as operations a
second. Where torch with CUDA is installed, the same operations in torch stand beside them.
`--variants` compares ways of dividing full reductions and of tiling large products
(`lowering.facts`), and nothing else; variants take turns, so that a clock that changes changes for
all.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from report import Report, repeat

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuwire.compute.server import WgpuServer
from gpuwire.ids import LocationId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    NO_ATTRIBUTES,
    ArgReduceAttributes,
    Attributes,
    PermuteAttributes,
    ReduceAttributes,
    ShapeAttributes,
)
from gpuwire.ir.graphs import single_node_graph
from gpuwire.ir.operations import OPERATIONS, Operation
from gpuwire.ir.tensors import Scalar
from gpuwire.kernels.matmul_spec import Tile
from gpuwire.lowering import Value
from gpuwire.lowering.facts import ReductionShape
from lowered import Machine

BATCH = 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=int)
    parser.add_argument("--variants", action="store_true")
    arguments, _ = parser.parse_known_args()
    machine = Machine()
    software = machine.server.utilities().properties.kind == "cpu"
    scale = arguments.scale or (1 if software else 256)
    report = Report(f"Lowering on {machine.server.utilities().properties.name}")
    if arguments.variants:
        measure_reduction_variants(report, machine, scale)
        measure_product_variants(report, machine, 256 if software else 4096)
        report.finish()
        return
    measure_host_cost(report, machine)
    measure_bandwidth(report, machine, scale)
    measure_products(report, machine, 256 if software else 4096)
    report.finish()


def measure_host_cost(report: Report, machine: Machine) -> None:
    """Microseconds of Python for one cached operation, with and without the compute server."""
    small = machine.upload(np.zeros(16, np.float32))
    run = prepared(machine, "add", small, small)
    report.add("a cached add, all of it", host_microseconds(machine, run), "µs")
    launch, initialize = WgpuServer.launch, WgpuServer.initialize_memory
    WgpuServer.launch = WgpuServer.initialize_memory = lambda *a, **k: None  # type: ignore[method-assign,assignment]
    try:
        without = host_microseconds(machine, run)
    finally:
        WgpuServer.launch, WgpuServer.initialize_memory = launch, initialize  # type: ignore[method-assign]
    report.add("the same without the compute server", without, "µs", at_most=25)


def host_microseconds(machine: Machine, run: Callable[[], object]) -> list[float]:
    costs = []
    for _ in range(30):
        began = time.perf_counter()
        for _ in range(50):
            run()
        costs.append((time.perf_counter() - began) / 50 * 1e6)
        machine.server.sync().wait()
    return costs


def measure_bandwidth(report: Report, machine: Machine, scale: int) -> None:
    """Gigabytes a second, counted as one read of each operand and one write of the result."""
    count = scale * 2**18
    side = 2 ** int(math.log2(count) / 2)
    random = np.random.default_rng(0)
    floats = random.uniform(-1, 1, count).astype(np.float32)
    flat, other = machine.upload(floats), machine.upload(floats)
    square = machine.apply(
        "reshape", machine.upload(floats[: side * side]), attributes=ShapeAttributes((side, side))
    )
    transposed = machine.apply("permute_dims", square, attributes=PermuteAttributes((1, 0)))
    row = machine.upload(floats[:side])
    column = machine.upload(floats[:side].reshape(side, 1))
    odd = machine.apply(
        "reshape",
        machine.upload(floats[: side * (side - 1)]),
        attributes=ShapeAttributes((side, side - 1)),
    )
    odd_row = machine.upload(floats[: side - 1])
    small = machine.upload(random.integers(-9, 9, 4 * count).astype(np.int8))
    half = machine.upload(random.uniform(-1, 1, 2 * count).astype(np.float16))
    one = Scalar(1.0, dt.float32)
    whole = ReduceAttributes((0,), False, dt.float32)
    rows, columns = (ReduceAttributes((axis,), False, dt.float32) for axis in (1, 0))
    cases: list[tuple[str, str, list[Value | Scalar], Attributes]] = [
        ("x + 1, float32", "add", [flat, one], NO_ATTRIBUTES),
        ("x + y, float32", "add", [flat, other], NO_ATTRIBUTES),
        ("x + 1, float16", "add", [half, Scalar(1.0, dt.float16)], NO_ATTRIBUTES),
        ("x + 1, int8", "add", [small, Scalar(1, dt.int8)], NO_ATTRIBUTES),
        ("x < y, float32", "less", [flat, other], NO_ATTRIBUTES),
        ("exp(x), float32", "exp", [flat], NO_ATTRIBUTES),
        ("sin(x), float32", "sin", [flat], NO_ATTRIBUTES),
        ("tanh(x), float32", "tanh", [flat], NO_ATTRIBUTES),
        ("x / y, float32", "divide", [flat, other], NO_ATTRIBUTES),
        ("matrix + row", "add", [square, row], NO_ATTRIBUTES),
        ("matrix + column", "add", [square, column], NO_ATTRIBUTES),
        ("odd matrix + row", "add", [odd, odd_row], NO_ATTRIBUTES),
        ("matrix.T + 1", "add", [transposed, one], NO_ATTRIBUTES),
        ("sum(x)", "sum", [flat], whole),
        ("max(x)", "max", [flat], whole),
        ("argmax(x)", "argmax", [flat], ArgReduceAttributes(0, False, dt.int32)),
        ("sum(matrix, axis=1)", "sum", [square], rows),
        ("sum(matrix, axis=0)", "sum", [square], columns),
        ("sum(matrix.T, axis=0)", "sum", [transposed], columns),
        ("sum(x), float16", "sum", [half], ReduceAttributes((0,), False, dt.float16)),
    ]  # fmt: skip
    for what, name, operands, attributes in cases:
        run = prepared(machine, name, *operands, attributes=attributes)
        result = machine.apply(name, *operands, attributes=attributes)
        moved = result.type.nbytes + sum(
            operand.type.nbytes for operand in operands if isinstance(operand, Value)
        )
        seconds = batched(machine, run)
        report.add(what, [moved / second / 1e9 for second in seconds], "GB/s")
    torch_bandwidth(report, count, side)


def measure_products(report: Report, machine: Machine, side: int) -> None:
    """Floating-point operations a second of products of square matrices, 2 n³ each."""
    for n in (side, side // 4):
        for dtype in (np.float32, np.float16):
            matrix = machine.upload(np.random.default_rng(0).uniform(-1, 1, (n, n)).astype(dtype))
            swapped = machine.apply("permute_dims", matrix, attributes=PermuteAttributes((1, 0)))
            for what, right in (("A @ B", matrix), ("A @ B.T", swapped)):
                seconds = batched(machine, prepared(machine, "matmul", matrix, right))
                name = f"{what}, {np.dtype(dtype).name}, n = {n}"
                report.add(name, [2 * n**3 / second / 1e12 for second in seconds], "TFLOP/s")
    torch_products(report, side)


def measure_reduction_variants(report: Report, machine: Machine, scale: int) -> None:
    """Full sums and maxima, in gigabytes a second."""
    count = scale * 2**18
    floats = np.random.default_rng(0).uniform(-1, 1, count).astype(np.float32)
    flat = machine.upload(floats)
    shapes = [
        ReductionShape(workers, size, unroll, turns)
        for turns in (False, True)
        for workers in (1 << 17, 1 << 18, 1 << 19)
        for size, unroll in ((256, 4), (256, 8), (512, 4))
    ]
    whole = ReduceAttributes((0,), False, dt.float32)
    for name in ("sum", "max"):
        runs = {}
        for shape in shapes:
            variant = machine.assuming(is_software=False, reductions=shape)
            form = "in turns" if shape.interleaved else "in runs"
            label = f"{name}(x), {shape.workers} of {shape.workgroup_size} by {shape.unroll} {form}"
            runs[label] = (variant, prepared(variant, name, flat, attributes=whole))
        for label, seconds in in_turns(runs).items():
            report.add(label, [flat.type.nbytes / s / 1e9 for s in seconds], "GB/s")
    torch = cuda_torch()
    if torch is not None:
        x = torch.rand(count, device="cuda")  # type: ignore[attr-defined]
        for what, work in (("sum", lambda: x.sum()), ("max", lambda: x.max())):
            seconds = torch_seconds(torch, work)
            report.add(f"torch: {what}(x)", [4 * count / s / 1e9 for s in seconds], "GB/s")


def measure_product_variants(report: Report, machine: Machine, n: int) -> None:
    """A product of square float32 matrices, in operations a second."""
    matrix = machine.upload(np.random.default_rng(0).uniform(-1, 1, (n, n)).astype(np.float32))
    tiles = [
        Tile(rows, columns, depth, lane_rows, 8, unroll)
        for rows, columns, lane_rows in ((128, 128, 8), (64, 128, 8), (128, 128, 16))
        for depth, unroll in ((8, 1), (8, 2), (8, 4), (8, 8), (16, 1), (16, 4), (16, 16))
    ]
    runs = {}
    for tile in tiles:
        variant = machine.assuming(is_software=False, large_tile=tile)
        lanes = f"{tile.lane_rows} × {tile.lane_columns} a lane"
        label = f"{tile.rows} × {tile.columns} × {tile.depth}, {lanes}, by {tile.unroll}"
        runs[label] = (variant, prepared(variant, "matmul", matrix, matrix))
    for label, seconds in in_turns(runs).items():
        report.add(f"A @ B, {label}, n = {n}", [2 * n**3 / s / 1e12 for s in seconds], "TFLOP/s")
    torch_products(report, n)


def in_turns(
    runs: dict[str, tuple[Machine, Callable[[], object]]],
) -> dict[str, list[float]]:
    """Seconds of one operation for each, a batch of one after a batch of another."""
    found: dict[str, list[float]] = {label: [] for label in runs}
    for turn in range(9):
        for label, (machine, run) in runs.items():
            seconds = windowed(machine, run)
            if turn > 1:
                found[label].append(seconds)
    return found


def windowed(machine: Machine, run: Callable[[], object]) -> float:
    """Seconds of one operation, by the device's own clock where it has one: submitting and waiting
    take as long as a few of the shorter kernels."""
    server = machine.server
    token = server.start_profile()
    for _ in range(BATCH):
        run()
    window = server.end_profile(0, token)
    server.sync().wait()
    return window.wait() / BATCH


def prepared(
    machine: Machine,
    name: str,
    *operands: Value | Scalar,
    attributes: Attributes = NO_ATTRIBUTES,
) -> Callable[[], object]:
    """One operation with its graph made, as the host has it for a cached graph."""
    values = [operand for operand in operands if isinstance(operand, Value)]
    inputs = tuple(operand if isinstance(operand, Scalar) else TensorId(1) for operand in operands)
    operation = Operation(OPERATIONS[name], inputs, TensorId(2), attributes, LocationId(0))
    graph, scalars = single_node_graph(operation, tuple(value.type for value in values))
    return lambda: machine.lowering.execute(graph, values, scalars, 0)


def batched(machine: Machine, run: Callable[[], object]) -> list[float]:
    """Seconds of one operation, of several batches."""
    return [windowed(machine, run) for _ in range(9)][2:]


def torch_bandwidth(report: Report, count: int, side: int) -> None:
    torch = cuda_torch()
    if torch is None:
        return
    x = torch.rand(count, device="cuda")
    matrix = x[: side * side].reshape(side, side)
    row = x[:side]
    for what, work, moved in (
        ("torch: x + 1", lambda: x + 1, 8 * count),
        ("torch: x + x", lambda: x + x, 8 * count),
        ("torch: exp(x)", lambda: x.exp(), 8 * count),
        ("torch: matrix + row", lambda: matrix + row, 8 * count),
        ("torch: matrix.T copied", lambda: matrix.T.contiguous(), 8 * count),
        ("torch: sum(x)", lambda: x.sum(), 4 * count),
        ("torch: sum(matrix, axis=0)", lambda: matrix.sum(0), 4 * count),
        ("torch: argmax(x)", lambda: x.argmax(), 4 * count),
    ):
        report.add(what, [moved / s / 1e9 for s in torch_seconds(torch, work)], "GB/s")


def torch_products(report: Report, n: int) -> None:
    torch = cuda_torch()
    if torch is None:
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    matrix = torch.rand(n, n, device="cuda")
    for side in (n, n // 4):
        part = matrix[:side, :side].contiguous()
        seconds = torch_seconds(torch, lambda part=part: part @ part)
        report.add(
            f"torch: A @ B, float32, n = {side}",
            [2 * side**3 / s / 1e12 for s in seconds],
            "TFLOP/s",
        )


def cuda_torch() -> object | None:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def torch_seconds(torch: object, work: Callable[[], object]) -> list[float]:
    def batch() -> None:
        for _ in range(BATCH):
            work()
        torch.cuda.synchronize()  # type: ignore[attr-defined]

    return [seconds / BATCH for seconds in repeat(batch, 7, warm_up=2)]


if __name__ == "__main__":
    main()
