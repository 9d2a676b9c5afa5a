"""The receiving half of a session: messages of the control stream, and tensors' bytes.

Everything here runs on the session's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpuwire.bulk import PIECE_BYTES, BulkReader
from gpuwire.client.connecting import Link
from gpuwire.client.heartbeat import Heartbeats
from gpuwire.client.pending import PendingReplies
from gpuwire.client.stats import ServerCounts
from gpuwire.client.writer import Writer
from gpuwire.errors import (
    GpuwireError,
    LinkLost,
    MalformedMessage,
    OutOfMemory,
    ServerStopped,
    SessionError,
    StreamEnded,
    UnexpectedMessage,
)
from gpuwire.ids import GraphId
from gpuwire.transport import ReceiveStream
from gpuwire.wire.codec import decode_replies
from gpuwire.wire.framing import BULK_HEADER_BYTES, decode_bulk_header
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import (
    Acknowledge,
    BulkHeader,
    Close,
    GraphMissing,
    Heartbeat,
    HeartbeatReply,
    Message,
    Reply,
    ReplyFrame,
    UploadFound,
    WorkCounts,
)
from gpuwire.wire.records import from_record

_READ_BYTES = 256 * 1024


class Reader:
    """Takes in what the server sends."""

    def __init__(
        self,
        link: Link,
        pending: PendingReplies,
        writer: Writer,
        heartbeats: Heartbeats,
        graph_missing: Callable[[GraphId], None],
        counts: ServerCounts,
    ) -> None:
        """`graph_missing` is called with a graph that the server asks for; `counts` takes what it
        has counted."""
        self._link = link
        self._pending = pending
        self._writer = writer
        self._heartbeats = heartbeats
        self._graph_missing = graph_missing
        self._counts = counts
        self.bytes_received = 0
        self.compression_saved_bytes = 0

    def link_found(self, link: Link) -> None:
        """The session goes on over another link; what runs on the one before has ended."""
        self._link = link

    async def run(self) -> None:
        """Takes messages in. Ends only by raising: the server's error or `ServerStopped` when it
        closed the session, why the link ended, or a `ProtocolError`."""
        control, wire = self._link.control.reader, self._link.wire
        for message in self._link.first:
            self._take(message)
        while data := await control.read(_READ_BYTES):
            self.bytes_received += len(data)
            self._heartbeats.heard()
            for message in wire.receive_data(data):
                self._take(message)
            if wire.acknowledgement_due:
                self._writer.acknowledge()
            self._writer.room_made()
        raise LinkLost("the server ended the control stream without a word")

    async def run_bulk(self) -> None:
        """Takes bulk streams in, all at once. Ends only by raising, as `run` does, and when the
        link has ended only after what had arrived: the server may know that it did."""
        connection = self._link.connection
        async with asyncio.TaskGroup() as streams:
            try:
                while True:
                    stream = await connection.accept_bulk()
                    streams.create_task(self._take_bulk(stream))
            except GpuwireError as error:
                ended = error
        raise ended

    def _take(self, message: Message) -> None:
        match message:
            case ReplyFrame():
                for reply in decode_replies(message.replies, message.count, DEFAULT_LIMITS):
                    self._take_reply(reply)
            case Heartbeat():
                self._writer.send(HeartbeatReply(message.number))
            case HeartbeatReply():
                self._heartbeats.answered(message.number)
            case UploadFound():
                self._writer.uploads.found(message)
            case Acknowledge():
                pass
            case Close(error=None):
                raise ServerStopped("the server closed the session")
            case Close(error=error):
                assert error is not None
                raise from_record(error)
            case _:
                raise UnexpectedMessage(
                    f"the server sent {type(message).__name__}", kind=type(message).__name__
                )

    def _take_reply(self, reply: Reply) -> None:
        match reply:
            case GraphMissing(graph):
                self._graph_missing(graph)
            case WorkCounts():
                self._counts.take(reply)
            case _:
                self._pending.take(reply)

    async def _take_bulk(self, stream: ReceiveStream) -> None:
        try:
            data = await stream.readexactly(BULK_HEADER_BYTES)
        except StreamEnded as error:
            raise _ended_early(error) from error
        except SessionError:
            return  # The link has ended before anything came, or the device had nothing to send.
        header = decode_bulk_header(data, DEFAULT_LIMITS)
        try:
            target = self._pending.bulk_begins(header)
        except MemoryError:
            stream.stop()
            self._pending.fail(header.request, _no_room(header.length))
            return
        if target is None:
            stream.stop()
            return
        self.bytes_received += len(data)
        reader = BulkReader(stream, header, header.length - len(target))
        try:
            await self._fill(target, reader, header)
        except StreamEnded as error:
            raise _ended_early(error) from error
        except SessionError:
            # The link has ended; or the device could give no more, and a reply says why.
            self._pending.bulk_interrupted(header.request, reader.filled_bytes)
        else:
            self._pending.bulk_ended(header.request)

    async def _fill(self, target: memoryview, reader: BulkReader, header: BulkHeader) -> None:
        for start in range(0, len(target), PIECE_BYTES):
            piece = target[start : start + PIECE_BYTES]
            before = reader.received_bytes
            await reader.read_into(piece)
            received = reader.received_bytes - before
            self.bytes_received += received
            self.compression_saved_bytes += len(piece) - received if header.item_bytes else 0
            self._pending.bulk_moved(header.request, len(piece))
            self._heartbeats.heard()


def _ended_early(error: StreamEnded) -> GpuwireError:
    return MalformedMessage(f"a bulk stream of the server: {error}", what="bulk stream")


def _no_room(size: int) -> GpuwireError:
    return OutOfMemory(
        f"this machine has no memory for {size} bytes from the device: read a part of the array",
        wanted=size,
    )
