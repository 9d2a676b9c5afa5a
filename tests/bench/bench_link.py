"""The link: engines beside their plain selves, sizes, offload, a long lossy line; in one run.

The servers are a second process, the relay that makes the long line a third. An upload's time runs
to the server's acknowledgement of its last byte, a download's to the client's last byte.

    python tests/bench/bench_link.py [--mebibytes 256] [--rounds 3] [--line-datagram 8952]
        [--tinygrad PYTHON] [--json PATH]

With `--tinygrad` it measures in the same run tinygrad's REMOTE device under the Python named. What
limits the long line is the machine: at 1,452 bytes 17,000 datagrams a second pass through three
Python processes, about 40 µs of work each; with two busy cores that is too much, so the line is
measured with larger ones (`--line-datagram 1452` measures the small).
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import aioquic.asyncio.client
import aioquic.asyncio.server
import aioquic.quic.configuration
import qh3.asyncio
import qh3.quic.configuration
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from report import Report

from gpuwire.transport import (
    Connection,
    Identity,
    PinnedKey,
    TransportOptions,
    connect,
    listen,
    loop_factory,
)

MIB = 1 << 20
UPLOAD, QUIET_UPLOAD, DOWNLOAD, ECHO = b"U", b"Q", b"D", b"E"
ECHOES = 200
LINE_BYTES_PER_SECOND = 25e6
LINE = ["--delay-ms", "25", "--megabits", "200", "--queue-kib", "1250"]
SMALL = 1_452


@dataclass(frozen=True)
class Setting:
    """One pair of ends. `engine` may be plain aioquic or plain qh3."""

    name: str
    engine: str
    datagram_bytes: int | None = SMALL
    offload: bool = False

    @property
    def is_plain(self) -> bool:
        return self.engine.startswith("plain")

    @property
    def options(self) -> TransportOptions:
        return TransportOptions(
            engine=self.engine,  # type: ignore[arg-type]
            datagram_bytes=self.datagram_bytes,
            segmentation_offload=self.offload,
        )


PLAIN_AIOQUIC = Setting("plain aioquic", "plain aioquic")
PLAIN_QH3 = Setting("plain qh3", "plain qh3")
AIOQUIC = Setting("gpuwire on aioquic", "aioquic")
AIOQUIC_OFFLOAD = Setting("gpuwire on aioquic, offload", "aioquic", offload=True)
QH3 = Setting("gpuwire on qh3", "qh3")
QH3_OFFLOAD = Setting("gpuwire on qh3, offload", "qh3", offload=True)
BY_ITSELF = Setting("gpuwire, engine and size found", "auto", None)
LARGE_QH3 = Setting("gpuwire on qh3, size found", "qh3", None)
SMALL_SETTINGS = (PLAIN_AIOQUIC, AIOQUIC, AIOQUIC_OFFLOAD, PLAIN_QH3, QH3, QH3_OFFLOAD)
SETTINGS = (*SMALL_SETTINGS, BY_ITSELF, LARGE_QH3)


# --- The servers' process ---------------------------------------------------------------------


def serve_all(pipe: Pipe, directory: Path, settings: tuple[Setting, ...]) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve_all(pipe, Identity.load_or_create(directory), settings))


async def _serve_all(pipe: Pipe, identity: Identity, settings: tuple[Setting, ...]) -> None:
    pipe.send([await _start(setting, identity) for setting in settings])
    while await asyncio.get_running_loop().run_in_executor(None, pipe.recv):
        pipe.send(time.process_time())


async def _start(setting: Setting, identity: Identity) -> int:
    if not setting.is_plain:
        listener = await listen("127.0.0.1", 0, identity, _serve_connection, setting.options)
        return listener.port
    library = qh3 if "qh3" in setting.engine else aioquic
    configuration = library.quic.configuration.QuicConfiguration(
        is_client=False, alpn_protocols=["plain"], max_datagram_size=setting.datagram_bytes
    )
    certificate = identity.certificate.public_bytes(Encoding.PEM)
    key = identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    if library is qh3:
        configuration.load_cert_chain(certificate, key)
    else:
        configuration.certificate, configuration.private_key = identity.certificate, identity.key
    serve = qh3.asyncio.serve if library is qh3 else aioquic.asyncio.server.serve
    server: Any = await serve(
        "127.0.0.1", 0, configuration=configuration, stream_handler=_serve_plain_stream
    )
    return int(server._transport.get_extra_info("sockname")[1])


def _serve_plain_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def serve() -> None:
        kind = await reader.readexactly(1)
        if kind == DOWNLOAD:
            count = int(await reader.readexactly(10))
            writer.write(bytes(count))
        while data := await reader.read(MIB):
            if kind == ECHO:
                writer.write(data)
        if kind == UPLOAD:
            writer.write(b"!")
        writer.write_eof()

    writer.task = asyncio.ensure_future(serve())  # type: ignore[attr-defined]  # keeps it alive


async def _serve_connection(connection: Connection) -> None:
    control = await connection.accept_control()
    while kind := await control.reader.read(1):
        if kind == ECHO:
            size = int(await control.reader.readexactly(10))
            control.writer.write_nowait(await control.reader.readexactly(size))
        elif kind in (UPLOAD, QUIET_UPLOAD):
            answer = b"!" if kind == UPLOAD else b""
            asyncio.ensure_future(_take_upload(connection, control, answer))  # noqa: RUF006
        else:
            stream = connection.open_bulk()
            await stream.write(bytes(int(await control.reader.readexactly(10))))
            stream.finish()


async def _take_upload(connection: Connection, control: Any, answer: bytes) -> None:
    stream = await connection.accept_bulk()
    while await stream.read(MIB):
        pass
    control.writer.write_nowait(answer)


# --- The clients ------------------------------------------------------------------------------


class Client:
    """One connection's work."""

    upload: Callable[[memoryview], Awaitable[None]]
    quiet_upload: Callable[[memoryview], Awaitable[None]]
    """Ours only: returns when the transport has acknowledged it."""
    echo: Callable[[bytes], Awaitable[bytes]]
    download: Callable[[int], Awaitable[None]]
    connection: Connection | None = None


