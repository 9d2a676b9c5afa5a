"""Reception: a new connection's Hello, its admission, and the session that comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from gpuwire.config import Config
from gpuwire.errors import ConnectionClosed, DeviceLost, GpuwireError, LinkLost, SessionLost
from gpuwire.host.envelopes import wire_limits
from gpuwire.ids import SessionId
from gpuwire.server.admission import Admission, AdmissionRequest, Grant, tighter
from gpuwire.server.attached_link import FAREWELL_SECONDS, AttachedLink, Link
from gpuwire.server.roster import Present, Roster
from gpuwire.server.session import Session, SessionTimes
from gpuwire.server.supervision import ServedDevice
from gpuwire.server.upload_cache import OwnUploads, UploadCache
from gpuwire.server.watching import Sight, View, Watching, sight_of, told
from gpuwire.telemetry.logs import Logger
from gpuwire.transport import Connection, Stream
from gpuwire.wire.messages import (
    RESUME_KEY_BYTES,
    Close,
    Facts,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    Resume,
    Resumed,
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
LOST_KEPT = 256
"""Sessions that ended last: their clients may have lost their links before they were told why."""


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


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a client has to prove who comes back to its session."""

    key: bytes = field(repr=False)
    owner: str
    """`Grant.owner`: a new token of an old name is another's."""

    def is_met_by(self, resume: Resume, grant: Grant) -> bool:
        """Whether it did."""
        return hmac.compare_digest(self.key, resume.key) and self.owner == grant.owner


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A session that its client may come back to."""

    session: Session
    claim: _Claim
    name: str
    max_upload: int
    max_memory: int


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
        upload_cache: UploadCache,
        tracer: Tracer | None = None,
    ) -> None:
        self._config = config
        self._admission = admission
        self._devices = devices
        self._logger = logger
        self._roster = roster
        self._watching = watching
        self._upload_cache = upload_cache
        self._tracer = tracer
        self._limits = wire_limits(config.server)
        self._server_name = server_name()
        self._times = SessionTimes(
            config.remote.heartbeat_seconds, config.remote.resume_grace_seconds
        )
        self._sessions: dict[SessionId, _Known] = {}
        self._lost: OrderedDict[SessionId, tuple[_Claim, GpuwireError]] = OrderedDict()
        """Those that ended last, and why."""
        self._serving: set[asyncio.Task[None]] = set()
        """One for each session."""
        self._receiving: set[asyncio.Task[None]] = set()
        """One for each connection."""
        self._on_links: set[asyncio.Task[None]] = set()
        """Those of them that a session uses."""
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
        for known in self._sessions.values():
            known.session.end(reason)
        for task in self._receiving - self._on_links:
            # It has no session yet, or only asked for the devices.
            task.cancel()
        under_way = self._receiving | self._serving
        if under_way:
            _, late = await asyncio.wait(under_way, timeout=2 * FAREWELL_SECONDS)
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
        if hello.resume is not None:
            await self._resume_session(caller, grant, hello.resume)
            return
        if hello.device is None:
            self._logger.basic(f"devices listed: token {grant.name!r}, {hello.client} at {address}")
            await self._list_and_show(caller, sight_of(grant))
            return
        self._admission.check_device(grant, hello.device, len(self._devices))
        with contextlib.ExitStack() as stays:
            stays.enter_context(self._admission.counted(grant))
            await self._open_session(caller, grant, self._devices[hello.device], stays)

    async def _open_session(
        self, caller: _Caller, grant: Grant, device: ServedDevice, stays: contextlib.ExitStack
    ) -> None:
        """Opens a session, which goes on when this link is lost: `stays` lasts as long."""
        server, hello = self._config.server, caller.hello
        max_memory = tighter(server.max_memory_bytes, grant.limits.max_memory_bytes)
        max_upload = tighter(server.max_upload_bytes, grant.limits.max_upload_bytes)
        try:
            host = await asyncio.wait_for(device.host(), HELLO_SECONDS)
        except TimeoutError:
            raise DeviceLost(
                f"device {device.index} is being started anew; try again", device=device.index
            ) from None
        identity = SessionId(secrets.token_bytes(16))
        key = secrets.token_bytes(RESUME_KEY_BYTES)
        name = f"session {identity.hex()[:8]}"
        session = Session(
            host,
            device.index,
            self._times,
            OwnUploads(self._upload_cache, grant.owner),
            self._config.remote.compression,
            lambda line: self._logger.basic(f"{name} {line}"),
        )
        if self._tracer is not None:
            session.tracing = _frame_tracing(self._tracer, identity, device)
        known = _Known(session, _Claim(key, grant.owner), name, max_upload, max_memory)
        welcome = self._welcome(caller, identity, known, key if self._times.grace else None)
        attached = session.open(caller.link, welcome, caller.early, max_memory, max_upload)
        self._logger.basic(
            f"{name} opened: device {device.index}, token {grant.name!r}, {hello.client} at "
            f"{caller.link.connection.path.address}"
        )
        self._sessions[identity] = known
        about = Present(session, identity.hex()[:8], device.index, grant.name, hello.client)
        serving = asyncio.create_task(self._serve_session(identity, known, about, stays.pop_all()))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        await self._stay_on(attached)

    async def _serve_session(
        self, identity: SessionId, known: _Known, about: Present, stays: contextlib.ExitStack
    ) -> None:
        """A session from its opening to its end, over one link after another."""
        try:
            with stays, self._roster.listed(about):
                reason, freed = await known.session.run()
        finally:
            del self._sessions[identity]
        if reason is not None:
            self._lost[identity] = (known.claim, reason)
            if len(self._lost) > LOST_KEPT:
                self._lost.popitem(last=False)
        why = "by the client" if reason is None else f"{type(reason).__name__}: {reason}"
        self._logger.basic(f"{known.name} closed, {freed} bytes freed: {why}")

    async def _resume_session(self, caller: _Caller, grant: Grant, resume: Resume) -> None:
        """Goes on with a session over a new link; `SessionLost` for one that is not there, or not
        this client's, which it must not learn."""
        lost = self._lost.get(resume.session)
        if lost is not None and lost[0].is_met_by(resume, grant):
            raise lost[1].with_traceback(None)
        known = self._sessions.get(resume.session)
        if known is None or not known.claim.is_met_by(resume, grant):
            raise SessionLost(
                "the server does not know this session: it was started anew, or the session was "
                "ended before"
            )

        def welcome(resumed: Resumed) -> bytes:
            return self._welcome(caller, resume.session, known, None, resumed)

        attached = known.session.resume(caller.link, resume, welcome)
        self._logger.basic(
            f"{known.name} resumed: {caller.hello.client} at {caller.link.connection.path.address}"
        )
        await self._stay_on(attached)

    async def _stay_on(self, attached: AttachedLink) -> None:
        """Until the session uses the link no more."""
        task = asyncio.current_task()
        assert task is not None
        self._on_links.add(task)
        try:
            await attached.over.wait()
        finally:
            self._on_links.discard(task)

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
        control.writer.write_nowait(self._welcome(caller, None))
        messages, received = caller.early, _microseconds()
        view: View | None = None
        while not any(isinstance(message, Close) for message in messages):
            for message in messages:
                if isinstance(message, Heartbeat):
                    control.writer.write_nowait(wire.send(HeartbeatReply(message.number)))
                if isinstance(message, Watch):
                    if view is None:
                        view = views.enter_context(
                            self._watching.view(sight, closely=message.closely)
                        )
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
        self,
        caller: _Caller,
        session: SessionId | None,
        known: _Known | None = None,
        key: bytes | None = None,
        resumed: Resumed | None = None,
    ) -> bytes:
        wire = caller.link.wire
        devices = tuple(device.info for device in self._devices)
        upload, memory = (known.max_upload, known.max_memory) if known is not None else (0, 0)
        limits = SessionLimits(self._limits.max_frame_bytes, upload, memory, self._times.grace)
        return wire.send(
            Welcome(wire.version, session, devices, limits, self._server_name, key, resumed)
        )

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
