"""Reads: small tensors inside their reply, large ones as downloads.

What a client has asked for and not taken is bounded: inline reads wait while many bytes of earlier
replies have not left the front, and downloads run a few at a time. Each kind waits in a row of its
own, so that a download never holds back a small reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial

from gpuwire.compute.completion import Completion
from gpuwire.errors import GpuwireError
from gpuwire.host.device import Device
from gpuwire.host.downloads import Download, Outlets, Read
from gpuwire.host.tensors import MemoryAccount
from gpuwire.ids import RequestId
from gpuwire.lowering import Value
from gpuwire.wire.messages import INLINE_BYTES, Failed, TensorData
from gpuwire.wire.records import to_record

REPLY_BUDGET_BYTES = 4 * 1024 * 1024
"""Replies under way to one client, above which no further inline read begins."""
DOWNLOADS_AT_ONCE = 4


@dataclass(slots=True)
class ReplyWindow:
    """A session's replies that have not left the front, in bytes."""

    reading: int = 0
    """Wanted of the device for replies to come."""
    unwritten: int = 0
    """On their way to the front, or there."""

    @property
    def is_open(self) -> bool:
        return self.reading + self.unwritten < REPLY_BUDGET_BYTES


class Reads:
    """The reads of one session."""

    def __init__(
        self, session: int, device: Device, account: MemoryAccount, outlets: Outlets
    ) -> None:
        self._session = session
        self._device = device
        self._account = account
        self._outlets = outlets
        self._window = ReplyWindow()
        self._inline: deque[Read] = deque()
        self._large: deque[Read] = deque()
        self._downloads: dict[RequestId, tuple[Download, asyncio.Task[None]]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Reads that have not begun."""
        return len(self._inline) + len(self._large)

    def read(self, request: RequestId, value: Value, stream: int) -> None:
        """Answers with the value's bytes, now or when those before are on their way."""
        read = Read(request, value, stream)
        size = value.type.nbytes
        if not size:
            self._outlets.reply(TensorData(request, value.type, b""))
        elif size <= INLINE_BYTES:
            self._inline.append(read)
            self._begin_inline()
        else:
            self._large.append(read)
            self._begin_downloads()

    def replied(self, size: int) -> None:
        """A reply of so many bytes, of whatever kind, is on its way to the front."""
        self._window.unwritten += size

    def replies_written(self, size: int) -> None:
        """So many bytes of replies have left the front."""
        self._window.unwritten -= size
        self._begin_inline()
        self._outlets.wake()

    def pull(self, request: RequestId, size: int) -> None:
        """The front takes so many further bytes of a download."""
        if request in self._downloads:
            self._downloads[request][0].pull(size)

    def cancel(self, request: RequestId) -> None:
        """The client wants no more of a download."""
        if request in self._downloads:
            self._downloads[request][1].cancel()

    def close(self) -> None:
        self._closed = True
        self._inline.clear()
        self._large.clear()
        for task in self._running:
            task.cancel()

    def _begin_inline(self) -> None:
        while self._inline and self._window.is_open:
            read = self._inline.popleft()
            self._window.reading += read.value.type.nbytes
            try:
                bytes_read = self._device.read(read.value, read.stream)
            except GpuwireError as error:
                bytes_read = Completion.failed(error)
            self._answer_later(read, bytes_read)

    def _answer_later(self, read: Read, bytes_read: Completion[list[memoryview]]) -> None:
        """A callback, no coroutine: a task costs a small reply two more turns of the loop."""
        answer = partial(self._answer, read, bytes_read)
        bytes_read.when_done(partial(_call_on, asyncio.get_running_loop(), answer))

    def _answer(self, read: Read, bytes_read: Completion[list[memoryview]]) -> None:
        self._window.reading -= read.value.type.nbytes
        if self._closed:
            return
        try:
            (data,) = bytes_read.result()
        except GpuwireError as error:
            self._device.note(error)
            self._outlets.reply(Failed(read.request, to_record(error), 0))
        else:
            self._outlets.reply(TensorData(read.request, read.value.type, data))

    def _begin_downloads(self) -> None:
        while self._large and len(self._downloads) < DOWNLOADS_AT_ONCE:
            read = self._large.popleft()
            download = Download(self._session, read, self._device, self._account, self._outlets)
            task = self._run(download.run())
            self._downloads[read.request] = (download, task)
            task.add_done_callback(partial(self._download_ended, read.request))

    def _download_ended(self, request: RequestId, task: asyncio.Task[None]) -> None:
        del self._downloads[request]
        self._begin_downloads()
        self._outlets.wake()

    def _run(self, coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(coroutine)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


def _call_on(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Has the loop call it, from any thread."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        # The loop was closed while the device worked: nobody is left to be told.
        return
