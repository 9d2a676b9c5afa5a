"""An eight-layer block, `h = relu(h @ w) + h` over 64 × 64, called from another process.

    python tests/bench/bench_block.py [--rounds N] [--calls N] [--tinygrad PYTHON] [--json PATH]

Side by side, in turns: the plan that the server made for the block, run in this process on the same
adapter as `Lowering` runs it in the server; the compiled function, called through a server in
processes of its own over loopback; and tinygrad 0.11's TinyJit of the same block, in one process
and through its REMOTE device, both on WEBGPU. tinygrad's rows need a Python that has it
(`--tinygrad`, or GPUWIRE_BENCH_TINYGRAD) and a dawn library (`pip install dawn-python`).

A call is timed in two ways. *Waited for*: each call's result is read before the next call, so that
every hop of the way is paid in full; tinygrad's REMOTE sends nothing before something is read, and
the 1.24 ms that are told of its CPU device are of this kind. *Pipelined*: so many calls, then one
wait, divided by their number. What limits a call is told by the processor time that it takes in
each process, beside a round trip of nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from report import Report

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gpuwire as gw
from gpuwire.ir.graphs import ScalarRef
from gpuwire.ir.tensors import Scalar
from lowered import Machine
from servers import ServerProcess

LAYERS, SIZE = 8, 64
WAITED, PIPELINED = "waited for", "pipelined"

Run = Callable[[str, int], float]
"""Seconds of so many calls, waited for or pipelined."""


@gw.compile
def block(h: gw.Array, weights: list[gw.Array]) -> gw.Array:
    for w in weights:
        h = gw.maximum(h @ w, 0.0) + h
    return h


class Values:
    """What goes in and what must come out."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.x = random.normal(0, 1, (SIZE, SIZE)).astype(np.float32)
        self.weights = [
            random.normal(0, 0.1, (SIZE, SIZE)).astype(np.float32) for _ in range(LAYERS)
        ]
        h = self.x.astype(np.float64)
        for w in self.weights:
            h = np.maximum(h @ w, 0.0) + h
        self.result = h

    def check(self, found: np.ndarray) -> None:
        np.testing.assert_allclose(found, self.result, rtol=1e-4, atol=1e-3)


class Remote:
    """The block as a client calls it."""

    def __init__(self, dev: gw.Device, values: Values) -> None:
        self.dev = dev
        self.x = gw.asarray(values.x, device=dev)
        self.weights = [gw.asarray(w, device=dev) for w in values.weights]
        values.check(np.asarray(block(self.x, self.weights)))

    def __call__(self, how: str, calls: int) -> float:
        began = time.perf_counter()
        if how is WAITED:
            for _ in range(calls):
                np.asarray(block(self.x, self.weights))
        else:
            for _ in range(calls):
                kept = block(self.x, self.weights)
            self.dev.sync()
            del kept
        return time.perf_counter() - began

    def empty_round_trip(self) -> float:
        began = time.perf_counter()
        self.dev.sync()
        return time.perf_counter() - began


class InProcess:
    """The same plan, run where the adapter is."""

    def __init__(self, remote: Remote, values: Values) -> None:
        lowered = block.lower(remote.x, remote.weights)
        self.graph = lowered.graph
        self.machine = Machine(remote.dev.info.index)
        plan = self.machine.lowering.describe(self.graph)
        assert plan == lowered.kernel_plan(), "the server runs another plan"
        self.inputs = [self.machine.upload(array) for array in (values.x, *values.weights)]
        refs = [ref for node in self.graph.nodes for ref in node.operands]
        self.scalars = [Scalar(0.0, ref.dtype) for ref in refs if isinstance(ref, ScalarRef)]
        values.check(self.machine.download(self._call()))

    def _call(self):  # type: ignore[no-untyped-def]
        return self.machine.execute(self.graph, self.inputs, self.scalars)[0]

    def __call__(self, how: str, calls: int) -> float:
        began = time.perf_counter()
        if how is WAITED:
            for _ in range(calls):
                self.machine.download(self._call())
        else:
            for _ in range(calls):
                kept = self._call()
            self.machine.server.sync().wait()
            del kept
        return time.perf_counter() - began


TINYGRAD = """
import sys, time
import numpy as np
from tinygrad import Tensor, TinyJit
values = np.load(sys.argv[1])
x = Tensor(values["x"]).realize()
weights = [Tensor(w).realize() for w in values["weights"]]
@TinyJit
def block(h):
    for w in weights: h = (h @ w).relu() + h
    return h.realize()
for _ in range(20): found = block(x).numpy()
np.testing.assert_allclose(found, values["result"], rtol=1e-4, atol=1e-3)
print("ready", flush=True)
for line in sys.stdin:
    how, calls = line.split()
    began = time.perf_counter()
    for _ in range(int(calls)):
        kept = block(x)
        if how == "waited": kept.numpy()
    kept.numpy()
    print(time.perf_counter() - began, flush=True)
"""


