"""Watching a server over its ordinary connection, without a session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

from gpuwire.client.connecting import Link, open_listing
from gpuwire.config import RemoteConfig
from gpuwire.errors import GpuwireError, LinkLost, ServerStopped, UnexpectedMessage
from gpuwire.telemetry.plain import from_json
from gpuwire.telemetry.snapshots import ServerSnapshot
from gpuwire.transport import Ticket
from gpuwire.wire.messages import Close, Facts, Heartbeat, HeartbeatReply, Watch
from gpuwire.wire.records import from_record

READ_BYTES = 128 * 1024
SILENCE_SECONDS = 15.0
"""A server answers within a second, or is gone."""


class Viewer:
    """A connection that asks what the server does. Made by `watch`."""

    def __init__(self, link: Link, *, closely: bool) -> None:
        self._link = link
        self._closely = closely
        self._numbers = 0
        self._asked = 0.0
        self._delay = inf
        self.clock_offset = 0.0
        """Seconds that the server's clock is ahead of this machine's, by the quickest answer."""

    @property
    def clock_uncertainty(self) -> float:
        """By how many seconds that may be wrong at most: half of what the quickest answer spent on
        its way."""
        return self._delay / 2

    async def next(self) -> ServerSnapshot:
        """The server's next moment, a quarter of a second after the one before. Raises the server's
        reason for ending, and `LinkLost`."""
        self._numbers += 1
        number = self._numbers
        writer = self._link.control.writer
        self._asked = time.time()
        await writer.write(self._link.wire.send(Watch(number, self._closely)))
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                return await self._answer(number)
        except TimeoutError:
            raise LinkLost(
                f"the server told nothing for {SILENCE_SECONDS:g} s", seconds=SILENCE_SECONDS
            ) from None

    async def _answer(self, number: int) -> ServerSnapshot:
        control, wire = self._link.control, self._link.wire
        while data := await control.reader.read(READ_BYTES):
            for message in wire.receive_data(data):
                match message:
                    case Facts(number=answered) if answered == number:
                        self._compare_clocks(message)
                        return from_json(ServerSnapshot, bytes(message.snapshot))
                    case Heartbeat():
                        control.writer.write_nowait(wire.send(HeartbeatReply(message.number)))
                    case Close(error=None):
                        raise ServerStopped("the server closed the connection")
                    case Close(error=error):
                        assert error is not None
                        raise from_record(error)
                    case _:
                        raise UnexpectedMessage(
                            f"the server sent {type(message).__name__}",
                            kind=type(message).__name__,
                        )
        raise LinkLost("the server ended the control stream without a word")

    def _compare_clocks(self, facts: Facts) -> None:
        """RFC 5905 section 8: what the server waited is in both of its times and falls out."""
        received, sent, now = facts.received_us * 1e-6, facts.sent_us * 1e-6, time.time()
        delay = (now - self._asked) - (sent - received)
        if delay < self._delay:
            self._delay = delay
            self.clock_offset = ((received - self._asked) + (sent - now)) / 2


@asynccontextmanager
async def watch(
    ticket: Ticket,
    config: RemoteConfig,
    authority: Path | None = None,
    *,
    closely: bool = False,
) -> AsyncIterator[Viewer]:
    """A viewer of the ticket's server: with the server's own ticket it sees everything, with
    another token what was opened with that token. `closely` has the server time more launches, for
    which its work pays some percent. Raises as `connecting.open_link`."""
    link = await open_listing(ticket, config, authority)
    try:
        yield Viewer(link, closely=closely)
        try:
            link.control.writer.write_nowait(link.wire.send(Close(None)))
        except GpuwireError:
            # The server has said its last already.
            return
    finally:
        link.connection.close()
