"""The link: engines beside their plain selves, sizes, offload, a long lossy line; in one run.

The servers are a second process, the relay that makes the long line a third. An upload's time runs
to the server's acknowledgement of its last byte, a download's to the client's last byte.

    python tests/bench/bench_link.py [--rows small sizes found line session] [--mebibytes 256]
        [--rounds 3] [--tinygrad PYTHON] [--json PATH]

`small`: engines at 1,452-byte datagrams beside their plain selves, and TLS over TCP for reference.
`sizes`: the plain engines at 8,952 and 16,000. `found`: sizes found by themselves, up, down, what
is on the wire, an echo beside an upload; with `--tinygrad` beside tinygrad 0.11's REMOTE device
under the Python named (or in `TINYGRAD_PYTHON`), on its CPU device, unencrypted. `line`: 200 Mb/s,
50 ms, through the relay. `session`: small round trips of a session to a real server, beside a 1 GiB
upload of the same session.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
from link_ends import MIB, SMALL, Client, Servers, Setting, open_client, open_client_at, serving
from report import Report

sys.path.insert(0, str(Path(__file__).parent.parent))

import gpuwire as gw
from gpuwire.loops import loop_factory
from relay import relay_process
from servers import ServerProcess

ECHOES = 200
ROWS = ("small", "sizes", "found", "line", "session")
LINE_BYTES_PER_SECOND = 25e6
LINE = ["--delay-ms", "25", "--megabits", "200", "--queue-kib", "1250"]
LINE_BYTES = 128 * MIB
UPLOAD_BESIDE = 1024 * MIB

PLAIN_AIOQUIC = Setting("plain aioquic", "plain aioquic")
PLAIN_QH3 = Setting("plain qh3", "plain qh3")
TLS = Setting("TLS over TCP", "plain TLS", None)
AIOQUIC = Setting("gpuwire on aioquic", "aioquic")
AIOQUIC_OFFLOAD = Setting("gpuwire on aioquic, offload", "aioquic", offload=True)
QH3 = Setting("gpuwire on qh3", "qh3")
QH3_OFFLOAD = Setting("gpuwire on qh3, offload", "qh3", offload=True)
BY_ITSELF = Setting("gpuwire, engine and size found", "auto", None)
LARGE_QH3 = Setting("gpuwire on qh3, size found", "qh3", None)
SMALL_SETTINGS = (PLAIN_AIOQUIC, AIOQUIC, AIOQUIC_OFFLOAD, PLAIN_QH3, QH3, QH3_OFFLOAD, TLS)
LARGE_SETTINGS = tuple(
    Setting(f"{engine} at {size:,}", engine, size)
    for engine in ("plain aioquic", "plain qh3")
    for size in (8_952, 16_000)
)
SETTINGS = (*SMALL_SETTINGS, *LARGE_SETTINGS, BY_ITSELF, LARGE_QH3)


class Bench:
    """The run: the servers, what is sent, the values found."""

    def __init__(self, arguments: argparse.Namespace, servers: Servers) -> None:
        self.report = Report(f"the link, loopback, {os.cpu_count()} cores, two processes")
        self.rounds: int = arguments.rounds
        self.data = memoryview(bytes(arguments.mebibytes * MIB))
        self.tinygrad: str | None = arguments.tinygrad
        self.servers = servers
        self.medians: dict[tuple[Setting, str], float] = {}

    async def small(self) -> None:
        """All at 1,452 bytes, taking turns round by round."""
        found: dict[tuple[Setting, str], list[float]] = {}
        for _ in range(self.rounds):
            for setting in SMALL_SETTINGS:
                async with AsyncExitStack() as stack:
                    client = await open_client(stack, setting, self.servers)
                    trips = await time_echoes(client)
                    rate, cpu, server_cpu = await self.timed_upload(client)
                for what, values in (
                    ("echo", trips),
                    ("upload", [rate]),
                    ("client", [cpu]),
                    ("server", [server_cpu]),
                ):
                    found.setdefault((setting, what), []).extend(values)
        units = {"echo": "ms", "upload": "MB/s", "client": "ns/B", "server": "ns/B"}
        names = {"client": "client's CPU in upload", "server": "server's CPU in upload"}
        for what, unit in units.items():
            for setting in SMALL_SETTINGS:
                label = f"{names.get(what, what)}, 1,452: {setting.name}"
                is_asked = what == "upload" and setting in (QH3, QH3_OFFLOAD)
                bound = 117 if is_asked else None
                self.medians[setting, what] = self.report.add(
                    label, found[setting, what], unit, at_least=bound
                )
        for setting in (AIOQUIC, AIOQUIC_OFFLOAD):
            self.ratio("upload", setting, PLAIN_AIOQUIC, at_least=3)
        for setting in (QH3, QH3_OFFLOAD):
            self.ratio("upload", setting, PLAIN_QH3, at_least=1.6)
        self.ratio("echo", AIOQUIC, PLAIN_AIOQUIC, at_most=1.5)
        self.ratio("echo", QH3, PLAIN_QH3, at_most=1.5)

    def ratio(self, what: str, ours: Setting, plain: Setting, **bound: float) -> None:
        value = self.medians[ours, what] / self.medians[plain, what]
        self.report.add(f"{what}: {ours.name} over {plain.name}", [value], "×", **bound)

    async def sizes(self) -> None:
        """The plain engines with larger datagrams, for reference."""
        for setting in LARGE_SETTINGS:
            async with AsyncExitStack() as stack:
                client = await open_client(stack, setting, self.servers)
                rates = [(await self.timed_upload(client))[0] for _ in range(self.rounds)]
            self.report.add(f"upload: {setting.name}", rates, "MB/s")

    async def found(self) -> None:
        """Engine and size found by themselves, beside tinygrad's REMOTE."""
        bounds: tuple[float | None, float | None] = (None, None)
        if self.tinygrad:
            theirs = tinygrad_rates(self.tinygrad, len(self.data), self.rounds)
            for what, values in zip(("upload", "download"), theirs, strict=True):
                self.report.add(f"{what}: tinygrad REMOTE", values, "MB/s")
            bounds = (2 * float(np.median(theirs[0])), 2 * float(np.median(theirs[1])))
        for setting in (BY_ITSELF, LARGE_QH3):
            await self._found(setting, bounds)

    async def _found(self, setting: Setting, bounds: tuple[float | None, float | None]) -> None:
        async with AsyncExitStack() as stack:
            client = await open_client(stack, setting, self.servers)
            await client.upload(self.data[: 8 * MIB])
            assert client.connection is not None
            before = client.connection.path.bytes_sent
            ups = [(await self.timed_upload(client))[0] for _ in range(self.rounds)]
            sent = client.connection.path.bytes_sent - before
            downs = [await time_download(client, len(self.data)) for _ in range(self.rounds)]
            idle = await time_echoes(client)
            beside = await time_echoes_beside_upload(client, memoryview(bytes(UPLOAD_BESIDE)))
            size = client.connection.path.datagram_bytes
        name = f"{setting.name} ({size:,})"
        self.report.add(f"upload: {name}", ups, "MB/s", at_least=bounds[0])
        self.report.add(f"download: {name}", downs, "MB/s", at_least=bounds[1])
        overhead = sent / (len(self.data) * self.rounds)
        self.report.add(f"wire over payload: {name}", [overhead], "×", at_most=1.06)
        quiet = self.report.add(f"echo, idle: {name}", idle, "ms")
        busy = self.report.add(f"echo beside 1 GiB up: {name}", beside, "ms")
        self.report.add(f"busy over idle: {name}", [busy / quiet], "×", at_most=3)

    async def line(self) -> None:
        """200 Mb/s, 50 ms, through the relay."""
        share = self.data[:LINE_BYTES]
        for size in (8_952, SMALL):
            setting = Setting("line", "aioquic", size)
            for loss, least in (("0", 90), ("0.001", 70), ("0.01", 50)):
                values = []
                with relay_process(self.servers.ports[BY_ITSELF], *LINE, "--loss", loss) as port:
                    async with AsyncExitStack() as stack:
                        client = await open_client_at(stack, setting, port, self.servers.trust)
                        await client.upload(share[: 8 * MIB])
                        for _ in range(self.rounds):
                            began = time.perf_counter()
                            await client.upload(share)
                            rate = len(share) / (time.perf_counter() - began)
                            values.append(100 * rate / LINE_BYTES_PER_SECOND)
                label = f"200 Mb/s, 50 ms, loss {float(loss):.1%}, {size:,}: payload"
                self.report.add(label, values, "% of line", at_least=least)

    async def timed_upload(self, client: Client) -> tuple[float, float, float]:
        """MB/s, and nanoseconds of the client's and the server's CPU for each byte."""
        server_began, began_cpu = self.servers.cpu_seconds(), time.process_time()
        began = time.perf_counter()
        await client.upload(self.data)
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        server_cpu = self.servers.cpu_seconds() - server_began
        count = len(self.data)
        return count / seconds / 1e6, cpu / count * 1e9, server_cpu / count * 1e9


