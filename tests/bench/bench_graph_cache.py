"""What the op-graph cache sends, and what it costs the thread that records.

    python tests/bench/bench_graph_cache.py [--json PATH]

Bytes are those of the client's messages, frames included, of one session with the cache and one
without, over QUIC on loopback to a server of its own. The recording costs are without a link, so
that nothing else runs meanwhile.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque

import numpy as np
from report import Report

import gpuwire as gw
from gpuwire.client.batch import Batches
from gpuwire.client.graph_cache import GraphCache
from gpuwire.client.locations import LocationTable
from gpuwire.client.op_by_op import OpByOp
from gpuwire.client.recorder import Recorder
from gpuwire.client.stats import Stats
from gpuwire.client.tensor import Tensor
from gpuwire.config import load_config
from gpuwire.ids import StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.telemetry.logs import disabled_logger
from gpuwire.telemetry.savings import Savings

OP_BY_OP = load_config(remote={"graph_cache": False})
STEPS = 1000
WIDTH = 16


# --- Bytes -----------------------------------------------------------------------------------


def training_step(
    weights: list[gw.Array], moments: list[gw.Array], x: gw.Array, rate: float
) -> None:
    """A step of 202 ops over 21 inputs, all of which but `x` it replaces: a chain of ten layers
    and a backward pass through them, with a rate that changes."""
    h = x
    seen = []
    for w in weights:
        h = gw.tanh(h @ w) * 0.99 + h
        seen.append(h)
    slope = (h - 1.0) * 0.01
    for number in range(len(weights) - 1, -1, -1):
        gradient = seen[number] * slope
        gradient = gradient + gw.matrix_transpose(gradient)
        moments[number] = moments[number] * 0.9 + gradient * 0.1
        weights[number] = weights[number] - (moments[number] * rate) * 0.5
        slope = gw.tanh(slope * seen[number] - 0.5) * 0.1
        slope = slope - gw.abs(slope) * 0.01


def bytes_per_step(dev: gw.Device) -> list[float]:
    """Of the settled step, one value for each hundred."""
    weights = [gw.full((WIDTH, WIDTH), 0.01 * n, device=dev) for n in range(10)]
    moments = [gw.zeros((WIDTH, WIDTH), device=dev) for _ in range(10)]
    x = gw.ones((WIDTH, WIDTH), device=dev)
    values = []
    for hundred in range(6):
        before = dev.stats()
        for step in range(100):
            training_step(weights, moments, x, 0.1 / (1 + step + 100 * hundred))
        dev.flush()
        after = dev.stats()
        values.append((after.bytes_sent - before.bytes_sent) / 100)
    assert np.all(np.isfinite(np.asarray(weights[0])))
    return values[1:]


def transformer_block(h: gw.Array, weights: list[gw.Array]) -> gw.Array:
    """Attention over two heads and a feed-forward layer, with layer norms before both."""
    length, width = h.shape
    query, key, value, out, up, down = weights
    x = layer_norm(h)
    heads = [
        gw.permute_dims(gw.reshape(x @ w, (length, 2, width // 2)), (1, 0, 2))
        for w in (query, key, value)
    ]
    scores = heads[0] @ gw.matrix_transpose(heads[1]) / (width // 2) ** 0.5
    scores = gw.exp(scores - gw.max(scores, axis=-1, keepdims=True))
    scores = scores / gw.sum(scores, axis=-1, keepdims=True)
    mixed = gw.reshape(gw.permute_dims(scores @ heads[2], (1, 0, 2)), (length, width))
    h = h + mixed @ out
    x = layer_norm(h) @ up
    return h + (x / (1.0 + gw.exp(-1.702 * x))) @ down


def layer_norm(h: gw.Array) -> gw.Array:
    centred = h - gw.mean(h, axis=-1, keepdims=True)
    variance = gw.mean(centred * centred, axis=-1, keepdims=True)
    return centred / gw.sqrt(variance + 1e-5)


def transformer(dev: gw.Device) -> tuple[Stats, int]:
    """Stats of a session after a thousand steps of two blocks, each step over the one before, and
    the bytes sent for them: weights are uploaded before."""
    rng = np.random.default_rng(0)
    shapes = [(WIDTH, WIDTH)] * 4 + [(WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
    layers = [
        [
            gw.asarray(rng.standard_normal(shape).astype(np.float32) * 0.1, device=dev)
            for shape in shapes
        ]
        for _ in range(2)
    ]
    h = gw.asarray(rng.standard_normal((8, WIDTH)).astype(np.float32), device=dev)
    dev.sync()
    before = dev.stats().bytes_sent
    for _ in range(STEPS):
        for weights in layers:
            h = transformer_block(h, weights)
    dev.sync()
    assert np.all(np.isfinite(np.asarray(h)))
    after = dev.stats()
    return after, after.bytes_sent - before


# --- Recording -------------------------------------------------------------------------------


def microseconds_per_op(*, cached: bool) -> list[float]:
    """A step of 200 ops that settled, without a link; one value a step."""
    dropped: deque[TensorId] = deque()
    told: deque[TensorId] = deque() if cached else dropped
    batches = Batches(told, flush_threshold=4, flush_bytes_threshold=1 << 20, frame_bytes=1 << 20)
    savings = Savings(disabled_logger("client"))
    recorder = Recorder(
        GraphCache(batches, dropped, told, clock=time.monotonic, savings=savings)
        if cached
        else OpByOp(batches),
        dropped,
        lock=threading.RLock(),
        wake=lambda urgent: None,
        locations=LocationTable(),
        dtypes=frozenset(dt.ALL_DTYPES),
        device="no device",
    )
    stream, type_ = StreamId(0), TensorType(dt.float32, (WIDTH, WIDTH))
    weights = [recorder.register(stream, recorder.request(), type_, b"") for _ in range(20)]
    matmul, tanh, add = OPERATIONS["matmul"], OPERATIONS["tanh"], OPERATIONS["add"]
    half = Scalar(0.5, dt.float32)

    def step(h: Tensor) -> Tensor:
        for number in range(50):
            g = recorder.operation(stream, matmul, (h, weights[number % 20]), NO_ATTRIBUTES)
            g = recorder.operation(stream, tanh, (g,), NO_ATTRIBUTES)
            g = recorder.operation(stream, add, (g, half), NO_ATTRIBUTES)
            if number < 49:
                h = recorder.operation(stream, add, (g, h), NO_ATTRIBUTES)
        return recorder.operation(stream, add, (g, h), NO_ATTRIBUTES)

    h = weights[0]
    values = []
    for _ in range(300):
        began = time.perf_counter()
        h = step(h)
        values.append((time.perf_counter() - began) / 200 * 1e6)
        while batches.take():
            pass
    return values[50:]


def main() -> None:
    with gw.connect() as dev, gw.connect(config=OP_BY_OP) as plain:
        report = Report(f"the op-graph cache, {dev.info.name}, loopback")
        (stats, sent), (_, plainly_sent) = transformer(dev), transformer(plain)
        saved = 100 * stats.saved_bytes / stats.baseline_bytes
        report.add("1,000 steps of two blocks: saved of baseline", [saved], "%", at_least=99)
        share = 100 * (1 - sent / plainly_sent)
        report.add("the same, of the bytes sent op by op", [share], "%", at_least=99)
        report.add("sent op by op", [plainly_sent / 1e6], "MB")
        report.add("sent with the cache", [sent / 1e6], "MB")
        report.add(
            "a step of 202 ops, 21 inputs, 10 scalars new",
            bytes_per_step(dev),
            "bytes",
            at_most=400,
        )
        report.add("the same op by op", bytes_per_step(plain), "bytes")
    report.add("recording an op, settled", microseconds_per_op(cached=True), "µs", at_most=12)
    report.add("recording an op, op by op", microseconds_per_op(cached=False), "µs")
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
