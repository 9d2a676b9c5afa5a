"""The links that a session goes over, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from gpuwire.client.connecting import Admission, Link, Resumption
from gpuwire.client.heartbeat import Heartbeats
from gpuwire.client.pending import PendingReplies
from gpuwire.client.reader import Reader
from gpuwire.client.resuming import find_link
from gpuwire.client.writer import Writer
from gpuwire.config import RemoteConfig
from gpuwire.errors import ConnectionClosed, GpuwireError, LinkLost, SessionError
from gpuwire.telemetry.logs import Logger
from gpuwire.transport import PathInfo
from gpuwire.wire.messages import Resume


@dataclass(frozen=True, slots=True)
class Parts:
    """What works over a link, and goes on over the next."""

    reader: Reader
    writer: Writer
    heartbeats: Heartbeats
    pending: PendingReplies


class Links:
    """Keeps a session on a link: `run` it."""

    def __init__(
        self,
        first: Link,
        admission: Admission,
        config: RemoteConfig,
        logger: Logger,
        parts: Parts,
        reopen: Callable[[Resumption, float], Awaitable[Link]],
        address: str,
    ) -> None:
        """`reopen` tries to get another link for the session, for so many seconds; `address` is the
        server's, for errors."""
        self.present = first
        """While it is lost: the last one."""
        self.is_away = False
        """Whether the link is lost and another is sought."""
        self.resumptions = 0
        self._admission = admission
        self._config = config
        self._logger = logger
        self._parts = parts
        self._reopen = reopen
        self._address = address
        self._name = f"session {admission.session.hex()}"
        grace = admission.limits.resume_grace_seconds
        self._may_seek = admission.key is not None and grace > 0

    @property
    def path(self) -> PathInfo:
        """The way to the server, now; while the link is lost, as it was last."""
        return replace(self.present.connection.path, resumptions=self.resumptions)

    def seek_no_more(self) -> None:
        """The next link that is lost is the last one."""
        self._may_seek = False

    async def run(self) -> GpuwireError:
        """Works over one link after the other. Returns why the session ends: the server's word,
        what broke here, or that the link did not come back. The last link is still there then,
        unless it is what was lost."""
        while True:
            cause = await self._use()
            if not isinstance(cause, LinkLost) or not self._may_seek:
                return cause
            self._lost(cause)
            try:
                link = await self._find(cause)
            except GpuwireError as error:
                return error
            self._found(link)

    async def _use(self) -> GpuwireError:
        """Works over the present link until that is of no more use; returns why."""
        connection, parts = self.present.connection, self._parts
        reading = asyncio.create_task(parts.reader.run())
        filling = asyncio.create_task(parts.reader.run_bulk())
        others = (parts.writer.run(), parts.heartbeats.run(self._tick))
        tasks = [reading, filling, *map(asyncio.create_task, others)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if connection.close_cause is not None:
                # The server's last word may still lie unread, and it says more than the link's end.
                await asyncio.wait([reading])
            cause = self._cause_of(next(task for task in tasks if task.done()))
            if isinstance(cause, LinkLost):
                connection.close(reason=str(cause))
                connection.abandon(cause)
                await asyncio.wait([filling])  # What had arrived of tensors is taken in.
            return cause
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _lost(self, cause: LinkLost) -> None:
        self.is_away = True
        self._parts.writer.link_lost()
        self._logger.basic(f"{self._name} lost its link, and seeks another: {cause}")

    async def _find(self, cause: LinkLost) -> Link:
        admission = self._admission
        assert admission.key is not None
        key = admission.key

        def attempt(seconds: float) -> Awaitable[Link]:
            numbering = self.present.wire.numbering
            progress = self._parts.pending.progress()
            resume = Resume(admission.session, key, numbering.tell(), progress)
            return self._reopen(Resumption(admission.device.index, resume, numbering), seconds)

        return await find_link(
            attempt,
            cause=cause,
            grace_seconds=admission.limits.resume_grace_seconds,
            attempt_seconds=self._config.connect_timeout_seconds,
            logger=self._logger,
        )

    def _found(self, link: Link) -> None:
        assert link.welcome.resumed is not None
        self.present = link
        self.is_away = False
        self.resumptions += 1
        self._parts.reader.link_found(link)
        self._parts.writer.link_found(link, link.welcome.resumed.uploads)
        path = link.connection.path
        self._logger.basic(f"{self._name} goes on over another link to {path.address}")

    def _tick(self) -> None:
        self._parts.writer.acknowledge()
        self._parts.writer.wake()

    def _cause_of(self, part: asyncio.Task[None]) -> GpuwireError:
        """Why a link is of no more use, from the part of the work over it that ended."""
        error = part.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ConnectionClosed):
            lost = LinkLost(f"the server closed the connection to {self._address}: {error}")
            lost.__cause__ = error
            return lost
        if isinstance(error, GpuwireError):
            return error
        failed = SessionError(f"the session with {self._address} failed on this side: {error!r}")
        failed.__cause__ = error
        return failed
