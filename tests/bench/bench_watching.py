"""What watching costs: the server's work with a viewer and without, and the page's own frames.

    python tests/bench/bench_watching.py [--rounds N] [--json PATH]

A viewer costs a device host four snapshots a second, the events in them, and some timed launches.
That is measured by itself, in this process: CPU time of one watched second at the most events there
can be, of one core. Beside it, the same work is done with and without a viewer, in turns, so that
what else the machine does falls on both; its ratio says the same as far as its ± allows. The viewer
reads `/events` and throws it away: what a browser does with it is its
own machine's affair, and is measured apart: the page is fed 1,000 operations a second and says how
long its frames took. That nothing is paid without a viewer is measured as what is left of it: the
attribute tests of one operation, against the operation.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from report import Report

sys.path.insert(0, str(Path(__file__).parent.parent))

import gpuwire as gw
from browser import Browser
from gpuwire.compute.server import WgpuServer
from gpuwire.config import load_config
from gpuwire.host.facts import pack_snapshot
from gpuwire.host.kernel_times import SHARE
from gpuwire.host.node_graphs import NodeGraphs
from gpuwire.host.watching import HostWatch
from gpuwire.host.work import RunnableGraph, Work
from gpuwire.ids import LocationId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.operations import OPERATIONS, Operation
from gpuwire.ir.tensors import TensorType
from gpuwire.server.watching import LEASE_SECONDS
from gpuwire.telemetry.probe import Probe
from gpuwire.telemetry.snapshots import CacheCounts, HostSessionSnapshot
from servers import ServerProcess

RUN_OPERATIONS = 2_000
REPEATS = 6
TESTS_PER_OPERATION = 3
"""Of `probe.watched` or its like: at the task, after the run, at the launch."""


def cpu_seconds(process: int) -> float:
    """CPU time of a process's first thread, which does all of a device host's own work."""
    return int(Path(f"/proc/{process}/task/{process}/schedstat").read_text().split()[0]) * 1e-9


def work(dev: gw.Device, number: int) -> None:
    """Operations one by one, as they are without the op-graph cache: the most there is to note."""
    x = gw.asarray(np.ones(4096, np.float32), device=dev)
    for step in range(RUN_OPERATIONS):
        y = gw.reshape(x, (4096,)) if step % 3 == 0 else x + float(step)
        if step % 50 == 0:
            np.asarray(y[: 1 + (number + step) % 7])
    dev.sync()


def measured(dev: gw.Device, host: int, number: int) -> tuple[float, float]:
    """CPU seconds of the device host, wall seconds."""
    cpu, wall = cpu_seconds(host), time.perf_counter()
    for _ in range(REPEATS):
        work(dev, number)
    return cpu_seconds(host) - cpu, time.perf_counter() - wall


def unwatched(dev: gw.Device, host: int, number: int) -> tuple[float, float]:
    time.sleep(LEASE_SECONDS + 0.5)  # The host forgets the viewer before.
    return measured(dev, host, number)


def watched(dev: gw.Device, host: int, number: int, url: str) -> tuple[float, float]:
    viewer = subprocess.Popen(
        ["curl", "--silent", "--no-buffer", f"{url}events"], stdout=subprocess.DEVNULL
    )
    time.sleep(1.0)
    try:
        return measured(dev, host, number)
    finally:
        viewer.terminate()
        viewer.wait()


def measure_overhead(report: Report, server: ServerProcess, url: str, rounds: int) -> None:
    (host,) = server.host_pids()
    with gw.connect(server.ticket, config=load_config(remote__graph_cache=False)) as dev:
        work(dev, 0)
        ratios: list[tuple[float, float]] = []
        per_operation: list[float] = []
        for number in range(rounds):
            # In turns first and second, so that neither has always the warmer machine.
            if number % 2:
                without = unwatched(dev, host, number)
                seen = watched(dev, host, number, url)
            else:
                seen = watched(dev, host, number, url)
                without = unwatched(dev, host, number)
            ratios.append((seen[0] / without[0], seen[1] / without[1]))
            per_operation.append(without[0] / (REPEATS * RUN_OPERATIONS) * 1e6)
    report.add("device host's CPU per operation, unwatched", per_operation, "µs")
    cpu = [(ratio[0] - 1) * 100 for ratio in ratios]
    report.add("more CPU in the device host with a viewer", cpu, "%")
    report.add("more wall time with a viewer", [(ratio[1] - 1) * 100 for ratio in ratios], "%")
    tests = attribute_test_seconds() * TESTS_PER_OPERATION * 1e6
    share = [tests / micro * 100 for micro in per_operation]
    report.add("attribute tests without a viewer, of an operation", share, "%", at_most=0.3)


def measure_host_second(report: Report) -> None:
    """One watched second of a device host: as many events as there is room for, and the asking."""
    server = WgpuServer.init(0)
    graphs = NodeGraphs()
    types = [TensorType(dt.float32, (size,)) for size in range(1, 65)]
    runs = [graphs.graph(operation(size), (type_,))[0] for size, type_ in enumerate(types)]
    watch = HostWatch(server, graphs)
    session = watch.session(1)
    work = [Work(RunnableGraph(graph, (), ()), 0, None, (), (), ()) for graph in runs]  # type: ignore[arg-type]
    seconds = []
    for _ in range(40):
        watch.probe.watch(0.0, 1e9)
        began = time.thread_time()
        for _ in range(4):
            number = 0
            while watch.probe.is_open:
                began_work = session.begin()
                session.ran(work[number % len(work)], began_work)
                number += 1
            facts = session.facts(HostSessionSnapshot(1, 9, 1 << 20, 0), CacheCounts(), ())
            pack_snapshot(watch.snapshot([facts]))
        seconds.append(time.thread_time() - began)
    server.close()
    share = [second * 100 for second in seconds]
    report.add("snapshots and events, of a device host's core", share, "%", at_most=1)
    report.add("timed launches, by their own limit", [SHARE * 100], "%")


def operation(output: int) -> Operation:
    return Operation(
        OPERATIONS["exp"], (TensorId(1),), TensorId(2 + output), NO_ATTRIBUTES, LocationId(0)
    )


def attribute_test_seconds() -> float:
    probe: Probe[int] = Probe(1)
    count = 1_000_000

    def loop(test: bool) -> float:
        began = time.perf_counter()
        if test:
            for _ in range(count):
                if probe.watched:
                    raise AssertionError
        else:
            for _ in range(count):
                pass
        return time.perf_counter() - began

    least = [min(loop(test) for _ in range(7)) for test in (True, False)]
    return max(0.0, least[0] - least[1]) / count


def measure_page(report: Report, server: ServerProcess, url: str, directory: Path) -> None:
    stop = threading.Event()

    def feed() -> None:
        with gw.connect(server.ticket) as dev:
            x = gw.asarray(np.ones((8, 8), np.float32), device=dev)
            due = time.perf_counter()
            number = 0
            while not stop.is_set():
                for _ in range(25):
                    number += 1
                    y = gw.reshape(x, (4, 16)) if number % 7 else gw.reshape(x, (64,))
                dev.flush()
                due += 0.025
                time.sleep(max(0.0, due - time.perf_counter()))
            np.asarray(y)

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        with Browser(directory) as browser:
            browser.open(url)
            browser.wait("document.getElementById('link').textContent === 'live'")
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            report.add("first paint", [browser.evaluate(paint)], "ms", at_most=1000)
            time.sleep(3)
            browser.evaluate("gpuwire.frames.length = 0")
            browser.call("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
            browser.call("Performance.enable")
            before = metrics(browser)
            began = time.perf_counter()
            time.sleep(15)
            after, seconds = metrics(browser), time.perf_counter() - began
            frames = browser.evaluate("gpuwire.frames")
    finally:
        stop.set()
        feeding.join()
    report.add("script in a frame", frames, "ms", at_most=5)
    late = sum(frame > 5 for frame in frames) / len(frames) * 100
    report.add("frames over 5 ms by the wall clock", [late], "%")
    busy = (after["TaskDuration"] - before["TaskDuration"]) / seconds
    report.add("main thread's CPU, of one core", [busy * 100], "%")


def metrics(browser: Browser) -> dict[str, float]:
    found = browser.call("Performance.getMetrics")["metrics"]
    return {metric["name"]: metric["value"] for metric in found}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, add_help=False)
    arguments.add_argument("--rounds", type=int, default=8)
    rounds = arguments.parse_known_args()[0].rounds
    report = Report("watching")
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        with ServerProcess(directory / "server", "--dashboard", "0") as server:
            lines = server.log.read_text().splitlines()
            line = next(line for line in lines if "the dashboard is at" in line)
            url = line.rpartition(" at ")[2]
            measure_host_second(report)
            measure_overhead(report, server, url, rounds)
            measure_page(report, server, url, directory / "browser")
    report.finish()


if __name__ == "__main__":
    main()
