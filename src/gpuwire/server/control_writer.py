"""Bytes to one client, in order, without ever waiting for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from gpuwire.errors import GpuwireError
from gpuwire.transport import SendStream

DIRECT_BYTES = 1024 * 1024
"""With less than this not yet acknowledged, bytes go straight to the transport: no task switch."""


class ControlWriter:
    """The writing side of a session's control stream.

    What the link does not take yet waits here; `queued` tells how much, so that the session stops
    reading new work from a client that does not read its replies. It belongs to one link: what that
    does not take any more is not lost, since the session keeps frames until they are acknowledged.
    """

    def __init__(self, stream: SendStream, written: Callable[[int], None]) -> None:
        """`written` is called with the `credit` of each piece, once: when the transport took it, or
        when the link is given up."""
        self._stream = stream
        self._written = written
        self._queue: deque[tuple[bytes, int]] = deque()
        self._draining: asyncio.Task[None] | None = None
        self.queued = 0
        """Bytes that wait."""

    def send(self, data: bytes, credit: int = 0) -> None:
        """Sends after everything sent before. Once the link is gone it does nothing."""
        if not data:
            return
        if self._draining is None and self._stream.unacknowledged_bytes < DIRECT_BYTES:
            try:
                self._stream.write_nowait(data)
            except GpuwireError:
                # The reading side learns of the same loss, and the session of it.
                return
            finally:
                self._written(credit)
            return
        self._queue.append((data, credit))
        self.queued += len(data)
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())

    async def finish(self) -> None:
        """Sends what waits, marks the end, and returns when the client's side has it all."""
        try:
            if self._draining is not None:
                await self._draining
            self._stream.finish()
            await self._stream.wait_acknowledged()
        except GpuwireError:
            # The link is gone: there is nobody to tell.
            return

    def abandon(self) -> None:
        """Drops what waits."""
        if self._draining is not None:
            self._draining.cancel()
        self._drop()

    async def _drain(self) -> None:
        try:
            while self._queue:
                data, credit = self._queue[0]
                await self._stream.write(data)
                self._queue.popleft()
                self.queued -= len(data)
                self._written(credit)
        except GpuwireError:
            # As in `send`.
            self._drop()
        finally:
            self._draining = None

    def _drop(self) -> None:
        queue, self._queue = self._queue, deque()
        self.queued = 0
        for _, credit in queue:
            self._written(credit)
