"""Uploads through the front: from a client's bulk stream into slots of the device host."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from gpuwire.bulk import BulkReader
from gpuwire.errors import (
    GpuwireError,
    LimitBreached,
    MalformedMessage,
    ProtocolError,
    StreamEnded,
    StreamReset,
)
from gpuwire.host.channel_messages import UploadBroken
from gpuwire.host.slots import SLOT_BYTES
from gpuwire.ids import RequestId
from gpuwire.server.announcements import Announcements
from gpuwire.server.device_host import DeviceHost
from gpuwire.server.upload_cache import OwnUploads, Receiving
from gpuwire.transport import Connection, ReceiveStream
from gpuwire.wire.framing import BULK_HEADER_BYTES, decode_bulk_header
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import AnnounceUpload, BulkHeader, Progress, UploadFound

BUFFERED_BYTES = 16 * SLOT_BYTES
"""What one session's uploads collect here together, before it goes into slots."""
LEAST_CHUNK_BYTES = 64 * 1024
MOST_EXPECTED = 65_536
"""Uploads whose stream has not come."""
ENDED_KEPT = 1024
"""Uploads that ended last. The client sends one again whose end it had not heard of when the link
was lost; it can have no more than 128 such, the bulk streams that it may have open."""


@dataclass(slots=True, eq=False)
class _Receiving:
    """A bulk stream of the client's, from its arrival to its end."""

    stream: ReceiveStream
    connection: Connection
    task: asyncio.Task[None] | None = None
    request: int = 0
    """0 until its header has come."""
    length: int = 0
    """0 until the host has said that it wants it."""
    taken: int = 0
    """Bytes that the host has been given, those of earlier links included."""


