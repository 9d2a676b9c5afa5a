"""Opening a session: lookup, handshake and welcome under one deadline."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from gpuwire.config import RemoteConfig
from gpuwire.errors import (
    ConnectError,
    ConnectTimeout,
    DeviceLost,
    GpuwireError,
    NoSuchDevice,
    ProtocolError,
    ServerStopped,
    SessionError,
    SessionLost,
    TicketError,
    UnexpectedMessage,
)
from gpuwire.ids import SessionId
from gpuwire.telemetry.logs import open_logger
from gpuwire.transport import (
    AuthorityFile,
    Connection,
    PinnedKey,
    Stream,
    Ticket,
    TransportOptions,
    Trust,
    connect,
)
from gpuwire.wire.messages import (
    PROTOCOL_VERSIONS,
    Close,
    DeviceInfo,
    Hello,
    Message,
    Resume,
    SessionLimits,
    Welcome,
)
from gpuwire.wire.numbering import FrameNumbering
from gpuwire.wire.records import from_record
from gpuwire.wire.session import ClientSession


@dataclass(frozen=True, slots=True)
class Link:
    """A connection whose server has said welcome."""

    connection: Connection
    control: Stream
    wire: ClientSession
    welcome: Welcome
    first: tuple[Message, ...]
    """Messages that came together with the welcome."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a session was opened on."""

    session: SessionId
    device: DeviceInfo
    limits: SessionLimits
    key: bytes | None = field(default=None, repr=False)
    """With this the session can be resumed; None where the server does not keep it."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """A session to be gone on with over another link."""

    device: int
    resume: Resume
    numbering: FrameNumbering


async def open_link(
    ticket: Ticket, device: int, config: RemoteConfig, authority: Path | None = None
) -> tuple[Link, Admission]:
    """Opens a session on device `device` of the ticket's server.

    `authority` names a PEM file of certificate authorities, for a server whose ticket pins no key.
    One deadline, `connect_timeout_seconds`, holds over everything. Each way to fail is an error of
    its own: see `ConnectError`.
    """
    async with _deadline(ticket, config.connect_timeout_seconds):
        link = await _welcomed(ticket, device, config, authority)
        found = next((info for info in link.welcome.devices if info.index == device), None)
        if link.welcome.session is None or found is None:
            link.connection.close()
            raise NoSuchDevice(
                f"{address_of(ticket)} has no device {device}",
                host=ticket.host,
                port=ticket.port,
                index=device,
                count=len(link.welcome.devices),
            )
        welcome = link.welcome
        return link, Admission(link.welcome.session, found, welcome.limits, welcome.key)


async def reopen_link(
    ticket: Ticket,
    resumption: Resumption,
    config: RemoteConfig,
    seconds: float,
    authority: Path | None = None,
) -> Link:
    """Another link for a session, within so many seconds, by the address that the ticket's name has
    now. Raises as `open_link`, and what the server says of a session that is no more: `SessionLost`
    if it does not know it."""
    async with _deadline(ticket, seconds):
        return await _welcomed(ticket, resumption.device, config, authority, resumption)


async def open_listing(ticket: Ticket, config: RemoteConfig, authority: Path | None = None) -> Link:
    """A connection that knows the server's devices and has no session. Raises as `open_link`."""
    async with _deadline(ticket, config.connect_timeout_seconds):
        return await _welcomed(ticket, None, config, authority)


async def devices_of(
    ticket: Ticket, config: RemoteConfig, authority: Path | None = None
) -> tuple[DeviceInfo, ...]:
    """The devices that the ticket's server lends; opens no session. Raises as `open_link`."""
    link = await open_listing(ticket, config, authority)
    link.control.writer.write_nowait(link.wire.send(Close(None)))
    link.connection.close()
    return link.welcome.devices


def address_of(ticket: Ticket) -> str:
    """`host:port`, an IPv6 host in brackets."""
    host = f"[{ticket.host}]" if ":" in ticket.host else ticket.host
    return f"{host}:{ticket.port}"


@asynccontextmanager
async def _deadline(ticket: Ticket, seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds) as deadline:
            yield
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise ConnectTimeout(
            f"no answer from {address_of(ticket)} within {seconds:g} s: is the server "
            "running there, and does every firewall between let UDP through to that port?",
            host=ticket.host,
            port=ticket.port,
            seconds=seconds,
        ) from error


async def _welcomed(
    ticket: Ticket,
    device: int | None,
    config: RemoteConfig,
    authority: Path | None,
    resumption: Resumption | None = None,
) -> Link:
    connection = await connect(
        ticket.host, ticket.port, _trust(ticket, authority), _options(config)
    )
    try:
        control = await connection.open_control()
        resume, wire = None, ClientSession()
        if resumption is not None:
            resume = resumption.resume
            wire = ClientSession(numbering=resumption.numbering)
        hello = Hello(PROTOCOL_VERSIONS, ticket.token, device, _client_name(), resume)
        await control.writer.write(wire.send(hello))
        welcome, *first = await _first_messages(control, wire)
        match welcome:
            case Welcome():
                return Link(connection, control, wire, welcome, tuple(first))
            case Close(error=error) if error is not None:
                raise _at(from_record(error), ticket)
            case _:
                raise UnexpectedMessage(
                    f"the server answered with {type(welcome).__name__} instead of a welcome",
                    kind=type(welcome).__name__,
                )
    except ProtocolError as error:
        control.writer.write_nowait(wire.close(error))
        connection.close(reason=error.message)
        raise
    except SessionError as error:
        connection.close()
        if resumption is not None and isinstance(error, SessionLost | DeviceLost | ServerStopped):
            raise
        raise ConnectError(
            f"{address_of(ticket)} ended the connection before its welcome: {error}",
            host=ticket.host,
            port=ticket.port,
        ) from error
    except BaseException:
        connection.close()
        raise


async def _first_messages(control: Stream, wire: ClientSession) -> list[Message]:
    while True:
        data = await control.reader.read(64 * 1024)
        if not data:
            raise SessionError("the stream ended")
        messages = wire.receive_data(data)
        if messages:
            return messages


def _trust(ticket: Ticket, authority: Path | None) -> Trust:
    if authority is not None:
        return AuthorityFile(authority)
    if ticket.fingerprint is None:
        raise TicketError(
            "the ticket names no fingerprint (fp=…) and no authority was given, so the server "
            "cannot be told from another: take the ticket that `gpuwire serve` printed"
        )
    return PinnedKey(ticket.fingerprint)


def _options(config: RemoteConfig) -> TransportOptions:
    return TransportOptions(
        engine=config.quic_engine,
        segmentation_offload=config.segmentation_offload,
        datagram_bytes=config.datagram_bytes,
        idle_timeout_seconds=config.idle_timeout_seconds,
        logger=open_logger(config.logger, "link"),
    )


def _client_name() -> str:
    return f"{socket.gethostname()} pid {os.getpid()} gpuwire {version('gpuwire')}"


def _at(error: GpuwireError, ticket: Ticket) -> GpuwireError:
    """The server's refusal, with the address: the server does not know by what name it was
    reached."""
    if not isinstance(error, ConnectError) or error.host is not None:
        return error
    fields = {**error.fields, "host": ticket.host, "port": ticket.port}
    placed = type(error)(f"{address_of(ticket)}: {error.message}", **fields)
    placed.__cause__ = error.__cause__
    return placed
