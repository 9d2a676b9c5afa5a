"""Uploads that a client announces by their hash: found in the cache, or to be sent.

What is surely not kept is answered at once. For what may be kept the device host is waited for, as
it would be for the bytes of a stream: so nothing in the cache is held for a client that announces
and never says what for. Then it is looked up, and goes the way of bytes that were sent: chunk by
chunk into the slots. The device host does not know the difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwire.errors import GpuwireError, LimitBreached, MalformedMessage
from gpuwire.host.channel_messages import UploadBroken
from gpuwire.ids import RequestId
from gpuwire.server.device_host import DeviceHost
from gpuwire.server.kept_uploads import KeptUpload
from gpuwire.server.upload_cache import OwnUploads, Receiving, UploadKey
from gpuwire.wire.messages import AnnounceUpload, UploadFound

if TYPE_CHECKING:
    from gpuwire.server.uploads import Uploads

MOST_ANNOUNCED = 65_536
"""Uploads that were announced and have not ended."""


class Announcements:
    """The announcements of one session. They outlive its links, as uploads do: a client that comes
    back announces again what it had no answer to."""

    def __init__(
        self,
        uploads: Uploads,
        host: DeviceHost,
        session: int,
        kept: OwnUploads,
        breach: Callable[[GpuwireError], None],
        tell: Callable[[UploadFound], None],
    ) -> None:
        """`uploads` knows what the host wants; else as `Uploads`."""
        self._uploads = uploads
        self._host = host
        self._session = session
        self._kept = kept
        self._breach = breach
        self._tell = tell
        self._keys: dict[int, UploadKey] = {}
        self._looking: dict[int, asyncio.Task[None]] = {}
        """Requests that may come out of the cache."""
        self._found: set[int] = set()
        """Those of them that do."""
        self._turn = asyncio.Lock()
        """A file is read whole to be looked up: one at a time of a session."""

    def announced(self, message: AnnounceUpload, *, is_coming: bool) -> None:
        """The client asks. `is_coming`: its bytes are arriving already."""
        request = message.request
        if request in self._looking:
            if request in self._found:
                self.answer(request, found=True)
            return
        if len(self._keys) >= MOST_ANNOUNCED:
            self._breach(
                LimitBreached(
                    f"{MOST_ANNOUNCED} uploads were announced and never ended",
                    what="announced uploads",
                    value=len(self._keys) + 1,
                    limit=MOST_ANNOUNCED,
                )
            )
            return
        key = self._keys[request] = self._kept.key(message.length, message.digest)
        if is_coming:
            self.answer(request, found=False)
        elif self._kept.cache.may_have(key):
            self._looking[request] = asyncio.create_task(self._look_up(request, key))
        else:
            self._kept.cache.missed()
            self.answer(request, found=False)

    def answer(self, request: int, *, found: bool) -> None:
        """Tells the client."""
        self._tell(UploadFound(RequestId(request), found))

    def check_answered(self, request: int) -> None:
        """`MalformedMessage` for a stream that comes before the answer to its announcement."""
        if request in self._looking:
            raise MalformedMessage(
                f"a bulk stream for request {request}, whose announcement is not answered",
                what="bulk header",
            )

    def refused(self, request: int) -> bool:
        """The host wants no more of an upload; whether it came out of the cache."""
        if request not in self._found:
            return False
        self._looking[request].cancel()
        return True

    def receive(self, request: int, length: int) -> Receiving | None:
        """Takes note of bytes that come for a request, if they were announced."""
        key = self._keys.get(request)
        if key is None or key.length != length:
            return None
        return self._kept.cache.receive(key)

    def forget(self, request: int) -> None:
        """The request has ended."""
        self._keys.pop(request, None)

    def close(self) -> None:
        for task in self._looking.values():
            task.cancel()

    async def _look_up(self, request: int, key: UploadKey) -> None:
        try:
            await self._take(request, key)
        finally:
            self._looking.pop(request, None)
            self._found.discard(request)

    async def _take(self, request: int, key: UploadKey) -> None:
        wanted = await self._uploads.host_answer(request)
        if wanted is None:
            self._uploads.note_end(request)
            self.answer(request, found=True)
            return
        kept = None
        if wanted == key.length:
            async with self._turn:
                kept = await self._kept.cache.find(key)
        if kept is None:
            # Also where the length is another one: the stream that follows is told so.
            del self._looking[request]
            self._uploads.give_back(request, wanted)
            self.answer(request, found=False)
            return
        self._found.add(request)
        self.answer(request, found=True)
        await self._feed(request, key.length, kept)

    async def _feed(self, request: int, length: int, kept: KeptUpload) -> None:
        """Each chunk is copied once, into its slot."""
        offset = 0
        try:
            async for chunk in kept.chunks():
                await self._host.send_chunk(self._session, request, offset, chunk)
                offset += len(chunk)
        finally:
            kept.release()
        if offset < length:
            self._host.send(UploadBroken(self._session, request))
        self._uploads.note_end(request)
