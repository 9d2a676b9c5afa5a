"""What a large upload costs in memory, on both sides, while it is under way.

    python tests/bench/bench_memory.py [--gibibytes 4] [--tensor-mebibytes N] [--engine qh3]
        [--samples FILE.csv] [--json PATH]

Uploads `--gibibytes` in all, in tensors of `--tensor-mebibytes` (else the largest that fits one
buffer of the adapter), each dropped before the next; 4 GiB are one tensor where the adapter takes
that. A thread reads each process's proportional set size (PSS, `smaps_rollup`) as it goes. What is
asked: the server's growth, front and device host together, at most 64 MiB above the tensor itself
(on a software adapter that lies in the device host's memory; on a GPU in the card's, and nothing
is taken off), the client's at most 32 MiB above the array. One upload of 1 MiB comes first, so that
the code and pools that any upload brings are there.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from report import Report

sys.path.insert(0, str(Path(__file__).parent.parent))

import gpuwire as gw
from gpuwire.config import load_config
from servers import ServerProcess

MIB = 1 << 20
SAMPLE_SECONDS = 0.05
WARM_UP_BYTES = MIB
ASKED_SERVER_MIB = 64
ASKED_CLIENT_MIB = 32


@dataclass(slots=True)
class Process:
    """One process, and what it held at each sample."""

    name: str
    number: int
    samples: list[float] = field(default_factory=list)

    def now(self) -> float:
        """MiB that belong to it: private pages, and its share of shared ones."""
        for line in Path(f"/proc/{self.number}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("smaps_rollup has no Pss line")


class Sampler:
    """Samples all processes until it is left."""

    def __init__(self, processes: list[Process]) -> None:
        self._processes = processes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.times: list[float] = []

    def __enter__(self) -> Sampler:
        for process in self._processes:
            process.samples = [process.now()]
        self.times = [0.0]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.perf_counter()
        while not self._ended.wait(SAMPLE_SECONDS):
            self.times.append(time.perf_counter() - began)
            for process in self._processes:
                process.samples.append(process.now())

    def growth(self, *names: str) -> list[float]:
        """MiB above the first sample, of the named processes together, at each sample."""
        chosen = [process.samples for process in self._processes if process.name in names]
        together = [sum(values) for values in zip(*chosen, strict=True)]
        return [value - together[0] for value in together]

    def write(self, path: Path) -> None:
        """All samples, as a table."""
        lines = ["seconds," + ",".join(f"{p.name} MiB" for p in self._processes)]
        for index, at in enumerate(self.times):
            row = [f"{p.samples[index]:.2f}" for p in self._processes]
            lines.append(f"{at:.2f}," + ",".join(row))
        path.write_text("\n".join(lines) + "\n")


def upload(dev: gw.Device, values: np.ndarray, times: int) -> None:
    for _ in range(times):
        array = gw.asarray(values, device=dev)
        dev.sync()
        del array
        dev.sync()  # the drop has arrived, too


def measure(server: ServerProcess, arguments: argparse.Namespace) -> None:
    config = load_config(remote__quic_engine=arguments.engine)
    with gw.connect(server.ticket, config=config) as dev:
        total = round(arguments.gibibytes * 1024) * MIB
        most = dev.info.max_buffer_bytes
        size = min(total, (arguments.tensor_mebibytes or most // MIB) * MIB, most // MIB * MIB)
        times = -(-total // size)
        values = np.random.default_rng(0).random(size // 4, np.float32)
        upload(dev, values[: WARM_UP_BYTES // 4], 1)
        dev.memory_cleanup()
        processes = [Process("client", os.getpid()), Process("front", server.process.pid)]
        processes += [Process("host", number) for number in server.host_pids()]
        with Sampler(processes) as sampler:
            began = time.perf_counter()
            upload(dev, values, times)
            seconds = time.perf_counter() - began
        is_software = dev.info.kind == "cpu"
        engine = dev.link.engine
        name = dev.info.name
    tensor = size / MIB if is_software else 0.0
    report = Report(f"memory during uploads to {name}, engine {engine}, loopback")
    what = f"{times} × {size / MIB:,.0f} MiB"
    report.add(f"upload of {what}", [size * times / seconds / 1e6], "MB/s")
    client = max(sampler.growth("client"))
    front, host = max(sampler.growth("front")), max(sampler.growth("host"))
    both = max(sampler.growth("front", "host"))
    report.add("client's growth", [client], "MiB", at_most=ASKED_CLIENT_MIB)
    report.add("front's growth", [front], "MiB")
    report.add("device host's growth, less the tensor", [host - tensor], "MiB")
    label = "server's growth in all, less the tensor"
    report.add(label, [both - tensor], "MiB", at_most=ASKED_SERVER_MIB)
    if arguments.samples:
        sampler.write(arguments.samples)
    report.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--gibibytes", type=float, default=4.0)
    parser.add_argument("--tensor-mebibytes", type=int)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--samples", type=Path, metavar="CSV")
    arguments, _ = parser.parse_known_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        ServerProcess(Path(directory)) as server,
    ):
        measure(server, arguments)


if __name__ == "__main__":
    main()
