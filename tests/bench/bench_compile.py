"""What calling a compiled function costs the client, against recording its operations one by one.

    python tests/bench/bench_compile.py [--json PATH]

A step of 200 operations over 20 arrays, called over and over. A server of its own runs on this
machine, in a process that does not count. CPU time of the calling thread, and of the whole client
with its event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from report import Report

import gpuwire as gw
from gpuwire.array.compilation.structures import flatten
from gpuwire.config import load_config

ARRAYS = 20
CALLS = 50
ROUNDS = 9

Step = Callable[..., Any]


def step(params: list[gw.Array], x: gw.Array, rate: float) -> tuple[list[gw.Array], gw.Array]:
    """Ten operations for each of 20 parameters."""
    new = []
    for w in params:
        h = x * w + 0.5
        g = gw.exp(-(h * h)) * w
        new.append(w - rate * (g - x))
        x = x + 0.01
    return new, x


def start(dev: gw.Device) -> tuple[list[gw.Array], gw.Array]:
    elements = np.ones((4, 4), np.float32)
    params = [gw.asarray(elements * number, device=dev) for number in range(ARRAYS)]
    return params, gw.asarray(elements, device=dev)


def measure(report: Report, what: str, dev: gw.Device, function: Step, bound: float | None) -> None:
    """CPU time of a call that feeds the next one, in the calling thread and in the process."""
    params, x = start(dev)
    thread, process = [], []
    for _ in range(ROUNDS + 2):
        dev.sync()
        before = time.thread_time(), time.process_time()
        for _ in range(CALLS):
            params, _ = function(params, x, 0.01)
        thread.append((time.thread_time() - before[0]) / CALLS * 1e6)
        dev.sync()
        process.append((time.process_time() - before[1]) / CALLS * 1e6)
    report.add(what, thread[2:], "µs", at_most=bound)
    report.add("  with the event loop", process[2:], "µs")


def bytes_of_a_call(dev: gw.Device, compiled: Step) -> list[float]:
    params, x = start(dev)
    sent = []
    for _ in range(ROUNDS):
        dev.sync()
        before = dev.stats().bytes_sent
        for _ in range(CALLS):
            params, _ = compiled(params, x, 0.01)
        dev.sync()
        sent.append((dev.stats().bytes_sent - before) / CALLS)
    return sent[2:]


def flattening(dev: gw.Device) -> list[float]:
    """Microseconds for the form of the arguments."""
    params, x = start(dev)
    values = []
    for _ in range(ROUNDS):
        before = time.thread_time()
        for _ in range(1000):
            flatten((params, x, 0.01), [], [], [])
        values.append((time.thread_time() - before) * 1e3)
    return values


def main() -> None:
    report = Report("client CPU a call: 200 operations over 20 arrays")
    compiled = gw.compile(step)
    with gw.connect() as dev:
        assert len(compiled.lower(*start(dev), 0.01).graph.nodes) == 10 * ARRAYS
        measure(report, "compiled", dev, compiled, 150)
        report.add("  of it: the form of the arguments", flattening(dev), "µs")
        report.add("  bytes sent", bytes_of_a_call(dev, compiled), "B", at_most=400)
        measure(report, "not compiled", dev, step, None)
    with gw.connect(config=load_config(remote={"graph_cache": False})) as dev:
        measure(report, "not compiled, without the op-graph cache", dev, step, None)
    report.finish()


if __name__ == "__main__":
    main()
