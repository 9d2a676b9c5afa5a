"""The whole way, client to GPU and back: round trip, recording, chains, transfers.

    python tests/bench/bench_end_to_end.py [--tinygrad PYTHON] [--json PATH]

Starts a server in a process of its own on this machine, over QUIC on loopback. With `--tinygrad` it
measures, in the same run, the same small round trip through tinygrad's REMOTE device under the
Python named, which must have tinygrad 0.11 installed. A transfer's time runs to the server's
acknowledgement, never to the enqueue.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from report import Report, repeat

import gpuwire as gw

SMALL = np.arange(4096, dtype=np.float32)
"""16 KiB."""


def small_round_trip(dev: gw.Device) -> None:
    result = np.asarray(gw.asarray(SMALL, device=dev) + 1.0)
    assert result[4095] == 4096.0


def record_costs(dev: gw.Device, count: int = 400, rounds: int = 15) -> list[float]:
    """Microseconds of the recording thread's own time per operation, one value a round."""
    x = gw.asarray(SMALL, device=dev)
    costs = []
    for _ in range(rounds):
        dev.sync()
        began = time.thread_time_ns()
        for _ in range(count):
            y = x + 1.0
        costs.append((time.thread_time_ns() - began) / count / 1e3)
        del y
    dev.sync()
    return costs[3:]


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


def chain(dev: gw.Device, length: int) -> None:
    x = gw.asarray(SMALL, device=dev)
    for _ in range(length):
        x = x + 1.0
    dev.sync()


def measure_chain(report: Report, dev: gw.Device) -> None:
    chain(dev, 2_000)
    before = resident_bytes()
    seconds = repeat(lambda: chain(dev, 10_000), 3, warm_up=0)
    grown = (resident_bytes() - before) / 2**20
    report.add("10,000 chained ops, per op", [s / 10_000 * 1e6 for s in seconds], "µs")
    report.add("client growth over 3 such chains", [grown], "MiB", at_most=8)


def measure_transfers(report: Report, dev: gw.Device) -> None:
    values = np.random.default_rng(0).random(64 * 2**20 // 8)
    values = values.view(np.float32)
    megabytes = values.nbytes / 1e6

    def upload() -> gw.Array:
        array = gw.asarray(values, device=dev)
        dev.sync()
        return array

    up = repeat(upload, 5)
    array = upload()
    down = repeat(lambda: np.asarray(array), 5)
    assert np.array_equal(np.asarray(array), values, equal_nan=True)
    report.add("upload 64 MiB, to the acknowledgement", [megabytes / s for s in up], "MB/s")
    report.add("download 64 MiB", [megabytes / s for s in down], "MB/s")


TINYGRAD_ROUND_TRIP = """
import os, statistics, time
import numpy as np
from tinygrad import Tensor
small = np.arange(4096, dtype=np.float32)
def once():
    began = time.perf_counter()
    (Tensor(small).to("REMOTE") + 1).numpy()
    return time.perf_counter() - began
for _ in range(20): once()
print(statistics.median(once() for _ in range(200)))
"""


def tinygrad_round_trip(python: str) -> float:
    """Seconds of the same small round trip through tinygrad's REMOTE device, on its CPU device."""
    port = "16667"
    environment = {**os.environ, "REMOTEDEV": os.environ.get("REMOTEDEV", "CPU"), "PORT": port}
    server = subprocess.Popen(
        [python, "-m", "tinygrad.runtime.ops_remote"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        server.stdout.readline()
        client = subprocess.run(
            [python, "-c", TINYGRAD_ROUND_TRIP],
            env={**environment, "HOST": f"127.0.0.1:{port}", "REMOTE": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
        return float(client.stdout.split()[-1])
    finally:
        server.kill()
        server.wait()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, add_help=False)
    arguments.add_argument("--tinygrad", metavar="PYTHON")
    tinygrad = arguments.parse_known_args()[0].tinygrad
    with gw.connect() as dev:
        report = Report(f"end to end on {dev.info.name}, loopback")
        trips = repeat(lambda: small_round_trip(dev), 300, warm_up=50)
        report.add("16 KiB up, add 1, down", [s * 1e3 for s in trips], "ms", at_most=3)
        if tinygrad:
            theirs = [tinygrad_round_trip(tinygrad) * 1e3 for _ in range(3)]
            report.add("the same through tinygrad REMOTE", theirs, "ms")
            ours = statistics.median(trips) * 1e3
            report.add("tinygrad's time over ours", [value / ours for value in theirs], "×")
        report.add("recording one op, own thread", record_costs(dev), "µs", at_most=20)
        measure_chain(report, dev)
        measure_transfers(report, dev)
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