async def open_client(
    stack: AsyncExitStack, setting: Setting, port: int, trust: PinnedKey
) -> Client:
    if setting.is_plain:
        return await _open_plain(stack, setting, port)
    return await _open_ours(stack, setting, port, trust)


async def _open_plain(stack: AsyncExitStack, setting: Setting, port: int) -> Client:
    library = qh3 if "qh3" in setting.engine else aioquic
    configuration = library.quic.configuration.QuicConfiguration(
        is_client=True,
        alpn_protocols=["plain"],
        max_datagram_size=setting.datagram_bytes,
        verify_mode=ssl.CERT_NONE,
    )
    begin = qh3.asyncio.connect if library is qh3 else aioquic.asyncio.client.connect
    link: Any = await stack.enter_async_context(
        begin("127.0.0.1", port, configuration=configuration)
    )
    client = Client()
    lines: list[Any] = []

    async def upload(data: memoryview) -> None:
        reader, writer = await link.create_stream()
        writer.write(UPLOAD)
        writer.write(data)
        writer.write_eof()
        assert await reader.readexactly(1) == b"!"

    async def echo(data: bytes) -> bytes:
        if not lines:
            lines.extend(await link.create_stream())
            lines[1].write(ECHO)
        lines[1].write(data)
        return bytes(await lines[0].readexactly(len(data)))

    async def download(count: int) -> None:
        reader, writer = await link.create_stream()
        writer.write(DOWNLOAD + b"%010d" % count)
        writer.write_eof()
        while await reader.read(MIB):
            pass

    client.upload, client.echo, client.download = upload, echo, download
    return client