async def time_echoes(client: Client) -> list[float]:
    data = bytes(64)
    for _ in range(50):
        await client.echo(data)
    return [await _time_echo(client, data) for _ in range(ECHOES)]


async def _time_echo(client: Client, data: bytes) -> float:
    began = time.perf_counter()
    await client.echo(data)
    return (time.perf_counter() - began) * 1e3


async def time_echoes_beside_upload(client: Client, data: memoryview) -> list[float]:
    uploading = asyncio.ensure_future(client.quiet_upload(data))
    trips: list[float] = []
    while not uploading.done():
        trips.append(await _time_echo(client, bytes(64)))
    return trips


async def time_download(client: Client, count: int) -> float:
    began = time.perf_counter()
    await client.download(count)
    return count / (time.perf_counter() - began) / 1e6


TINYGRAD_TRANSFERS = """
import time
import numpy as np
from tinygrad import Tensor
values = np.random.default_rng(0).random({count} // 8).view(np.float32)
def timed(work):
    began = time.perf_counter(); work(); return values.nbytes / (time.perf_counter() - began) / 1e6
def up():
    global there
    there = Tensor(values).to("REMOTE").realize(); there.flatten()[:1].numpy()
def down():
    there.numpy()
up()
for work in (up, down):
    print(*(timed(work) for _ in range({rounds})))
"""


