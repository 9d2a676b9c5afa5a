"""Uploads through the front: from a client's bulk stream into slots of the device host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
from gpuwire.server.device_host import DeviceHost
from gpuwire.transport import ReceiveStream
from gpuwire.wire.framing import BULK_HEADER_BYTES, decode_bulk_header
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import BulkHeader

BUFFERED_BYTES = 16 * SLOT_BYTES
"""What one session's uploads collect here together, before it goes into slots."""
LEAST_CHUNK_BYTES = 64 * 1024
MOST_EXPECTED = 65_536
"""Uploads whose stream has not come."""


class Uploads:
    """The uploads of one session.

    A chunk is collected from the stream first and put into a slot only when it is whole: a client
    that stalls in the middle holds some memory of its own session here, and never a slot. A stream
    whose task has not come stays unread, so the transport's window bounds it.
    """

    def __init__(
        self,
        host: DeviceHost,
        session: int,
        limits: WireLimits,
        breach: Callable[[GpuwireError], None],
    ) -> None:
        """`breach` ends the session when the client breaks the protocol."""
        self._host = host
        self._session = session
        self._limits = limits
        self._breach = breach
        self._answers: dict[int, int | None] = {}
        """What the host said about requests whose stream has not come; None is refused."""
        self._unanswered: dict[int, asyncio.Future[int | None]] = {}
        self._receiving: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def unmatched(self) -> int:
        """Streams that wait for their task."""
        return len(self._unanswered)

    def accept(self, stream: ReceiveStream) -> None:
        """Takes a stream that the client opened."""
        task = asyncio.create_task(self._receive(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def wanted(self, request: int, length: int) -> None:
        """The host has memory for that upload."""
        self._answer(request, length)

    def refused(self, request: int) -> None:
        """The host does not want that upload, or no more of it."""
        receiving = self._receiving.get(request)
        if receiving is not None:
            receiving.cancel()
        else:
            self._answer(request, None)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

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

    async def _receive(self, stream: ReceiveStream) -> None:
        try:
            await self._receive_upload(stream)
        except ProtocolError as error:
            stream.stop()
            self._breach(error)
        except asyncio.CancelledError:
            # Refused by the host, or the session's end.
            stream.stop()
        except GpuwireError:
            # The link is gone: the session's own reader ends it.
            return

    async def _receive_upload(self, stream: ReceiveStream) -> None:
        try:
            head = await stream.readexactly(BULK_HEADER_BYTES)
        except (StreamEnded, StreamReset):
            # Whose upload it was is unknown, so its tensor would be waited for without end.
            raise MalformedMessage(
                "a bulk stream ended before its header", what="bulk header"
            ) from None
        header = decode_bulk_header(head, self._limits)
        wanted = await self._host_answer(header.request)
        if wanted is None:
            stream.stop()
            return
        if wanted != header.length:
            raise MalformedMessage(
                f"a bulk stream of {header.length} bytes for an upload of {wanted}",
                what="bulk header",
            )
        task = asyncio.current_task()
        assert task is not None
        self._receiving[header.request] = task
        try:
            await self._pump(stream, header)
        except (StreamEnded, StreamReset):
            self._host.send(UploadBroken(self._session, header.request))
        finally:
            del self._receiving[header.request]

    async def _host_answer(self, request: int) -> int | None:
        """The length that the host wants; None if it does not want the upload."""
        if request in self._answers:
            return self._answers.pop(request)
        if request in self._unanswered or request in self._receiving:
            raise MalformedMessage(f"two bulk streams for request {request}", what="bulk header")
        waiting: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._unanswered[request] = waiting
        return await waiting

    async def _pump(self, stream: ReceiveStream, header: BulkHeader) -> None:
        offset = 0
        while offset < header.length:
            fair = BUFFERED_BYTES // len(self._receiving) // 4 * 4
            size = min(max(LEAST_CHUNK_BYTES, fair), SLOT_BYTES, header.length - offset)
            chunk = memoryview(bytearray(size))
            await stream.read_into(chunk)
            await self._host.send_chunk(self._session, header.request, offset, chunk)
            offset += size
        if await stream.read(1):
            raise MalformedMessage(
                f"a bulk stream goes on after its {header.length} bytes", what="bulk stream"
            )