async def _open_ours(
    stack: AsyncExitStack, setting: Setting, port: int, trust: PinnedKey
) -> Client:
    connection = await connect("127.0.0.1", port, trust, setting.options)
    stack.callback(connection.close)
    control = await connection.open_control()
    client = Client()
    client.connection = connection

    async def upload(data: memoryview) -> None:
        control.writer.write_nowait(UPLOAD)
        stream = connection.open_bulk()
        await stream.write(data)
        stream.finish()
        assert await control.reader.readexactly(1) == b"!"

    async def quiet_upload(data: memoryview) -> None:
        control.writer.write_nowait(QUIET_UPLOAD)
        stream = connection.open_bulk()
        await stream.write(data)
        stream.finish()
        await stream.wait_acknowledged()

    async def echo(data: bytes) -> bytes:
        control.writer.write_nowait(ECHO + b"%010d" % len(data) + data)
        return await control.reader.readexactly(len(data))

    async def download(count: int) -> None:
        control.writer.write_nowait(DOWNLOAD + b"%010d" % count)
        stream = await connection.accept_bulk()
        while await stream.read(MIB):
            pass

    client.quiet_upload = quiet_upload
    client.upload, client.echo, client.download = upload, echo, download
    return client


# --- Measuring --------------------------------------------------------------------------------


class Bench:
    """The run: ports of the settings, the servers' clock, the values found."""

    def __init__(self, arguments: argparse.Namespace, pipe: Pipe, trust: PinnedKey) -> None:
        self.report = Report("the link, loopback, two processes")
        self.rounds: int = arguments.rounds
        self.data = memoryview(bytes(arguments.mebibytes * MIB))
        self.line_datagram: int = arguments.line_datagram
        self.ports: dict[Setting, int] = {}
        self._pipe = pipe
        self._trust = trust
        self.medians: dict[tuple[Setting, str], float] = {}

    async def small_datagrams(self) -> None:
        """All at 1,452 bytes, taking turns round by round."""
        found: dict[tuple[Setting, str], list[float]] = {}
        for _ in range(self.rounds):
            for setting in SMALL_SETTINGS:
                async with AsyncExitStack() as stack:
                    client = await open_client(stack, setting, self.ports[setting], self._trust)
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
                bound = 117 if (what, setting) == ("upload", QH3_OFFLOAD) else None
                self.medians[setting, what] = self.report.add(
                    label, found[setting, what], unit, at_least=bound
                )
        self.ratio("upload", AIOQUIC_OFFLOAD, PLAIN_AIOQUIC, at_least=3)
        self.ratio("upload", AIOQUIC, PLAIN_AIOQUIC)
        self.ratio("upload", QH3_OFFLOAD, PLAIN_QH3, at_least=1.6)
        self.ratio("upload", QH3, PLAIN_QH3)
        self.ratio("echo", AIOQUIC, PLAIN_AIOQUIC, at_most=1.5)
        self.ratio("echo", QH3, PLAIN_QH3, at_most=1.5)

    def ratio(self, what: str, ours: Setting, plain: Setting, **bound: float) -> None:
        value = self.medians[ours, what] / self.medians[plain, what]
        self.report.add(f"{what}: {ours.name} over {plain.name}", [value], "×", **bound)

    async def sizes_found(self, tinygrad: tuple[float, float] | None) -> None:
        for setting in (BY_ITSELF, LARGE_QH3):
            async with AsyncExitStack() as stack:
                client = await open_client(stack, setting, self.ports[setting], self._trust)
                await client.upload(self.data[: 8 * MIB])
                assert client.connection is not None
                before = client.connection.path.bytes_sent
                ups = [(await self.timed_upload(client))[0] for _ in range(self.rounds)]
                sent = client.connection.path.bytes_sent - before
                downs = [await time_download(client, len(self.data)) for _ in range(self.rounds)]
                idle = await time_echoes(client)
                beside = await time_echoes_beside_upload(client, self.data)
                size = client.connection.path.datagram_bytes
            name = f"{setting.name} ({size:,})"
            up_bound, down_bound = (2 * rate for rate in tinygrad) if tinygrad else (None, None)
            self.report.add(f"upload: {name}", ups, "MB/s", at_least=up_bound)
            self.report.add(f"download: {name}", downs, "MB/s", at_least=down_bound)
            overhead = sent / (len(self.data) * self.rounds)
            self.report.add(f"wire over payload: {name}", [overhead], "×", at_most=1.06)
            quiet = self.report.add(f"echo, idle: {name}", idle, "ms")
            busy = self.report.add(f"echo beside an upload: {name}", beside, "ms")
            self.report.add(f"busy over idle: {name}", [busy / quiet], "×")

    async def long_line(self) -> None:
        """200 Mb/s, 50 ms, through the relay."""
        setting = Setting("line", "aioquic", self.line_datagram)
        share = self.data[: min(len(self.data), 128 * MIB)]
        for loss, least in (("0", 90), ("0.001", 70), ("0.01", 50)):
            with relayed(self.ports[BY_ITSELF], [*LINE, "--loss", loss]) as port:
                async with AsyncExitStack() as stack:
                    client = await open_client(stack, setting, port, self._trust)
                    await client.upload(share[: 8 * MIB])
                    values = []
                    for _ in range(self.rounds):
                        began = time.perf_counter()
                        await client.upload(share)
                        rate = len(share) / (time.perf_counter() - began)
                        values.append(100 * rate / LINE_BYTES_PER_SECOND)
            label = f"200 Mb/s, 50 ms, loss {float(loss):.1%}, {self.line_datagram:,}: payload"
            self.report.add(label, values, "% of line", at_least=least)

    async def timed_upload(self, client: Client) -> tuple[float, float, float]:
        """MB/s, and nanoseconds of the client's and the server's CPU for each byte."""
        server_began, began_cpu, began = (
            self._server_cpu(),
            time.process_time(),
            time.perf_counter(),
        )
        await client.upload(self.data)
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        server_cpu = self._server_cpu() - server_began
        count = len(self.data)
        return count / seconds / 1e6, cpu / count * 1e9, server_cpu / count * 1e9

    def _server_cpu(self) -> float:
        self._pipe.send(True)
        return float(self._pipe.recv())


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


