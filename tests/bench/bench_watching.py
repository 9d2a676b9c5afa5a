"""What watching costs: a server's work with a viewer and without, and the page's own frames.

    python tests/bench/bench_watching.py [--rounds N] [--json PATH]

The same load, 1,760 operations a second, is run with and without a viewer, in turns, in pairs; of
each pair the difference in the processor time of the server's processes is taken, so that what else
the machine does falls on both. A percent is 10 ms of one core a second: of the thread that hands
work to the device, of the whole device host, and of the front, which sends the viewer what it sees.
The ± in a row's name is the half width of the mean's 95 % confidence interval. Beside it stands how
much longer fixed work takes that keeps the device host busy all the time, by the wall clock, which
resolves less.

The viewer reads `/events` and throws it away: what a browser does with it is its own machine's
affair, and is measured apart: the page is fed 1,000 operations a second, and Chromium's trace says
what its main thread did for each frame, script, layout and paint, in processor time. That nothing
is paid without a viewer is measured as what is left of it: the attribute tests of one operation,
against the operation.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from report import Report

sys.path.insert(0, str(Path(__file__).parent.parent))

import gpuwire as gw
from browser import Browser
from gpuwire.compute.server import WgpuServer
from gpuwire.config import load_config
from gpuwire.host.kernel_times import PAUSE_SECONDS
from gpuwire.host.node_graphs import NodeGraphs
from gpuwire.host.watching import HostWatch
from gpuwire.host.work import RunnableGraph, Work
from gpuwire.ids import LocationId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.operations import OPERATIONS, Operation
from gpuwire.ir.tensors import TensorType
from gpuwire.kernels.kernel import Kernel
from gpuwire.lowering.counting import Tally
from gpuwire.server.watching import LEASE_SECONDS
from gpuwire.telemetry.plain import to_json
from gpuwire.telemetry.probe import Probe
from gpuwire.telemetry.snapshots import CacheCounts, HostSessionSnapshot
from lowered import Machine
from servers import ServerProcess

LOAD_SECONDS = 1.5
TICK_SECONDS = 0.025
VIEWS, LAUNCHES = 40, 4
"""Operations of each tick: those that launch nothing, and those that do."""
BUSY_STEPS = 2_000
TESTS_PER_OPERATION = 3
"""Of `probe.watched` or its like: at the task, after the run, at the launch."""
FRAME_US = 16_667

Measure = Callable[[], list[float]]


def process_seconds(process: int) -> float:
    """Processor time of all of a process's threads: its CPU clock, as clock_getcpuclockid(3)
    numbers it."""
    return time.clock_gettime(~process << 3 | 2)


def thread_seconds(process: int) -> float:
    """That of a process's first thread, which does all of a device host's own work."""
    return int(Path(f"/proc/{process}/task/{process}/schedstat").read_text().split()[0]) * 1e-9


class Side:
    """A server under load, looked at with a viewer and without."""

    def __init__(self, server: ServerProcess, url: str, dev: gw.Device) -> None:
        (self._host,) = server.host_pids()
        self._front = server.process.pid
        self._url = url
        self._dev = dev
        self._x = gw.asarray(np.ones(64, np.float32), device=dev)

    def unwatched(self, measure: Measure) -> list[float]:
        time.sleep(LEASE_SECONDS + 0.4)  # The host forgets the viewer before.
        return measure()

    def watched(self, measure: Measure) -> list[float]:
        viewer = subprocess.Popen(
            ["curl", "--silent", "--no-buffer", f"{self._url}events"], stdout=subprocess.DEVNULL
        )
        time.sleep(0.7)  # The first snapshots, which tell everything, are through.
        try:
            return measure()
        finally:
            viewer.terminate()
            viewer.wait()

    def pairs(self, measure: Measure, rounds: int) -> list[tuple[list[float], list[float]]]:
        """What `measure` gives with and without a viewer; in turns first and second, so that
        neither has always the warmer machine."""
        found = []
        for number in range(rounds):
            if number % 2:
                without = self.unwatched(measure)
                found.append((self.watched(measure), without))
            else:
                seen = self.watched(measure)
                found.append((seen, self.unwatched(measure)))
        return found

    def paced(self) -> list[float]:
        """Milliseconds of processor time a second, of the host's first thread, the host, the
        front, under the same load."""
        counters = (
            lambda: thread_seconds(self._host),
            lambda: process_seconds(self._host),
            lambda: process_seconds(self._front),
        )
        before, began = [count() for count in counters], time.perf_counter()
        self._load()
        seconds = time.perf_counter() - began
        return [
            (count() - then) / seconds * 1e3 for count, then in zip(counters, before, strict=True)
        ]

    def busy(self) -> list[float]:
        """Seconds of fixed work."""
        began = time.perf_counter()
        y = self._x
        for step in range(BUSY_STEPS):
            y = y * 0.999 if step % 2 else y + 0.001
        self._dev.sync()
        return [time.perf_counter() - began]

    def _load(self) -> None:
        due = time.perf_counter()
        end = due + LOAD_SECONDS
        while due < end:
            made = [
                gw.reshape(self._x, (8, 8) if number % 2 else (4, 16)) for number in range(VIEWS)
            ]
            made += [self._x * 0.99 for _ in range(LAUNCHES)]
            self._dev.flush()
            due += TICK_SECONDS
            time.sleep(max(0.0, due - time.perf_counter()))
        self._dev.sync()


def measure_overhead(report: Report, server: ServerProcess, url: str, rounds: int) -> None:
    with gw.connect(server.ticket, config=load_config(remote__graph_cache=False)) as dev:
        side = Side(server, url, dev)
        side.paced()
        pairs = side.pairs(side.paced, rounds)
        whose = ("device host's first thread", "device host", "front")
        for place, name in enumerate(whose):
            more = [(seen[place] - without[place]) / 10 for seen, without in pairs]
            report.add(f"{name}: more of a core, {interval(more)}", more, "%", at_most=1)
        side.busy()
        ratios = [
            (seen[0] / without[0] - 1) * 100 for seen, without in side.pairs(side.busy, rounds)
        ]
        report.add(f"fixed work: more wall time, {interval(ratios)}", ratios, "%")
        seconds = [side.busy()[0] for _ in range(3)]
    per_operation = [second / BUSY_STEPS * 1e6 for second in seconds]
    tests = attribute_test_seconds() * TESTS_PER_OPERATION * 1e6
    share = [tests / micro * 100 for micro in per_operation]
    report.add("attribute tests without a viewer, of an operation", share, "%", at_most=0.3)


def interval(values: Sequence[float]) -> str:
    """`mean … ± …`, of 95 % confidence."""
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return f"mean {statistics.mean(values):.2f} ± {half:.2f}"


def measure_host_second(report: Report) -> None:
    """One watched second of a device host: as many events as there is room for, and the asking."""
    server = WgpuServer.init(0)
    graphs = NodeGraphs()
    types = [TensorType(dt.float32, (size,)) for size in range(1, 65)]
    runs = [graphs.graph(operation(size), (type_,))[0] for size, type_ in enumerate(types)]
    watch = HostWatch(server, graphs, Tally())
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
            to_json(watch.snapshot([facts]))
        seconds.append(time.thread_time() - began)
    server.close()
    report.add("snapshots and events alone, of a core", [s * 100 for s in seconds], "%", at_most=1)


class _Timing:
    """Times every so many-th launch, as `KernelTimes` does now and then."""

    def __init__(self, server: WgpuServer, every: int) -> None:
        self._server = server
        self._every = every
        self._launches = 0
        self._token: int | None = None

    def before(self, kernel: Kernel, stream: int) -> None:
        self._launches += 1
        if self._launches % self._every == 0:
            self._token = self._server.start_profile_at_launch(stream)

    def after(self, kernel: Kernel, stream: int) -> None:
        token, self._token = self._token, None
        if token is not None:
            self._server.end_profile(stream, token).when_done(lambda: None)


def measure_timed_launch(report: Report) -> None:
    """What timing a launch costs over one that is looked at and not timed, and so a second."""
    machine = Machine()
    x = machine.upload(np.ones(64, np.float32))
    graph = NodeGraphs().graph(operation(0), (TensorType(dt.float32, (64,)),))[0]
    launches, every = 1_000, 10

    def seconds(timing: _Timing) -> float:
        machine.server.observe_launches(timing)
        began = time.process_time()
        for number in range(launches):
            machine.lowering.execute(graph, [x], (), 0)
            if number % 20 == 19:
                machine.server.flush(0)
        machine.server.sync((), 0).wait()
        return time.process_time() - began

    seconds(_Timing(machine.server, every))
    costs = [
        (seconds(_Timing(machine.server, every)) - seconds(_Timing(machine.server, launches * 2)))
        / (launches / every)
        for _ in range(12)
    ]
    machine.server.close()
    report.add("a timed launch, on all threads", [cost * 1e6 for cost in costs], "µs")
    share = [cost / PAUSE_SECONDS * 100 for cost in costs]
    report.add("timed launches, as many as there are, of a core", share, "%", at_most=0.5)


def operation(output: int) -> Operation:
    return Operation(
        OPERATIONS["exp"], (TensorId(1),), TensorId(2 + output), NO_ATTRIBUTES, LocationId(0)
    )


def attribute_test_seconds() -> float:
    probe = Probe(1)
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
            time.sleep(4)  # The page has drawn everything once, and its scripts are compiled.
            browser.start_trace("toplevel", "blink", "devtools.timeline")
            time.sleep(15)
            trace = browser.trace()
    finally:
        stop.set()
        feeding.join()
    frames = frame_times(trace)
    report.add("main thread in a frame, processor time", frames, "ms", at_most=5)
    report.add("  of the longest", [max(frames)], "ms", at_most=5)
    over = sum(frame > 5 for frame in frames) / len(frames) * 100
    report.add("  frames over 5 ms", [over], "%", at_most=0)
    report.add("main thread, of a core", [sum(frames) / 15 / 10], "%")


def frame_times(trace: list[dict[str, Any]]) -> list[float]:
    """Milliseconds of processor time of the page's main thread for each frame: of the task that
    made it, and of those that ran since the frame before, within one frame's time."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace if e["name"] == "thread_name"}
    spans = [event for event in trace if event["ph"] == "X"]
    mains = {place for place, name in names.items() if name == "CrRendererMain"}
    begins: dict[tuple[int, int], list[int]] = {place: [] for place in mains}
    for event in spans:
        place = (event["pid"], event["tid"])
        if place in mains and event["name"] == "WebFrameWidgetImpl::BeginMainFrame":
            begins[place].append(event["ts"])
    page = max(mains, key=lambda place: len(begins[place]))
    starts = sorted(begins[page])
    tasks = sorted(
        (e for e in spans if (e["pid"], e["tid"]) == page and e["name"].endswith("RunTask")),
        key=lambda event: event["ts"],
    )
    frames, since = [], 0
    for task in tasks:
        place_of_frame = bisect_left(starts, task["ts"])
        end = task["ts"] + task["dur"]
        if place_of_frame == len(starts) or starts[place_of_frame] > end:
            continue
        since = max(since, task["ts"] - FRAME_US)
        own = sum(other["tdur"] for other in tasks if since <= other["ts"] <= task["ts"])
        frames.append(own / 1e3)
        since = end
    return frames


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, add_help=False)
    arguments.add_argument("--rounds", type=int, default=20)
    rounds = arguments.parse_known_args()[0].rounds
    report = Report("watching")
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        with ServerProcess(directory / "server", "--dashboard", "0") as server:
            lines = server.log.read_text().splitlines()
            line = next(line for line in lines if "the dashboard is at" in line)
            url = line.rpartition(" at ")[2]
            measure_host_second(report)
            measure_timed_launch(report)
            measure_overhead(report, server, url, rounds)
            measure_page(report, server, url, directory / "browser")
    report.finish()


if __name__ == "__main__":
    main()
