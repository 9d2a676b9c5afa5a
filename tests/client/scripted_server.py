"""A server that does what a test tells it: real transport and wire, no device behind.

It welcomes a client, keeps the bytes of registered tensors and gives them back; a test replaces
`answer` to do otherwise, and steers the connection through `control`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuwire.bulk import BulkReader
from gpuwire.client.loop_thread import LoopThread
from gpuwire.ids import RequestId, SessionId, TensorId
from gpuwire.transport import Connection, Identity, Listener, Stream, Ticket, listen
from gpuwire.wire.codec import decode_tasks, encode_reply
from gpuwire.wire.framing import BULK_HEADER_BYTES, decode_bulk_header
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import (
    AnnounceUpload,
    Close,
    DeviceInfo,
    Done,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    ReadTensor,
    RegisterTensor,
    Reply,
    SessionLimits,
    SyncStream,
    Task,
    TaskFrame,
    TensorData,
    UploadFound,
    Welcome,
)
from gpuwire.wire.session import ServerSession

DEVICE = DeviceInfo(
    index=0,
    name="scripted",
    backend="Vulkan",
    kind="cpu",
    driver="none",
    dtypes=("bool", "int32", "uint8", "float32"),
    features=(),
    max_buffer_bytes=1 << 30,
    max_binding_bytes=1 << 27,
    max_workgroup_invocations=256,
    max_workgroup_memory=16384,
)
LIMITS = SessionLimits(
    max_frame_bytes=1 << 25, max_upload_bytes=0, max_memory_bytes=0, resume_grace_seconds=0.0
)


@dataclass
class ScriptedServer:
    """One listener; its clients are served one like the other."""

    limits: SessionLimits = LIMITS
    device: DeviceInfo = DEVICE
    hello: Hello | None = None
    tasks: list[Task] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    """The number of tasks in each frame."""
    stored: dict[TensorId, bytes] = field(default_factory=dict)
    uploads: dict[RequestId, bytes] = field(default_factory=dict)
    announced: list[AnnounceUpload] = field(default_factory=list)
    judge: Callable[[AnnounceUpload], list[UploadFound]] = lambda message: [
        UploadFound(message.request, False)
    ]
    """What an announcement is answered with."""
    answers_heartbeats: bool = True
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared, it takes nothing in."""
    reads_bulk: asyncio.Event = field(default_factory=asyncio.Event)
    closed_by_client: asyncio.Event = field(default_factory=asyncio.Event)
    connection: Connection | None = None
    """Of the client heard from last, as the two below."""
    control: Stream | None = None
    wire: ServerSession | None = None
    answer: Callable[[Task], Reply | None] | None = None

    def __post_init__(self) -> None:
        self.reads.set()
        self.reads_bulk.set()

    def send(self, message: Heartbeat | HeartbeatReply | UploadFound | Close) -> None:
        assert self.wire is not None and self.control is not None
        self.control.writer.write_nowait(self.wire.send(message))

    def reply(self, *replies: Reply) -> None:
        assert self.wire is not None and self.control is not None
        frame = self.wire.send_replies([encode_reply(reply) for reply in replies])
        self.control.writer.write_nowait(frame)

    async def handle(self, connection: Connection) -> None:
        control = await connection.accept_control()
        wire = ServerSession()
        bulk = asyncio.create_task(self._take_bulk(connection))
        try:
            while True:
                await self.reads.wait()
                data = await control.reader.read(1 << 16)
                self.connection, self.control, self.wire = connection, control, wire
                for message in wire.receive_data(data):
                    self._take(message)
                    if isinstance(message, Close):
                        return
                if wire.acknowledgement_due:
                    control.writer.write_nowait(wire.acknowledge())
                if not data:
                    return
        finally:
            bulk.cancel()

    def _take(self, message: Message) -> None:
        assert self.wire is not None and self.control is not None
        match message:
            case Hello():
                self.hello = message
                session = None if message.device is None else SessionId(bytes(16))
                welcome = Welcome(
                    self.wire.version, session, (self.device,), self.limits, "scripted"
                )
                self.control.writer.write_nowait(self.wire.send(welcome))
            case TaskFrame():
                self.frames.append(message.count)
                for task in decode_tasks(message.tasks, message.count, DEFAULT_LIMITS):
                    self.tasks.append(task)
                    reply = (self.answer or self.usual_answer)(task)
                    if reply is not None:
                        self.reply(reply)
            case AnnounceUpload():
                self.announced.append(message)
                for found in self.judge(message):
                    self.send(found)
            case Heartbeat():
                if self.answers_heartbeats:
                    self.send(HeartbeatReply(message.number))
            case Close():
                self.closed_by_client.set()
            case _:
                pass

    def usual_answer(self, task: Task) -> Reply | None:
        match task:
            case RegisterTensor(data=data) if data is not None:
                self.stored[task.tensor] = bytes(data)
            case ReadTensor():
                types = {
                    made.tensor: made.type
                    for made in self.tasks
                    if isinstance(made, RegisterTensor)
                }
                return TensorData(task.request, types[task.tensor], self.stored[task.tensor])
            case SyncStream():
                return Done(task.request)
            case _:
                pass
        return None

    async def _take_bulk(self, connection: Connection) -> None:
        while True:
            stream = await connection.accept_bulk()
            await self.reads_bulk.wait()
            header = decode_bulk_header(await stream.readexactly(BULK_HEADER_BYTES), DEFAULT_LIMITS)
            target = bytearray(header.length)
            await BulkReader(stream, header).read_into(memoryview(target))
            self.uploads[header.request] = bytes(target)


@dataclass
class Running:
    """A scripted server on a thread of its own."""

    server: ScriptedServer
    loop: LoopThread
    ticket: str


@contextmanager
def running(server: ScriptedServer | None = None) -> Iterator[Running]:
    loop = LoopThread("scripted server")

    async def start() -> tuple[ScriptedServer, Listener, Ticket]:
        made = server or ScriptedServer()
        identity = Identity.create()
        listener = await listen("127.0.0.1", 0, identity, made.handle)
        return made, listener, Ticket("127.0.0.1", listener.port, identity.fingerprint, "token")

    made, listener, ticket = loop.run(start())
    try:
        yield Running(made, loop, ticket.format())
    finally:
        loop.run(listener.close())
        loop.stop()
