"""The long tensors of one session on their way to the server. Runs on the session's event loop.

The life of one upload, all of which is here:

    started ── long enough, and `upload_cache` on ──▶ hashed ──▶ announced
       │                                                          │     │
       │                                                   not there   found
       ▼                                                          ▼     │
    sent on a bulk stream, compressed where that pays ◀───────────┘     │
       │                                                                ▼
       └── acknowledged, or not wanted ───────────────────────────▶ completed

Each upload goes its way by itself, so any number of announcements share one round trip. A lost link
leaves uploads where they are: they begin again on the next one (`resume`), or fail with the session
(`fail`). The bytes leave the caller's own memory; only what is compressed is copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from blake3 import blake3

from gpuwire.bulk import PIECE_BYTES, BulkLink, BulkWriter
from gpuwire.client.batch import Upload
from gpuwire.client.pending import fresh
from gpuwire.config import RemoteConfig
from gpuwire.errors import GpuwireError, StreamStopped, UnexpectedMessage
from gpuwire.ids import RequestId
from gpuwire.telemetry.logs import Logger
from gpuwire.transport import Connection
from gpuwire.wire.messages import AnnounceUpload, BulkHeader, UploadFound

ANNOUNCED_BYTES = 1024 * 1024
"""A shorter tensor is sent in less time than it takes to ask."""


@dataclass(slots=True)
class UploadCounts:
    """What announcing uploads has brought."""

    hits: int = 0
    misses: int = 0
    bytes_not_sent: int = 0


@dataclass(slots=True, eq=False)
class _UnderWay:
    """One upload that has not ended."""

    upload: Upload
    ended: asyncio.Future[None]
    attempt: asyncio.Task[None] | None = None
    digest: bytes | None = None
    answer: asyncio.Future[bool] | None = None
    """Of the announcement; whether the server has it."""


class Uploads:
    """Sends tensors on bulk streams, unless the server has them."""

    def __init__(
        self,
        connection: Connection,
        send: Callable[[AnnounceUpload], None],
        config: RemoteConfig,
        logger: Logger,
        on_progress: Callable[[], None],
    ) -> None:
        """`send` puts a message on the control stream. `on_progress` is called whenever less is
        held here."""
        self._connection = connection
        self._send_message = send
        self._announces = config.upload_cache
        self._logger = logger
        self._on_progress = on_progress
        self._link = BulkLink(config.compression, lambda: self._connection.bytes_per_second)
        self._under_way: dict[RequestId, _UnderWay] = {}
        self._snapshot_bytes = 0
        self.counts = UploadCounts()

    @property
    def held_bytes(self) -> int:
        """Snapshots of tensors that are on their way."""
        return self._snapshot_bytes

    @property
    def sent_bytes(self) -> int:
        """Bytes written to bulk streams."""
        return self._link.sent_bytes

    @property
    def compression_saved_bytes(self) -> int:
        """Tensor bytes that were sent, less what was written for them."""
        return self._link.saved_bytes

    def start(self, upload: Upload) -> None:
        """Begins an upload, whose task goes out now."""
        if self._logger.wants_full:
            self._logger.full(f"upload {upload.request}: {len(upload.data)} bytes")
        if upload.is_snapshot:
            self._snapshot_bytes += len(upload.data)
        under_way = _UnderWay(upload, asyncio.get_running_loop().create_future())
        self._under_way[upload.request] = under_way
        self._begin(under_way, 0)

    def found(self, message: UploadFound) -> None:
        """The server's answer to an announcement. `UnexpectedMessage` where there was none."""
        under_way = self._under_way.get(message.request)
        answer = None if under_way is None else under_way.answer
        if answer is None:
            raise UnexpectedMessage(
                f"the server answered for upload {message.request}, which was not announced",
                kind="UploadFound",
            )
        if not answer.done():
            answer.set_result(message.found)

    async def wait_ended(self) -> None:
        """Returns when all that are under way have ended."""
        if self._under_way:
            await asyncio.wait([under_way.ended for under_way in self._under_way.values()])

    def suspend(self) -> None:
        """The link is lost: nothing is sent until `resume`."""
        for under_way in self._under_way.values():
            if under_way.attempt is not None:
                under_way.attempt.cancel()

    def resume(self, connection: Connection, taken: Mapping[RequestId, int]) -> None:
        """Goes on over another link. `taken` says how many bytes of an upload the server has; of
        one that it does not name, none."""
        self.suspend()
        self._connection = connection
        self._link.forget_rate()
        for under_way in self._under_way.values():
            self._begin(under_way, taken.get(under_way.upload.request, 0))

    def fail(self, cause: GpuwireError) -> None:
        """Ends all uploads; who waits for one gets a copy of `cause`."""
        self.suspend()
        for under_way in tuple(self._under_way.values()):
            refuse(under_way.upload, cause)
            self._end(under_way)

    # --- One upload ---

    def _begin(self, under_way: _UnderWay, taken: int) -> None:
        under_way.answer = None
        attempt = self._attempt(under_way, taken)
        under_way.attempt = asyncio.get_running_loop().create_task(attempt)

    async def _attempt(self, under_way: _UnderWay, taken: int) -> None:
        """The way of an upload over one link, of which the server has `taken` bytes from before."""
        upload = under_way.upload
        try:
            if not taken and await self._is_there(under_way):
                self.counts.bytes_not_sent += len(upload.data)
                if upload.transfer is not None:
                    upload.transfer.moved(len(upload.data))
            else:
                await self._send(upload, taken)
        except StreamStopped:
            pass  # The server has it whole; or it has failed its tensor, and says why.
        except GpuwireError:
            return  # The link is gone: `resume` or `fail` follows.
        if upload.completion is not None and not upload.completion.done():
            upload.completion.set_result(None)
        self._end(under_way)

    async def _is_there(self, under_way: _UnderWay) -> bool:
        """Asks the server whether it has the bytes. Hashing takes all processors for 0.1 to 0.3 s a
        GB, beside the event loop and from where the bytes lie."""
        data = under_way.upload.data
        if not self._announces or len(data) < ANNOUNCED_BYTES:
            return False
        if under_way.digest is None:
            under_way.digest = await asyncio.to_thread(_digest, data)
        under_way.answer = asyncio.get_running_loop().create_future()
        request = under_way.upload.request
        self._send_message(AnnounceUpload(request, len(data), under_way.digest))
        found = await under_way.answer
        if found:
            self.counts.hits += 1
        else:
            self.counts.misses += 1
        if self._logger.wants_full:
            what = "the server has it" if found else "the server does not have it"
            self._logger.full(f"upload {request}: {what}")
        return found

    async def _send(self, upload: Upload, taken: int) -> None:
        """Sends the bytes from `taken` on and waits until the server's transport has them: until
        then their memory may be read again."""
        stream = self._connection.open_bulk()
        data = upload.data
        header = BulkHeader(upload.request, len(data), upload.item_bytes)
        writer = BulkWriter(stream, header, self._link)
        await writer.begin()
        transfer = upload.transfer
        if transfer is not None:
            transfer.begins(lambda: writer.unacknowledged_bytes, taken)
        for start in range(taken, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            await writer.write(piece, data)
            if transfer is not None:
                transfer.moved(len(piece))
        stream.finish()
        await stream.wait_acknowledged()

    def _end(self, under_way: _UnderWay) -> None:
        upload = under_way.upload
        del self._under_way[upload.request]
        under_way.ended.set_result(None)
        if upload.is_snapshot:
            self._snapshot_bytes -= len(upload.data)
            self._on_progress()


def refuse(upload: Upload, cause: GpuwireError) -> None:
    """Tells who waits for an upload that it will not be sent."""
    if upload.completion is not None and not upload.completion.done():
        upload.completion.set_exception(fresh(cause))


def _digest(data: memoryview) -> bytes:
    return blake3(data, max_threads=blake3.AUTO).digest()
