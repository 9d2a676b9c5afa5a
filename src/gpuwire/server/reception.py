"""Reception: a new connection's Hello, its admission, and the session that comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from gpuwire.config import Config
from gpuwire.errors import ConnectionClosed, DeviceLost, GpuwireError, LinkLost
from gpuwire.host.envelopes import wire_limits
from gpuwire.ids import SessionId
from gpuwire.server.admission import Admission, AdmissionRequest, Grant, tighter
from gpuwire.server.roster import Present, Roster
from gpuwire.server.session import FAREWELL_SECONDS, Link, Session
from gpuwire.server.supervision import ServedDevice
from gpuwire.server.watching import Sight, View, Watching, sight_of, told
from gpuwire.telemetry.logs import Logger
from gpuwire.transport import Connection, Stream
from gpuwire.wire.messages import (
    Close,
    Facts,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    SessionLimits,
    Watch,
    Welcome,
)
from gpuwire.wire.session import ServerSession

if TYPE_CHECKING:
    from gpuwire.server.tracing import FrameTracing
    from gpuwire.telemetry.otel import Tracer

HELLO_SECONDS = 10.0
"""A connection that has not said Hello after so long is closed."""
HELLO_READ_BYTES = 64 * 1024
LISTING_SECONDS = 60.0
"""A connection that only asked for the devices is closed after so long without a word."""


def server_name() -> str:
    """How this server introduces itself."""
    return f"gpuwire {version('gpuwire')} on {socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class _Caller:
    """A connection that said Hello."""

    link: Link
    hello: Hello
    early: Sequence[Message]
    """What came behind the Hello in the same packet."""


class Reception:
    """Takes connections from the listener."""

    def __init__(
        self,
        config: Config,
        admission: Admission,
        devices: Sequence[ServedDevice],
        logger: Logger,
        roster: Roster,
        watching: Watching,
        tracer: Tracer | None = None,
    ) -> None:
        self._config = config
        self._admission = admission
        self._devices = devices
        self._logger = logger
        self._roster = roster
        self._watching = watching
        self._tracer = tracer
        self._limits = wire_limits(config.server)
        self._server_name = server_name()
        self._sessions: dict[asyncio.Task[None], Session] = {}
        self._receiving: set[asyncio.Task[None]] = set()
        self._closing: GpuwireError | None = None
        self._open = asyncio.Event()

    def open(self) -> None:
        """The devices are there: whoever came before is let in."""
        self._open.set()

    async def receive(self, connection: Connection) -> None:
        """Serves a connection until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._receiving.add(task)
        try:
            await self._serve(connection)
        except GpuwireError as error:
            self._logger.full(f"{connection.path.address} is gone: {error}")
        finally:
            self._receiving.discard(task)

    async def close(self, reason: GpuwireError) -> None:
        """Tells every session why it ends, and returns when all have ended."""
        self._closing = reason
        for task in tuple(self._receiving):
            session = self._sessions.get(task)
            if session is not None:
                session.end(reason)
            else:
                # It has no session yet, or only asked for the devices.
                task.cancel()
        if self._receiving:
            _, late = await asyncio.wait(self._receiving, timeout=2 * FAREWELL_SECONDS)
            for task in late:
                task.cancel()

    async def _serve(self, connection: Connection) -> None:
        try:
            control = await asyncio.wait_for(connection.accept_control(), HELLO_SECONDS)
        except TimeoutError:
            self._logger.basic(f"refused {connection.path.address}: it opened no control stream")
            return
        link = Link(connection, control, ServerSession(self._limits), self._limits)
        try:
            caller = await asyncio.wait_for(self._hear(link), HELLO_SECONDS)
        except TimeoutError:
            error = LinkLost(f"no Hello within {HELLO_SECONDS:g} s", seconds=HELLO_SECONDS)
            await self._refuse(link, error, "a client")
            return
        except GpuwireError as error:
            await self._refuse(link, error, "a client")
            return
        if caller is not None:
            try:
                await self._admit(caller)
            except GpuwireError as error:
                await self._refuse(link, error, caller.hello.client)

    async def _hear(self, link: Link) -> _Caller | None:
        """The client's Hello; None if it left before."""
        while data := await link.control.reader.read(HELLO_READ_BYTES):
            messages = link.wire.receive_data(data)
            if messages and isinstance(messages[0], Hello):
                return _Caller(link, messages[0], messages[1:])
            if messages:
                return None
        return None

    async def _admit(self, caller: _Caller) -> None:
        hello = caller.hello
        await self._open.wait()
        if self._closing is not None:
            raise self._closing
        address = caller.link.connection.path.address
        request = AdmissionRequest(hello.token, hello.device, hello.client, address)
        grant = await self._admission.authorize(request)
        if hello.device is None:
            self._logger.basic(f"devices listed: token {grant.name!r}, {hello.client} at {address}")
            await self._list_and_show(caller, sight_of(grant))
            return
        self._admission.check_device(grant, hello.device, len(self._devices))
        with self._admission.counted(grant):
            await self._open_session(caller, grant, self._devices[hello.device])

    async def _open_session(self, caller: _Caller, grant: Grant, device: ServedDevice) -> None:
        server, hello = self._config.server, caller.hello
        max_memory = tighter(server.max_memory_bytes, grant.limits.max_memory_bytes)
        max_upload = tighter(server.max_upload_bytes, grant.limits.max_upload_bytes)
        try:
            host = await asyncio.wait_for(device.host(), HELLO_SECONDS)
        except TimeoutError:
            raise DeviceLost(
                f"device {device.index} is being started anew; try again", device=device.index
            ) from None
        session = Session(caller.link, host, device.index, self._config.remote.heartbeat_seconds)
        identity = SessionId(secrets.token_bytes(16))
        if self._tracer is not None:
            session.tracing = _frame_tracing(self._tracer, identity, device)
        welcome = self._welcome(caller, identity, max_upload, max_memory)
        name = f"session {identity.hex()[:8]}"
        self._logger.basic(
            f"{name} opened: device {device.index}, token {grant.name!r}, {hello.client} at "
            f"{caller.link.connection.path.address}"
        )
        task = asyncio.current_task()
        assert task is not None
        self._sessions[task] = session
        about = Present(session, identity.hex()[:8], device.index, grant.name, hello.client)
        try:
            with self._roster.listed(about):
                reason, freed = await session.run(welcome, caller.early, max_memory, max_upload)
        finally:
            del self._sessions[task]
        why = "by the client" if reason is None else f"{type(reason).__name__}: {reason}"
        self._logger.basic(f"{name} closed, {freed} bytes freed: {why}")

    async def _list_and_show(self, caller: _Caller, sight: Sight) -> None:
        try:
            with contextlib.ExitStack() as views:
                await self._list_devices(caller, sight, views)
        except ConnectionClosed:
            return  # It has what it asked for, and left without a Close.
        except asyncio.CancelledError:
            if self._closing is None:
                raise
            last = caller.link.wire.close(self._closing)
            await self._say_goodbye(caller.link.control, last)

    async def _list_devices(
        self, caller: _Caller, sight: Sight, views: contextlib.ExitStack
    ) -> None:
        """Answers with the devices, then with heartbeats and with what a viewer wants to know,
        until the client leaves."""
        wire, control = caller.link.wire, caller.link.control
        control.writer.write_nowait(self._welcome(caller, None, 0, 0))
        messages, received = caller.early, _microseconds()
        view: View | None = None
        while not any(isinstance(message, Close) for message in messages):
            for message in messages:
                if isinstance(message, Heartbeat):
                    control.writer.write_nowait(wire.send(HeartbeatReply(message.number)))
                if isinstance(message, Watch):
                    if view is None:
                        view = views.enter_context(self._watching.view(sight))
                    snapshot = await view.next()
                    if snapshot is None:
                        return
                    data = told(snapshot)
                    facts = Facts(message.number, received, _microseconds(), data)
                    await control.writer.write(wire.send(facts))
            try:
                read = control.reader.read(HELLO_READ_BYTES)
                data = await asyncio.wait_for(read, LISTING_SECONDS)
            except TimeoutError:
                break
            if not data:
                break
            received = _microseconds()
            messages = wire.receive_data(data)
        await self._say_goodbye(control, wire.close())

    def _welcome(
        self, caller: _Caller, session: SessionId | None, max_upload: int, max_memory: int
    ) -> bytes:
        wire = caller.link.wire
        devices = tuple(device.info for device in self._devices)
        # A lost link ends its session in this version, so the grace it has is none.
        limits = SessionLimits(self._limits.max_frame_bytes, max_upload, max_memory, 0.0)
        return wire.send(Welcome(wire.version, session, devices, limits, self._server_name))

    async def _refuse(self, link: Link, error: GpuwireError, client: str) -> None:
        self._logger.basic(
            f"refused {client} at {link.connection.path.address}: {type(error).__name__}: {error}"
        )
        self._roster.refusals += 1
        await self._say_goodbye(link.control, link.wire.close(error))

    async def _say_goodbye(self, control: Stream, last: bytes) -> None:
        """Writes the last message and waits until the client's side has it."""
        try:
            if last:
                control.writer.write_nowait(last)
            control.writer.finish()
            await asyncio.wait_for(control.writer.wait_acknowledged(), FAREWELL_SECONDS)
        except (GpuwireError, TimeoutError):
            # It does not take the message: closing the connection is all that is left.
            return


def _frame_tracing(tracer: Tracer, session: SessionId, device: ServedDevice) -> FrameTracing:
    from gpuwire.server.tracing import FrameTracing

    return FrameTracing(tracer, session.hex()[:8], device.index)


def _microseconds() -> int:
    return time.time_ns() // 1000