def tinygrad_rates(python: str, count: int, rounds: int) -> tuple[list[float], list[float]]:
    """MB/s up and down through tinygrad's REMOTE device, on its CPU device."""
    environment = {**os.environ, "REMOTEDEV": os.environ.get("REMOTEDEV", "CPU"), "PORT": "16668"}
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
            [python, "-c", TINYGRAD_TRANSFERS.format(count=count, rounds=rounds)],
            env={**environment, "HOST": "127.0.0.1:16668", "REMOTE": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
        up, down = client.stdout.strip().splitlines()[-2:]
        return [float(rate) for rate in up.split()], [float(rate) for rate in down.split()]
    finally:
        server.kill()
        server.wait()


# --- A real server ----------------------------------------------------------------------------


def session_rows(report: Report) -> None:
    """Small round trips beside a large upload of the same session: to the front, and through the
    device, where a software adapter has the same processors to work with as both programs."""
    small = np.arange(16, dtype=np.float32)
    values = np.random.default_rng(0).random(UPLOAD_BESIDE // 4, np.float32)
    with (
        tempfile.TemporaryDirectory() as directory,
        ServerProcess(Path(directory)) as server,
        gw.connect(server.ticket) as dev,
    ):
        gw.asarray(values[: 4 * MIB], device=dev)
        trips: list[tuple[str, Callable[[], object]]] = [
            ("to the front", dev.ping),
            ("through the device", lambda: np.asarray(gw.asarray(small, device=dev) + 1.0)),
        ]
        for name, trip in trips:
            _timed(trip, 30)
            quiet = report.add(f"session: idle, {name}", _timed(trip, ECHOES), "ms")
            beside = _timed_beside(trip, lambda: gw.asarray(values, device=dev))
            busy = report.add(f"session: beside 1 GiB up, {name}", beside, "ms")
            report.add(f"session: busy over idle, {name}", [busy / quiet], "×", at_most=3)


def _timed(trip: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        trip()
        found.append((time.perf_counter() - began) * 1e3)
    return found


def _timed_beside(trip: Callable[[], object], upload: Callable[[], object]) -> list[float]:
    uploading = threading.Thread(target=upload)
    uploading.start()
    found: list[float] = []
    while uploading.is_alive():
        found += _timed(trip, 1)
    return found


async def measure(bench: Bench, rows: list[str]) -> None:
    for name in rows:
        if name != "session":
            await getattr(bench, name)()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--mebibytes", type=int, default=256, help="256 at most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tinygrad", metavar="PYTHON", default=os.environ.get("TINYGRAD_PYTHON"))
    arguments, _ = parser.parse_known_args()
    with serving(SETTINGS) as servers:
        bench = Bench(arguments, servers)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(measure(bench, arguments.rows))
    if "session" in arguments.rows:
        session_rows(bench.report)
    bench.report.finish()


if __name__ == "__main__":
    main()
