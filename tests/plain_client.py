"""A client of transport and wire alone: tasks in, replies out, for tests of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpuwire.bulk import BulkReader
from gpuwire.errors import GpuwireError
from gpuwire.ids import RequestId
from gpuwire.transport import Connection, PinnedKey, SendStream, Stream, Ticket, connect
from gpuwire.wire.codec import decode_replies, encode_task
from gpuwire.wire.framing import (
    BULK_HEADER_BYTES,
    decode_bulk_header,
    encode_bulk_header,
)
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import (
    AnnounceUpload,
    BulkHeader,
    Close,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    Reply,
    ReplyFrame,
    Task,
    UploadFound,
    Welcome,
    WorkCounts,
)
from gpuwire.wire.records import from_record
from gpuwire.wire.session import ClientSession

CHUNK_BYTES = 256 * 1024


class PlainClient:
    """One connection. Everything a test may want to break is within reach."""

    def __init__(self, connection: Connection, control: Stream) -> None:
        self.connection = connection
        self.control = control
        self.wire = ClientSession()
        self.welcome: Welcome | None = None
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        """Why the server closed the session, or the link's end."""
        self.heartbeats = 0
        self.answers_heartbeats = True
        self._welcomed = asyncio.Event()
        self._replies: dict[int, asyncio.Future[Reply]] = {}
        self._downloads: dict[int, asyncio.Future[bytes]] = {}
        self._found: dict[int, asyncio.Future[bool]] = {}
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._accept())]

    async def hello(self, hello: Hello) -> Welcome:
        """Says Hello; raises the error of a refusal."""
        self.control.writer.write_nowait(self.wire.send(hello))
        welcomed = asyncio.create_task(self._welcomed.wait())
        await asyncio.wait((welcomed, self.ended), return_when=asyncio.FIRST_COMPLETED)
        welcomed.cancel()
        if self.welcome is None:
            error = self.ended.result()
            assert error is not None
            raise error
        return self.welcome

    def send(self, *tasks: Task) -> None:
        """Sends tasks in one frame."""
        self.control.writer.write_nowait(self.wire.send_tasks([encode_task(t) for t in tasks]))

    async def reply(self, request: int) -> Reply:
        """The reply to a request, sent or yet to be sent. Raises what ended the session."""
        return await self._first(self._replies.setdefault(request, self._future()))

    async def download(self, request: int) -> bytes:
        """The bytes of the bulk stream for a request."""
        return await self._first(self._downloads.setdefault(request, self._future()))

    def begin_upload(self, request: int, length: int) -> SendStream:
        """Opens a bulk stream and writes its header."""
        stream = self.connection.open_bulk()
        stream.write_nowait(encode_bulk_header(BulkHeader(RequestId(request), length)))
        return stream

    async def upload(self, request: int, data: bytes) -> None:
        """Sends a whole upload."""
        stream = self.begin_upload(request, len(data))
        await stream.write(data)
        stream.finish()

    async def announce(self, request: int, length: int, digest: bytes) -> bool:
        """Announces an upload; whether the server has it. Raises what ended the session."""
        self._found[request] = self._future()
        message = AnnounceUpload(RequestId(request), length, digest)
        self.control.writer.write_nowait(self.wire.send(message))
        return await self._first(self._found[request])

    async def close(self) -> None:
        """Leaves in good order."""
        last = self.wire.close()
        if last and not self.ended.done():
            self.control.writer.write_nowait(last)
            await self.ended
        self.vanish()

    def vanish(self) -> None:
        """Ends the connection without a word of the session."""
        for task in self._tasks:
            task.cancel()
        self.connection.close()

    def stop_reading(self) -> None:
        """Reads nothing from now on, neither replies nor downloads."""
        for task in self._tasks:
            task.cancel()

    def start_reading(self) -> None:
        """Reads again."""
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._accept())]

    def _future(self) -> asyncio.Future:  # type: ignore[type-arg]
        return asyncio.get_running_loop().create_future()

    async def _first(self, wanted: asyncio.Future):  # type: ignore[no-untyped-def, type-arg]
        await asyncio.wait((wanted, self.ended), return_when=asyncio.FIRST_COMPLETED)
        if not wanted.done():
            raise self.ended.result() or EOFError("the session is closed")
        return wanted.result()

    async def _read(self) -> None:
        try:
            while data := await self.control.reader.read(CHUNK_BYTES):
                for message in self.wire.receive_data(data):
                    self._handle(message)
                if self.wire.acknowledgement_due:
                    self.control.writer.write_nowait(self.wire.acknowledge())
            self._end(None)
        except (GpuwireError, asyncio.InvalidStateError) as error:
            self._end(error)

    def _handle(self, message: Message) -> None:
        match message:
            case Welcome():
                self.welcome = message
                self._welcomed.set()
            case ReplyFrame(count=count, replies=body):
                for reply in decode_replies(bytes(body), count, WireLimits()):
                    if isinstance(reply, WorkCounts):
                        continue
                    self._replies.setdefault(reply.request, self._future()).set_result(reply)
            case UploadFound(request, found):
                self._found[request].set_result(found)
            case Heartbeat(number):
                self.heartbeats += 1
                if self.answers_heartbeats:
                    self.control.writer.write_nowait(self.wire.send(HeartbeatReply(number)))
            case Close(error):
                self._end(None if error is None else from_record(error))

    def _end(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    async def _accept(self) -> None:
        receiving = set()
        try:
            while True:
                stream = await self.connection.accept_bulk()
                receiving.add(asyncio.create_task(self._receive(stream)))
        except GpuwireError:
            return

    async def _receive(self, stream) -> None:  # type: ignore[no-untyped-def]
        head = await stream.readexactly(BULK_HEADER_BYTES)
        header = decode_bulk_header(head, WireLimits())
        future = self._downloads.setdefault(header.request, self._future())
        try:
            target = bytearray(header.length)
            await BulkReader(stream, header).read_into(memoryview(target))
            future.set_result(bytes(target))
        except GpuwireError as error:
            future.set_exception(error)


async def connect_plainly(
    ticket: str,
    *,
    device: int | None = 0,
    token: str | None = None,
    versions: tuple[int, ...] = (1,),
) -> PlainClient:
    """A client that was welcomed."""
    client = await reach(ticket)
    parsed = Ticket.parse(ticket)
    hello = Hello(versions, parsed.token if token is None else token, device, "plain client")
    try:
        await client.hello(hello)
    except BaseException:
        client.vanish()
        raise
    return client


async def reach(ticket: str) -> PlainClient:
    """A client that has said nothing yet."""
    parsed = Ticket.parse(ticket)
    assert parsed.fingerprint is not None
    connection = await connect(parsed.host, parsed.port, PinnedKey(parsed.fingerprint))
    return PlainClient(connection, await connection.open_control())


@asynccontextmanager
async def plain_client(ticket: str, *, device: int | None = 0) -> AsyncIterator[PlainClient]:
    """A client that was welcomed, and leaves at the end."""
    client = await connect_plainly(ticket, device=device)
    try:
        yield client
    finally:
        await client.close()
