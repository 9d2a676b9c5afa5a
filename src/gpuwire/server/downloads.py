"""Downloads through the front: from slots of the device host onto bulk streams to the client."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from gpuwire.bulk import BulkLink, BulkWriter, Mode
from gpuwire.errors import GpuwireError, MalformedMessage, StreamStopped
from gpuwire.host.channel_messages import DownloadCancelled, DownloadChunk, Pull
from gpuwire.host.slots import SLOT_BYTES
from gpuwire.ids import RequestId
from gpuwire.server.device_host import DeviceHost
from gpuwire.transport import Connection
from gpuwire.wire.messages import BulkHeader, Progress

WINDOW_BYTES = 2 * SLOT_BYTES
"""Pulled and not yet taken by the transport: one chunk is sent while the next is fetched."""
KEPT_BYTES = 16 * SLOT_BYTES
"""Above so much that the client's side has not acknowledged no further download begins."""


@dataclass(slots=True, eq=False)
class _Download:
    """One download, from the host's word to the client's acknowledgement. Offsets are bytes of the
    tensor."""

    request: int
    length: int
    item_bytes: int
    """Of an element."""
    kept: deque[bytes] = field(default_factory=deque)
    """What the host gave and the client's side has not acknowledged: the transport holds the same
    bytes, so they cost nothing, and over another link they can be sent again from here."""
    first: int = 0
    """The offset of the first byte kept."""
    given: int = 0
    """How much the host gave."""
    pulled: int = 0
    """How much the host was asked for."""
    more: asyncio.Event = field(default_factory=asyncio.Event)
    is_broken: bool = False
    task: asyncio.Task[None] | None = None

    def piece(self, offset: int) -> bytes | memoryview:
        """What is kept from `offset` on, up to the end of its chunk; nothing if that is all."""
        start = self.first
        for chunk in self.kept:
            if offset < start + len(chunk):
                return chunk if offset == start else memoryview(chunk)[offset - start :]
            start += len(chunk)
        return b""


class Downloads:
    """The downloads of one session, over one link after another.

    The host sends what was pulled and no more, and a chunk's slot goes back as soon as it is here,
    so a client that does not read holds `WINDOW_BYTES` and what its transport keeps, and no slot.
    """

    def __init__(self, host: DeviceHost, session: int, compression: Mode) -> None:
        self._host = host
        self._session = session
        self._connection: Connection | None = None
        self._link = BulkLink(compression, self._bytes_per_second)
        self._downloads: dict[int, _Download] = {}
        self._kept_bytes = 0
        self._room = asyncio.Event()

    def ready(self, request: int, length: int, item_bytes: int) -> None:
        """The host has a tensor's bytes, in elements of `item_bytes`."""
        download = self._downloads[request] = _Download(request, length, item_bytes)
        if self._connection is not None:
            self._start(download, self._connection, 0)

    def chunk(self, message: DownloadChunk) -> None:
        """The host's next bytes of a download."""
        data = self._host.take_chunk(message.slot, message.size)
        download = self._downloads.get(message.request)
        if download is not None:
            download.kept.append(data)
            download.given += len(data)
            self._kept_bytes += len(data)
            download.more.set()

    def broken(self, request: int) -> None:
        """The host has no more bytes of a download."""
        download = self._downloads.get(request)
        if download is None:
            return
        download.is_broken = True
        download.more.set()
        if self._connection is None:
            self._forget(download)

    def link_lost(self) -> None:
        """Nothing is sent until the next link."""
        self._connection = None
        for download in self._downloads.values():
            if download.task is not None:
                download.task.cancel()

    def check(self, progress: Progress) -> None:
        """`MalformedMessage` for a client that wants again what its side has acknowledged."""
        for request, taken in progress:
            download = self._downloads.get(request)
            if download is not None and not download.first <= taken <= download.length:
                raise MalformedMessage(
                    f"{taken} bytes of a download were taken in, {download.first} were "
                    f"acknowledged before, of {download.length}",
                    what="downloads",
                )

    def link_found(self, connection: Connection, progress: Progress) -> None:
        """Goes on over a link, from where the client is: `progress` names the downloads of which it
        has something. Of one that it does not name and had acknowledged it wants no more."""
        self._connection = connection
        self._link.forget_rate()
        known = dict(progress)
        for download in tuple(self._downloads.values()):
            taken = known.get(RequestId(download.request), 0)
            if taken >= download.first and taken < download.length:
                self._start(download, connection, taken)
                continue
            if taken < download.length:
                self._host.send(DownloadCancelled(self._session, download.request))
            self._forget(download)

    def close(self) -> None:
        for download in self._downloads.values():
            if download.task is not None:
                download.task.cancel()

    def _start(self, download: _Download, connection: Connection, offset: int) -> None:
        download.task = asyncio.create_task(self._send(download, connection, offset))

    async def _send(self, download: _Download, connection: Connection, offset: int) -> None:
        try:
            stream = connection.open_bulk()
            header = BulkHeader(RequestId(download.request), download.length, download.item_bytes)
            writer = BulkWriter(stream, header, self._link)
            await writer.begin()
            while self._kept_bytes > KEPT_BYTES and not download.pulled:
                self._room.clear()
                await self._room.wait()
            self._pull(download, WINDOW_BYTES)
            if not await self._send_from(download, writer, offset):
                stream.reset()
                self._forget(download)
                return
            stream.finish()
            await stream.wait_acknowledged()
            self._forget(download)
        except StreamStopped:
            self._host.send(DownloadCancelled(self._session, download.request))
            self._forget(download)
        except GpuwireError:
            # The link is gone: the session's own reader sees to it.
            return

    async def _send_from(self, download: _Download, writer: BulkWriter, offset: int) -> bool:
        """Sends the bytes from `offset` on; False if the host has no more of them."""
        while offset < download.length:
            piece = download.piece(offset)
            if not piece:
                if download.is_broken:
                    return False
                download.more.clear()
                await download.more.wait()
                continue
            await writer.write(memoryview(piece))
            offset += len(piece)
            self._pull(download, offset + WINDOW_BYTES)
            self._let_go(download, offset - writer.unacknowledged_bytes)
        return True

    def _bytes_per_second(self) -> float:
        return 0.0 if self._connection is None else self._connection.bytes_per_second

    def _pull(self, download: _Download, upto: int) -> None:
        """Asks the host for the bytes up to an offset, unless it was asked before."""
        if upto > download.pulled:
            self._host.send(Pull(self._session, download.request, upto - download.pulled))
            download.pulled = upto

    def _let_go(self, download: _Download, acknowledged: int) -> None:
        """Drops the chunks that the client's side has."""
        kept = download.kept
        while kept and download.first + len(kept[0]) <= acknowledged:
            size = len(kept.popleft())
            download.first += size
            self._kept_bytes -= size
        if self._kept_bytes <= KEPT_BYTES:
            self._room.set()

    def _forget(self, download: _Download) -> None:
        del self._downloads[download.request]
        self._let_go(download, download.length)
