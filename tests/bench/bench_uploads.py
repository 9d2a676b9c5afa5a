"""Uploads that need not be sent: by content, and compressed.

    python tests/bench/bench_uploads.py [--megabytes 500] [--json PATH]

Servers and clients are processes of their own, on this machine. Loading weights: 20 float32
tensors one after the other, from the first `asarray` to the end of `sync`; a second client is a new
process, which hashes anew. What a miss costs is measured against the same uploads with
`upload_cache` off, in turns. Compression: 16 MiB over a line of 50 Mb/s with 20 ms there and back
(tests/relay.py), and over loopback, with `compression` off and auto, each in a new session.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from blake3 import blake3
from report import Report

sys.path.insert(0, str(Path(__file__).parents[1]))

import gpuwire as gw
from gpuwire.config import load_config
from gpuwire.transport import Ticket
from relay import LinkProfile, Relay
from servers import ServerProcess, clean_environment

TENSORS = 20
SLOW_LINE = LinkProfile(delay_seconds=0.010, bytes_per_second=50e6 / 8, queue_bytes=512 * 1024)
COMPRESSED_BYTES = 16 * 2**20


def weights(megabytes: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    size = megabytes * 10**6 // TENSORS // 4
    return [rng.standard_normal(size, np.float32) for _ in range(TENSORS)]


def load(ticket: str, tensors: list[np.ndarray], **remote: object) -> tuple[float, gw.Device]:
    """Seconds of a load in a session of its own, and the device, closed."""
    options = {f"remote__{name}": value for name, value in remote.items()}
    with gw.connect(ticket, config=load_config(**options)) as dev:
        dev.sync()
        began = time.perf_counter()
        arrays = [gw.asarray(tensor, device=dev) for tensor in tensors]
        dev.sync()
        seconds = time.perf_counter() - began
        del arrays
        return seconds, dev


def client(ticket: str, megabytes: int) -> None:
    """What a new client process does: prints its seconds and counts."""
    tensors = weights(megabytes, 1)
    began = time.perf_counter()
    for tensor in tensors:
        blake3(tensor.view(np.uint8), max_threads=blake3.AUTO).digest()
    hashing = time.perf_counter() - began
    seconds, dev = load(ticket, tensors, upload_cache=True)
    stats = dev.stats()
    facts = {"seconds": seconds, "hashing": hashing, "hits": stats.upload_hits}
    print(json.dumps({**facts, "sent": stats.bytes_sent}))


def load_in_new_process(ticket: str, megabytes: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--client", ticket, "--megabytes", str(megabytes)]
    done = subprocess.run(
        command, env=clean_environment(), stdout=subprocess.PIPE, check=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_content(report: Report, directory: Path, megabytes: int) -> None:
    config = f'[server]\nupload_cache_dir = "{directory / "cache"}"\n'
    name = f"{megabytes} MB of weights"
    with ServerProcess(directory / "first", config=config) as server:
        first = load_in_new_process(server.ticket, megabytes)
        report.add(f"{name}, first client: all are sent", [first["seconds"]], "s")
        again = [load_in_new_process(server.ticket, megabytes) for _ in range(3)]
    assert all(one["hits"] == TENSORS for one in again), again
    report.add("… hashing them, all processors", [one["hashing"] for one in again], "s")
    report.add("… next clients, hashing included", [one["seconds"] for one in again], "s")
    beyond = [one["seconds"] - one["hashing"] for one in again]
    report.add("… less the hashing", beyond, "s", at_most=2)
    report.add("… bytes sent", [one["sent"] for one in again], "bytes")
    with ServerProcess(directory / "first", config=config) as server:
        restarted = [load_in_new_process(server.ticket, megabytes) for _ in range(3)]
    assert all(one["hits"] == TENSORS for one in restarted), restarted
    beyond = [one["seconds"] - one["hashing"] for one in restarted]
    report.add("… after a restart of the server, from disk", beyond, "s", at_most=2)


def measure_misses(report: Report, ticket: str) -> None:
    """Each pair uploads other numbers, so none is found."""
    ratios = {"64 tensors of 1 MiB": [], "4 tensors of 32 MiB": []}
    for turn in range(6):
        for name, count, size in (
            ("64 tensors of 1 MiB", 64, 2**20),
            ("4 tensors of 32 MiB", 4, 2**25),
        ):
            rng = np.random.default_rng(100 + turn)
            tensors = [rng.integers(0, 2**62, size // 8) for _ in range(count)]
            seconds = {}
            for on in (turn % 2 == 0, turn % 2 == 1):
                seconds[on], dev = load(ticket, tensors, upload_cache=on, compression="off")
                assert dev.stats().upload_hits == 0
            ratios[name].append(seconds[True] / seconds[False])
    for name, values in ratios.items():
        report.add(f"{name}, none found: announced / not announced", values, "×")


def kinds_of_data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    count = COMPRESSED_BYTES // 4
    normal = rng.standard_normal(count, np.float32)
    return {
        "token ids below 50,000, int64": rng.integers(0, 50_000, count // 2),
        "activations, half of them 0, float32": np.maximum(normal, 0),
        "random weights, float32": normal * np.float32(0.02),
        "random bytes": rng.integers(0, 256, COMPRESSED_BYTES, np.uint8),
    }


def measure_compression(report: Report, ticket: str) -> None:
    data = kinds_of_data()
    parsed = Ticket.parse(ticket)
    with Relay(("127.0.0.1", parsed.port), SLOW_LINE) as relay:
        slow = ticket.replace(f":{parsed.port}", f":{relay.port}")
        for name, array in data.items():
            off, _ = load(slow, [array], compression="off")
            auto, dev = load(slow, [array], compression="auto")
            report.add(f"50 Mb/s, {name}: off", [off], "s")
            report.add("… auto", [auto], "s")
            saved = dev.stats().compression_saved_bytes / array.nbytes
            report.add("… bytes saved", [100 * saved], "%")
            report.add("… off / auto", [off / auto], "×", at_least=0.95)
    ratios, saved_bytes = [], []
    for turn in range(6):
        array = data["random weights, float32"]
        seconds = {}
        for mode in ("off", "auto") if turn % 2 else ("auto", "off"):
            seconds[mode], dev = load(ticket, [array] * 4, compression=mode)
            saved_bytes.append(dev.stats().compression_saved_bytes)
        ratios.append(seconds["auto"] / seconds["off"])
    report.add("loopback, random weights: auto / off", ratios, "×")
    report.add("… bytes saved, at most", [max(saved_bytes)], "bytes", at_most=0)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("--megabytes", type=int, default=500)
    arguments.add_argument("--client", metavar="TICKET", help="be a client of that server")
    chosen, _ = arguments.parse_known_args()
    if chosen.client:
        client(chosen.client, chosen.megabytes)
        return
    report = Report(f"uploads by content and compressed, {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as name:
        measure_content(report, Path(name), chosen.megabytes)
        with ServerProcess(Path(name) / "second") as server:
            measure_misses(report, server.ticket)
            measure_compression(report, server.ticket)
    report.finish()


if __name__ == "__main__":
    main()
