"""Both ends of the link's benchmark: servers in a process of their own, and the clients' work.

Ours, the two engines' libraries by themselves, and TLS over TCP all do the same: an upload that the
server reads to its end and answers with one byte, a download, an echo.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import aioquic.asyncio.client
import aioquic.asyncio.server
import aioquic.quic.configuration
import numpy as np
import qh3.asyncio
import qh3.quic.configuration
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gpuwire.loops import loop_factory
from gpuwire.transport import (
    Connection,
    Identity,
    PinnedKey,
    TransportOptions,
    connect,
    listen,
)

MIB = 1 << 20
UPLOAD, QUIET_UPLOAD, DOWNLOAD, ECHO = b"U", b"Q", b"D", b"E"
SMALL = 1_452
PAYLOAD = memoryview(bytes(256 * MIB))
"""What is downloaded; pages that nobody wrote cost nothing until they are sent."""


@dataclass(frozen=True)
class Setting:
    """One pair of ends. `engine` may be plain aioquic, plain qh3, or plain TLS."""

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


# --- The servers' process ---------------------------------------------------------------------


@dataclass
class Servers:
    """The servers, where they listen, and the time they have worked."""

    ports: dict[Setting, int]
    trust: PinnedKey
    process_id: int
    _pipe: Pipe

    def cpu_seconds(self) -> float:
        """Of the servers' process, since its start."""
        self._pipe.send(True)
        return float(self._pipe.recv())


@contextmanager
def serving(settings: tuple[Setting, ...]) -> Iterator[Servers]:
    """One server for each setting, all in one process."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        identity = Identity.load_or_create(path)
        near, far = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=serve_all, args=(far, path, settings))
        process.start()
        try:
            ports = dict(zip(settings, near.recv(), strict=True))
            yield Servers(ports, PinnedKey(identity.fingerprint), process.pid or 0, near)
            near.send(None)
        finally:
            process.join(10)
            process.terminate()


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
    if setting.engine == "plain TLS":
        return await _start_tls(identity)
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


async def _start_tls(identity: Identity) -> int:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile() as file:
        for part in (
            identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            identity.certificate.public_bytes(Encoding.PEM),
        ):
            file.write(part)
        file.flush()
        context.load_cert_chain(file.name)
    server = await asyncio.start_server(_serve_plain_stream, "127.0.0.1", 0, ssl=context)
    return int(server.sockets[0].getsockname()[1])


def _serve_plain_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def serve() -> None:
        kind = await reader.readexactly(1)
        if kind == ECHO:
            while data := await reader.read(MIB):
                writer.write(data)
            return
        count = int(await reader.readexactly(10))
        if kind == DOWNLOAD:
            writer.write(PAYLOAD[:count])
            return
        while count:
            count -= len(await reader.read(min(count, MIB)))
        writer.write(b"!")

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
            await stream.write(PAYLOAD[: int(await control.reader.readexactly(10))])
            stream.finish()


async def _take_upload(connection: Connection, control: Any, answer: bytes) -> None:
    stream = await connection.accept_bulk()
    while await stream.read(MIB):
        pass
    control.writer.write_nowait(answer)


# --- The clients ------------------------------------------------------------------------------


OpenStream = Callable[[], Awaitable[tuple[Any, Any]]]


class Client:
    """One connection's work."""

    upload: Callable[[memoryview], Awaitable[None]]
    quiet_upload: Callable[[memoryview], Awaitable[None]]
    """Ours only: returns when the transport has acknowledged it."""
    echo: Callable[[bytes], Awaitable[bytes]]
    download: Callable[[int], Awaitable[None]]
    connection: Connection | None = None


async def open_client(stack: AsyncExitStack, setting: Setting, servers: Servers) -> Client:
    """A client of the setting's server, closed with `stack`."""
    return await open_client_at(stack, setting, servers.ports[setting], servers.trust)


async def open_client_at(
    stack: AsyncExitStack, setting: Setting, port: int, trust: PinnedKey
) -> Client:
    """The same at a port that is not the server's own, a relay's."""
    if setting.engine == "plain TLS":
        return _plain_client(await _tls_streams(stack, port))
    if setting.is_plain:
        return _plain_client(await _plain_streams(stack, setting, port))
    return await _open_ours(stack, setting, port, trust)


async def _tls_streams(stack: AsyncExitStack, port: int) -> OpenStream:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def open_stream() -> tuple[Any, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        stack.callback(writer.close)
        return reader, writer

    return open_stream


async def _plain_streams(stack: AsyncExitStack, setting: Setting, port: int) -> OpenStream:
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
    open_stream: OpenStream = link.create_stream
    return open_stream


def _plain_client(open_stream: OpenStream) -> Client:
    client = Client()
    lines: list[Any] = []

    async def upload(data: memoryview) -> None:
        reader, writer = await open_stream()
        writer.write(UPLOAD + b"%010d" % len(data))
        writer.write(data)
        assert await reader.readexactly(1) == b"!"

    async def echo(data: bytes) -> bytes:
        if not lines:
            lines.extend(await open_stream())
            lines[1].write(ECHO)
        lines[1].write(data)
        return bytes(await lines[0].readexactly(len(data)))

    async def download(count: int) -> None:
        reader, writer = await open_stream()
        writer.write(DOWNLOAD + b"%010d" % count)
        while count:
            count -= len(await reader.read(min(count, MIB)))

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
        await stream.read_into(memoryview(np.empty(count, np.uint8)))

    client.quiet_upload = quiet_upload
    client.upload, client.echo, client.download = upload, echo, download
    return client