@contextmanager
def tinygrad_block(python: str, values: Path, port: int | None) -> Iterator[Run]:
    """tinygrad's block on its WEBGPU device; through a REMOTE server of its own if there is a
    port."""
    with ExitStack() as running:
        if port is None:
            chosen = {"DEV": "WEBGPU"}
        else:
            server = {"REMOTEDEV": "WEBGPU", "PORT": str(port)}
            serving = _child([python, "-m", "tinygrad.runtime.ops_remote"], server)
            running.callback(_end, serving)
            assert serving.stdout is not None
            assert "start remote server" in serving.stdout.readline()
            chosen = {"REMOTE": "1", "HOST": f"127.0.0.1:{port}"}
        client = _child([python, "-c", TINYGRAD, str(values)], chosen)
        running.callback(_end, client)
        assert client.stdout is not None and client.stdin is not None
        if client.stdout.readline().strip() != "ready":
            raise SystemExit("tinygrad's block did not start, see above")

        def run(how: str, calls: int) -> float:
            assert client.stdout is not None and client.stdin is not None
            client.stdin.write(f"{how.split()[0]} {calls}\n")
            client.stdin.flush()
            return float(client.stdout.readline())

        yield run


def _child(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def processor_seconds(process: int) -> float:
    """Of all its threads that are there now."""
    found = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in found) * 1e-9


def measure_processors(report: Report, remote: Remote, server: ServerProcess, calls: int) -> None:
    """Processor time of a call in each process; all that such a call waits for is there too."""
    processes = {
        "the client": os.getpid(),
        "the front": server.process.pid,
        "the device host and a software adapter": server.host_pids()[0],
    }
    for how in (WAITED, PIPELINED):
        before = {name: processor_seconds(process) for name, process in processes.items()}
        remote(how, calls)
        for name, process in processes.items():
            spent = (processor_seconds(process) - before[name]) / calls
            report.add(f"{how}: processor time of {name}", [spent * 1e6], "µs")


def measure(report: Report, sides: dict[str, Run], rounds: int, calls: int) -> None:
    """All sides in turns, `calls` calls at a time, both ways."""
    has_tinygrad = "tinygrad, REMOTE" in sides
    for how in (WAITED, PIPELINED):
        for run in sides.values():
            run(how, calls)
        found: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, run in sides.items():
                found[name].append(run(how, calls) / calls * 1e3)
        for name, values in found.items():
            report.add(f"{how}: {name}", values, "ms")
        remote = found["gpuwire, remote"]
        ratios = [r / i for r, i in zip(remote, found["gpuwire, in process"], strict=True)]
        report.add(f"{how}: remote over in process", ratios, "×", at_most=1.2)
        if has_tinygrad:
            ratios = [t / r for t, r in zip(found["tinygrad, REMOTE"], remote, strict=True)]
            report.add(f"{how}: tinygrad REMOTE over ours", ratios, "×", at_least=3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--tinygrad", default=os.environ.get("GPUWIRE_BENCH_TINYGRAD", ""))
    arguments, _ = parser.parse_known_args()
    values = Values()
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        server = running.enter_context(ServerProcess(directory / "server"))
        dev = running.enter_context(gw.connect(server.ticket))
        remote = Remote(dev, values)
        in_process = InProcess(remote, values)
        running.callback(in_process.machine.server.close)
        sides: dict[str, Run] = {"gpuwire, in process": in_process, "gpuwire, remote": remote}
        if arguments.tinygrad:
            file = directory / "values.npz"
            np.savez(file, x=values.x, weights=np.stack(values.weights), result=values.result)
            for name, port in (("tinygrad, in process", None), ("tinygrad, REMOTE", 16_669)):
                sides[name] = running.enter_context(tinygrad_block(arguments.tinygrad, file, port))
        else:
            print("no tinygrad: name a Python that has it with --tinygrad; its rows are left out")
        report = Report(f"an 8-layer block on {dev.info.name}, loopback, {dev.link.engine}")
        measure(report, sides, arguments.rounds, arguments.calls)
        trips = [remote.empty_round_trip() * 1e3 for _ in range(300)]
        report.add("a round trip of nothing (sync)", trips, "ms")
        measure_processors(report, remote, server, arguments.rounds * arguments.calls)
    report.finish()


if __name__ == "__main__":
    main()
