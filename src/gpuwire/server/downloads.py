"""Downloads through the front: from slots of the device host onto bulk streams to the client."""

from __future__ import annotations

import asyncio

from gpuwire.errors import GpuwireError, StreamStopped
from gpuwire.host.channel_messages import DownloadCancelled, DownloadChunk, Pull
from gpuwire.host.slots import SLOT_BYTES
from gpuwire.ids import RequestId
from gpuwire.server.device_host import DeviceHost
from gpuwire.transport import Connection
from gpuwire.wire.framing import encode_bulk_header
from gpuwire.wire.messages import BulkHeader

WINDOW_BYTES = 2 * SLOT_BYTES
"""Pulled and not yet taken by the transport: one chunk is sent while the next is fetched."""


class Downloads:
    """The downloads of one session.

    The host sends what was pulled and no more, and a chunk's slot goes back as soon as it is here,
    so a client that does not read holds `WINDOW_BYTES` and what its transport keeps, and no slot.
    """

    def __init__(self, host: DeviceHost, session: int, connection: Connection) -> None:
        self._host = host
        self._session = session
        self._connection = connection
        self._chunks: dict[int, asyncio.Queue[bytes | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ready(self, request: int, length: int) -> None:
        """The host has a tensor's bytes."""
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._chunks[request] = chunks
        task = asyncio.create_task(self._send(request, length, chunks))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def chunk(self, message: DownloadChunk) -> None:
        """The host's next bytes of a download."""
        data = self._host.take_chunk(message.slot, message.size)
        if message.request in self._chunks:
            self._chunks[message.request].put_nowait(data)

    def broken(self, request: int) -> None:
        """The host has no more bytes of a download."""
        if request in self._chunks:
            self._chunks[request].put_nowait(None)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _send(self, request: int, length: int, chunks: asyncio.Queue[bytes | None]) -> None:
        stream = self._connection.open_bulk()
        try:
            stream.write_nowait(encode_bulk_header(BulkHeader(RequestId(request), length)))
            self._host.send(Pull(self._session, request, WINDOW_BYTES))
            left = length
            while left:
                data = await chunks.get()
                if data is None:
                    stream.reset()
                    return
                await stream.write(data)
                left -= len(data)
                self._host.send(Pull(self._session, request, len(data)))
            stream.finish()
        except StreamStopped:
            self._host.send(DownloadCancelled(self._session, request))
        except GpuwireError:
            # The link is gone: the session's own reader ends it.
            return
        finally:
            del self._chunks[request]
