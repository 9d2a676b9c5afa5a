"""The phases of a benchmark: round trips, an upload, a download, a run of operations."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpuwire.array.creation_functions import asarray, ones
from gpuwire.cli.benching.limits import Busy, Finding, Place, find_limit
from gpuwire.cli.benching.watching import Watcher
from gpuwire.client import Device

MIB = 1024 * 1024
LARGEST_BYTES = 64 * MIB
PIECE_SECONDS = 0.25
"""A tensor that takes so long hides the round trip at its end."""

CHAIN_OPERATIONS = 256
CHAINS = 16
"""Before each wait: recording, sending and computing overlap, as in a program that reads seldom."""
PINGS = 30


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Through the server's network process and back, in seconds."""

    minimum: float
    median: float
    jitter: float
    """Median distance from the median."""
    count: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One thing done for a while."""

    name: str
    rate: float
    """Bytes per second, or operations."""
    wire_rate: float | None
    """Tasks per second on the wire, where operations are counted."""
    busy: Busy
    finding: Finding


def round_trips(device: Device) -> RoundTrips:
    """Of a session that does nothing else."""
    seconds = [device.ping() for _ in range(PINGS)]
    median = statistics.median(seconds)
    jitter = statistics.median(abs(each - median) for each in seconds)
    return RoundTrips(min(seconds), median, jitter, len(seconds))


def upload(device: Device, watcher: Watcher, place: Place, seconds: float) -> Phase:
    """Long tensors, each sent when the one before has arrived."""
    size = _size(lambda count: asarray(_values(count), device=device))
    values = _values(size)
    rate, busy = _repeat(lambda: asarray(values, device=device), watcher, seconds)
    return Phase("upload", rate * size, None, busy, find_limit(busy, place))


def download(device: Device, watcher: Watcher, place: Place, seconds: float) -> Phase:
    """A long tensor, read again and again."""
    size = _size(lambda count: np.asarray(ones((count // 4,), device=device)))
    values = ones((size // 4,), device=device)
    device.sync()
    rate, busy = _repeat(lambda: np.asarray(values), watcher, seconds)
    return Phase("download", rate * size, None, busy, find_limit(busy, place))


def operations(device: Device, watcher: Watcher, place: Place, seconds: float) -> Phase:
    """Tiny operations in a chain, waited for now and then."""
    start = ones((64,), device=device)

    def chains() -> None:
        for _ in range(CHAINS):
            x = start
            for _ in range(CHAIN_OPERATIONS // 2):
                x = x * 0.999 + 0.001
        device.sync()

    chains()  # Kernels are compiled, the op-graph is known.
    before = device.stats().tasks_sent
    began = time.perf_counter()
    rate, busy = _repeat(chains, watcher, seconds)
    tasks = (device.stats().tasks_sent - before) / (time.perf_counter() - began)
    finding = find_limit(busy, place)
    return Phase("operations", rate * CHAINS * CHAIN_OPERATIONS, tasks, busy, finding)


def _repeat(work: Callable[[], object], watcher: Watcher, seconds: float) -> tuple[float, Busy]:
    """Times per second, and how busy everyone was meanwhile."""
    mark, count = watcher.mark(), 0
    waited_before = _waited_seconds()
    began, processor = time.perf_counter(), time.process_time()
    while (spent := time.perf_counter() - began) < seconds or not count:
        work()
        count += 1
    client = (time.process_time() - processor) / spent
    waited_after, waited = _waited_seconds(), None
    if waited_before is not None and waited_after is not None:
        waited = max(waited_after - waited_before, 0.0) / spent
    server = watcher.busy_since(mark)
    return count / spent, Busy(client, server.front, server.host, waited, server.gpu)


def _waited_seconds() -> float | None:
    """How long this process's threads have been ready to run without a core, all together
    (proc_pid_schedstat(5)); None off Linux."""
    try:
        files = Path("/proc/self/task").glob("*/schedstat")
        return sum(int(file.read_text(encoding="ascii").split()[1]) for file in files) / 1e9
    except OSError:
        return None


def _size(move: Callable[[int], object]) -> int:
    """Bytes of a tensor whose way takes a while."""
    size = 2 * MIB
    while size < LARGEST_BYTES:
        began = time.perf_counter()
        move(size)
        if time.perf_counter() - began > PIECE_SECONDS:
            break
        size *= 2
    return size


def _values(size: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.ones(size // 4, np.float32)
