"""The transport beside plain aioquic, in one run over loopback: round trips and uploads.

The servers are a second process. Both engines meet the same work: an echo on one bidirectional
stream, and an upload that the server reads to its end and then acknowledges with one byte.

    python tests/bench/bench_transport.py [--json PATH] [--mebibytes 32] [--rounds 5] [--sizes …]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from aioquic.asyncio.client import connect as connect_plain
from aioquic.asyncio.server import serve as serve_plain
from aioquic.quic.configuration import QuicConfiguration
from report import Report

from gpuwire.transport import (
    Connection,
    Identity,
    PinnedKey,
    ReceiveStream,
    TransportOptions,
    connect,
    listen,
)

ECHOES = 200
ECHO_BYTES = 64
UPLOAD = b"U"
ECHO = b"E"
MIB = 1 << 20
Echo = Callable[[bytes], Awaitable[bytes]]
Upload = Callable[[memoryview], Awaitable[None]]


def plain_configuration(size: int, *, is_client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        alpn_protocols=["plain"],
        is_client=is_client,
        max_datagram_size=size,
        verify_mode=ssl.CERT_NONE,
    )


# --- The servers' process ---------------------------------------------------------------------


def serve_both(pipe: Pipe, identity_directory: Any, sizes: list[int]) -> None:
    asyncio.run(_serve_both(pipe, Identity.load_or_create(identity_directory), sizes))


async def _serve_both(pipe: Pipe, identity: Identity, sizes: list[int]) -> None:
    ports = {}
    for size in sizes:
        configuration = plain_configuration(size, is_client=False)
        configuration.certificate = identity.certificate
        configuration.private_key = identity.key
        server = await serve_plain(
            "127.0.0.1", 0, configuration=configuration, stream_handler=_serve_plain_stream
        )
        plain_port = server._transport.get_extra_info("sockname")[1]  # type: ignore[union-attr]
        options = TransportOptions(datagram_bytes=size)
        listener = await listen("127.0.0.1", 0, identity, _serve_connection, options)
        ports[size] = (plain_port, listener.port)
    pipe.send(ports)
    await asyncio.get_running_loop().run_in_executor(None, pipe.recv)


def _serve_plain_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def serve() -> None:
        kind = await reader.readexactly(1)
        while data := await reader.read(MIB):
            if kind == ECHO:
                writer.write(data)
        writer.write(b"!")
        writer.write_eof()

    task = asyncio.ensure_future(serve())
    writer.task = task  # type: ignore[attr-defined]  # keeps it alive


async def _serve_connection(connection: Connection) -> None:
    control = await connection.accept_control()
    kind = await control.reader.readexactly(1)
    if kind == ECHO:
        while data := await control.reader.read(MIB):
            await control.writer.write(data)
        return
    while await control.reader.read(1):
        await _drain(await connection.accept_bulk())
        control.writer.write_nowait(b"!")


async def _drain(stream: ReceiveStream) -> None:
    while await stream.read(MIB):
        pass


# --- The clients ------------------------------------------------------------------------------


@asynccontextmanager
async def plain_echo(port: int, size: int) -> AsyncIterator[Echo]:
    configuration = plain_configuration(size, is_client=True)
    async with connect_plain("127.0.0.1", port, configuration=configuration) as client:
        reader, writer = await client.create_stream()
        writer.write(ECHO)

        async def echo(data: bytes) -> bytes:
            writer.write(data)
            return await reader.readexactly(len(data))

        yield echo


@asynccontextmanager
async def plain_upload(port: int, size: int) -> AsyncIterator[Upload]:
    configuration = plain_configuration(size, is_client=True)
    async with connect_plain("127.0.0.1", port, configuration=configuration) as client:

        async def upload(data: memoryview) -> None:
            reader, writer = await client.create_stream()
            writer.write(UPLOAD)
            writer.write(data)
            writer.write_eof()
            assert await reader.readexactly(1) == b"!"

        yield upload


@asynccontextmanager
async def our_echo(port: int, size: int, trust: PinnedKey) -> AsyncIterator[Echo]:
    connection = await connect("127.0.0.1", port, trust, TransportOptions(datagram_bytes=size))
    control = await connection.open_control()
    await control.writer.write(ECHO)

    async def echo(data: bytes) -> bytes:
        await control.writer.write(data)
        return await control.reader.readexactly(len(data))

    yield echo
    connection.close()


@asynccontextmanager
async def our_upload(port: int, size: int, trust: PinnedKey) -> AsyncIterator[Upload]:
    connection = await connect("127.0.0.1", port, trust, TransportOptions(datagram_bytes=size))
    control = await connection.open_control()
    await control.writer.write(UPLOAD)

    async def upload(data: memoryview) -> None:
        await control.writer.write(b"n")
        stream = connection.open_bulk()
        await stream.write(data)
        stream.finish()
        assert await control.reader.readexactly(1) == b"!"

    yield upload
    connection.close()


async def time_echoes(echo: Echo) -> list[float]:
    data = bytes(ECHO_BYTES)
    for _ in range(50):
        await echo(data)
    milliseconds = []
    for _ in range(ECHOES):
        began = time.perf_counter()
        await echo(data)
        milliseconds.append((time.perf_counter() - began) * 1e3)
    return milliseconds


async def time_upload(upload: Upload, data: memoryview) -> float:
    began = time.perf_counter()
    await upload(data)
    return len(data) / (time.perf_counter() - began) / 1e6


async def measure(
    ports: dict[int, tuple[int, int]], trust: PinnedKey, rounds: int, mebibytes: int
) -> Report:
    report = Report("transport beside plain aioquic, loopback, two processes")
    data = memoryview(bytes(mebibytes * MIB))
    for size, (plain_port, our_port) in ports.items():
        plain_ms: list[float] = []
        our_ms: list[float] = []
        plain_rates: list[float] = []
        our_rates: list[float] = []
        for _ in range(rounds):
            async with plain_echo(plain_port, size) as echo:
                plain_ms += await time_echoes(echo)
            async with our_echo(our_port, size, trust) as echo:
                our_ms += await time_echoes(echo)
            async with plain_upload(plain_port, size) as upload:
                plain_rates.append(await time_upload(upload, data))
            async with our_upload(our_port, size, trust) as upload:
                our_rates.append(await time_upload(upload, data))
        plain = report.add(f"{size:,}: echo, plain aioquic", plain_ms, "ms")
        ours = report.add(f"{size:,}: echo, gpuwire", our_ms, "ms")
        report.add(f"{size:,}: echo, ratio", [ours / plain], "×", at_most=1.3)
        plain = report.add(f"{size:,}: upload, plain aioquic", plain_rates, "MB/s")
        ours = report.add(f"{size:,}: upload, gpuwire", our_rates, "MB/s")
        report.add(f"{size:,}: upload, ratio", [ours / plain], "×")
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_200, 1_452, 8_952, 16_000])
    arguments, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        identity = Identity.load_or_create(path)
        near, far = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        servers = context.Process(target=serve_both, args=(far, path, arguments.sizes))
        servers.start()
        try:
            ports = near.recv()
            trust = PinnedKey(identity.fingerprint)
            report = asyncio.run(measure(ports, trust, arguments.rounds, arguments.mebibytes))
            near.send(None)
        finally:
            servers.join(10)
            servers.terminate()
    report.finish()


if __name__ == "__main__":
    main()