class Uploads:
    """The uploads of one session, over one link after another.

    A chunk is collected from the stream first and put into a slot only when it is whole: a client
    that stalls in the middle holds some memory of its own session here, and never a slot. A stream
    whose task has not come stays unread, so the transport's window bounds it.

    When a link is lost, streams that have arrived whole are taken in to their end: the client may
    know that they arrived. Of the others the client is told how far they were taken, and sends the
    rest on a new stream.

    An upload that was announced by its hash comes out of the cache, if it is there
    (`announcements`); else the cache takes note of it as it comes.
    """

    def __init__(
        self,
        host: DeviceHost,
        session: int,
        limits: WireLimits,
        breach: Callable[[GpuwireError], None],
        kept: OwnUploads,
        tell: Callable[[UploadFound], None],
    ) -> None:
        """`breach` ends the session when the client breaks the protocol; `kept` is what its owner
        has in the cache; `tell` sends the client an answer, if there is a link."""
        self._host = host
        self._session = session
        self._limits = limits
        self._breach = breach
        self._answers: dict[int, int | None] = {}
        """What the host said about requests whose stream has not come; None is refused."""
        self._unanswered: dict[int, asyncio.Future[int | None]] = {}
        self._receiving: dict[int, _Receiving] = {}
        """By request, from the header on."""
        self._streams: set[_Receiving] = set()
        self._pumped = 0
        """How many of them the host wants and gets."""
        self._taken: dict[int, int] = {}
        """How much was taken of uploads that lost their link in the middle."""
        self._keeping: dict[int, Receiving] = {}
        """What the cache takes note of, over one link after another."""
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._announcements = Announcements(self, host, session, kept, breach, tell)

    @property
    def unmatched(self) -> int:
        """Streams that wait for their task."""
        return len(self._unanswered)

    def progress(self) -> Progress:
        """How much was taken of uploads that go on over the next link; of others than these, the
        whole is expected there."""
        begun = list(self._taken.items())[: self._limits.max_resumed_transfers]
        self._taken = dict(begun)
        return tuple((RequestId(request), taken) for request, taken in begun)

    async def accept_from(self, connection: Connection) -> None:
        """Takes the streams that the client opens, until the connection has ended."""
        try:
            while True:
                self._accept(await connection.accept_bulk(), connection)
        except GpuwireError:
            # The link is gone: the session's reader sees to it.
            return

    def announced(self, message: AnnounceUpload) -> None:
        """The client asks whether it must send an upload."""
        if message.request in self._ended:
            self._announcements.answer(message.request, found=True)
        else:
            is_coming = message.request in self._receiving
            self._announcements.announced(message, is_coming=is_coming)

    def wanted(self, request: int, length: int) -> None:
        """The host has memory for that upload."""
        self._ended.pop(request, None)
        self._answer(request, length)

    def refused(self, request: int) -> None:
        """The host does not want that upload, or no more of it."""
        receiving = self._receiving.get(request)
        if receiving is not None and receiving.length:
            assert receiving.task is not None
            receiving.task.cancel()
            self._forget(receiving)
            self.note_end(request)
        elif self._announcements.refused(request):
            self.note_end(request)
        else:
            self._taken.pop(request, None)
            self._answers.pop(request, None)
            self._answer(request, None)

    def link_lost(self, connection: Connection) -> None:
        """The connection has ended: nothing more comes of streams that are not whole."""
        for receiving in tuple(self._streams):
            if receiving.connection is connection and not receiving.stream.is_whole:
                assert receiving.task is not None
                receiving.task.cancel()
                self._interrupt(receiving)

    def close(self) -> None:
        for receiving in self._streams:
            if receiving.task is not None:
                receiving.task.cancel()
        self._announcements.close()
        for request in tuple(self._keeping):
            self._stop_keeping(request)

    # --- The host's word -----------------------------------------------------------------------

    def _answer(self, request: int, answer: int | None) -> None:
        waiting = self._unanswered.pop(request, None)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(answer)
            return
        if len(self._answers) >= MOST_EXPECTED:
            self._breach(
                LimitBreached(
                    f"{MOST_EXPECTED} uploads were announced and their streams never came",
                    what="uploads without a stream",
                    value=len(self._answers) + 1,
                    limit=MOST_EXPECTED,
                )
            )
        self._answers[request] = answer

    async def host_answer(self, request: int) -> int | None:
        """The length that the host wants; None if it does not want the upload. For whoever has the
        request's bytes; `give_back` if it has not after all."""
        if request in self._answers:
            return self._answers.pop(request)
        waiting: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._unanswered[request] = waiting
        return await waiting

    def give_back(self, request: int, answer: int) -> None:
        """The host's answer is for another source of the bytes."""
        self._answer(request, answer)

    def note_end(self, request: int) -> None:
        """The host has the upload whole, or wants no more of it."""
        self._announcements.forget(request)
        self._stop_keeping(request)
        self._ended[request] = None
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

    # --- Streams -------------------------------------------------------------------------------

    def _accept(self, stream: ReceiveStream, connection: Connection) -> None:
        if connection.close_cause is not None and not stream.is_whole:
            return
        receiving = _Receiving(stream, connection)
        self._streams.add(receiving)
        receiving.task = asyncio.create_task(self._receive(receiving))

    async def _receive(self, receiving: _Receiving) -> None:
        stream = receiving.stream
        try:
            await self._receive_upload(receiving)
        except ProtocolError as error:
            stream.stop()
            self._breach(error)
        except asyncio.CancelledError:
            # Refused by the host, the end of the link, or of the session.
            stream.stop()
        except GpuwireError:
            self._interrupt(receiving)
        finally:
            self._forget(receiving)

    async def _receive_upload(self, receiving: _Receiving) -> None:
        stream = receiving.stream
        try:
            head = await stream.readexactly(BULK_HEADER_BYTES)
        except (StreamEnded, StreamReset):
            # Whose upload it was is unknown, so its tensor would be waited for without end.
            raise MalformedMessage(
                "a bulk stream ended before its header", what="bulk header"
            ) from None
        header = decode_bulk_header(head, self._limits)
        if not self._claims(header.request, receiving):
            stream.stop()
            return
        wanted = await self.host_answer(header.request)
        if wanted is None:
            self.note_end(header.request)
            stream.stop()
            return
        if wanted != header.length:
            raise MalformedMessage(
                f"a bulk stream of {header.length} bytes for an upload of {wanted}",
                what="bulk header",
            )
        receiving.length = wanted
        receiving.taken = self._taken.pop(header.request, 0)
        self._pumped += 1
        try:
            await self._pump(receiving, header)
        except (StreamEnded, StreamReset):
            self._host.send(UploadBroken(self._session, header.request))
        finally:
            self._pumped -= 1
        self.note_end(header.request)

    def _claims(self, request: int, receiving: _Receiving) -> bool:
        """Whether the stream is the one for that request; False where it was taken in already, or
        is being taken in from a stream that arrived whole over an earlier link."""
        if request in self._ended:
            return False
        self._announcements.check_answered(request)
        other = self._receiving.get(request)
        if other is not None:
            if other.connection is receiving.connection:
                raise MalformedMessage(
                    f"two bulk streams for request {request}", what="bulk header"
                )
            return False
        receiving.request = request
        self._receiving[request] = receiving
        return True

    async def _pump(self, receiving: _Receiving, header: BulkHeader) -> None:
        reader = BulkReader(receiving.stream, header, receiving.taken)
        if not receiving.taken:
            self._start_keeping(header)
        while receiving.taken < header.length:
            fair = BUFFERED_BYTES // self._pumped // 4 * 4
            size = min(max(LEAST_CHUNK_BYTES, fair), SLOT_BYTES, header.length - receiving.taken)
            chunk = memoryview(bytearray(size))
            await reader.read_into(chunk)
            await self._host.send_chunk(self._session, header.request, receiving.taken, chunk)
            receiving.taken += size
            await self._keep(header.request, receiving.taken, chunk)
        await reader.expect_end()
        keeping = self._keeping.pop(header.request, None)
        if keeping is not None:
            keeping.finish()

    def _interrupt(self, receiving: _Receiving) -> None:
        """Lets go of a stream that lost its link, and keeps how far it was."""
        request = receiving.request
        if self._receiving.get(request) is receiving:
            self._unanswered.pop(request, None)
            if receiving.length:
                self._answers[request] = receiving.length
                self._taken[request] = receiving.taken
        self._forget(receiving)

    def _forget(self, receiving: _Receiving) -> None:
        self._streams.discard(receiving)
        if self._receiving.get(receiving.request) is receiving:
            del self._receiving[receiving.request]

    # --- For the cache -------------------------------------------------------------------------

    def _start_keeping(self, header: BulkHeader) -> None:
        self._stop_keeping(header.request)
        keeping = self._announcements.receive(header.request, header.length)
        if keeping is not None:
            self._keeping[header.request] = keeping

    async def _keep(self, request: int, taken: int, chunk: memoryview) -> None:
        keeping = self._keeping.get(request)
        if keeping is None:
            return
        if keeping.received_bytes + len(chunk) == taken:
            await keeping.add(chunk)
        else:
            # A lost link came between a chunk and its note.
            self._stop_keeping(request)

    def _stop_keeping(self, request: int) -> None:
        keeping = self._keeping.pop(request, None)
        if keeping is not None:
            keeping.give_up()