class relayed:  # noqa: N801 - used as a function
    """A relay in a process of its own; gives its port."""

    def __init__(self, server_port: int, arguments: list[str]) -> None:
        script = Path(__file__).parent.parent / "relay.py"
        self._process = subprocess.Popen(
            [sys.executable, str(script), f"127.0.0.1:{server_port}", *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline().rsplit(":", 1)[1])

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


TINYGRAD_TRANSFERS = """
import statistics, time
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
    print(statistics.median(timed(work) for _ in range(3)))
"""


def tinygrad_rates(python: str, count: int) -> tuple[float, float]:
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
            [python, "-c", TINYGRAD_TRANSFERS.format(count=count)],
            env={**environment, "HOST": "127.0.0.1:16668", "REMOTE": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
        up, down = client.stdout.split()[-2:]
        return float(up), float(down)
    finally:
        server.kill()
        server.wait()


async def measure(bench: Bench, tinygrad: tuple[float, float] | None) -> None:
    await bench.small_datagrams()
    await bench.sizes_found(tinygrad)
    await bench.long_line()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--line-datagram", type=int, default=8_952)
    parser.add_argument("--tinygrad", metavar="PYTHON")
    arguments, _ = parser.parse_known_args()
    tinygrad = None
    if arguments.tinygrad:
        tinygrad = tinygrad_rates(arguments.tinygrad, 64 * MIB)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        identity = Identity.load_or_create(path)
        near, far = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        servers = context.Process(target=serve_all, args=(far, path, SETTINGS))
        servers.start()
        try:
            bench = Bench(arguments, near, PinnedKey(identity.fingerprint))
            bench.ports = dict(zip(SETTINGS, near.recv(), strict=True))
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(measure(bench, tinygrad))
            near.send(None)
        finally:
            servers.join(10)
            servers.terminate()
    if tinygrad:
        bench.report.add("upload 64 MiB: tinygrad REMOTE", [tinygrad[0]], "MB/s")
        bench.report.add("download 64 MiB: tinygrad REMOTE", [tinygrad[1]], "MB/s")
    bench.report.finish()


if __name__ == "__main__":
    main()
