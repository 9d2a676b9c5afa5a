"""A link while a session goes over it: reading, writing, and noticing that it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuwire.errors import GpuwireError, LinkLost, ProtocolError
from gpuwire.server.control_writer import ControlWriter
from gpuwire.server.uploads import Uploads
from gpuwire.transport import Connection, Stream
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import Heartbeat, Message
from gpuwire.wire.session import ServerSession
from gpuwire.wire.state import SessionState

READ_BYTES = 256 * 1024
MISSED_HEARTBEATS = 3
FAREWELL_SECONDS = 2.0
"""How long a session's end waits for the client to have the last message."""


@dataclass(frozen=True, slots=True)
class Link:
    """The way to the client: one connection, its control stream, the conversation on it."""

    connection: Connection
    control: Stream
    wire: ServerSession
    limits: WireLimits


class LinkedSession(Protocol):
    """A session, as its link sees it."""

    def may_read(self) -> bool:
        """Whether there is room for more from the client; `LimitBreached` if it must not wait."""

    def handle_client(self, message: Message) -> None:
        """Takes a message of the client."""

    def messages_taken(self) -> None:
        """What was read together has been handed over: acknowledgements may have made room."""

    def replies_written(self, size: int) -> None:
        """The transport took so many bytes of replies."""

    def link_lost(self, attached: AttachedLink, error: GpuwireError) -> None:
        """The link is of no more use."""

    def end(self, reason: GpuwireError | None) -> None:
        """The client broke the protocol."""


class AttachedLink:
    """One link of a session. `start` it; it ends by `detach` or `say_goodbye`."""

    def __init__(self, link: Link, session: LinkedSession, heartbeat_seconds: float) -> None:
        self.connection = link.connection
        self.wire = link.wire
        self.writer = ControlWriter(link.control.writer, session.replies_written)
        self.readable = asyncio.Event()
        """Set it where `may_read` may have become true."""
        self.is_paused = False
        """The control stream is not read, so nothing can be heard from the client."""
        self.over = asyncio.Event()
        """Set when the session does not use the link any more."""
        self._reader = link.control.reader
        self._session = session
        self._heartbeat_seconds = heartbeat_seconds
        self._heard = asyncio.get_running_loop().time()
        self._running: list[asyncio.Task[None]] = []
        self._accepting: asyncio.Task[None] | None = None

    def start(self, first: Sequence[bytes], early: Sequence[Message], uploads: Uploads) -> None:
        """Writes what goes first, takes what came with the Hello, and goes on by itself."""
        for data in first:
            self.writer.send(data)
        for message in early:
            self._session.handle_client(message)
        self._running = [asyncio.create_task(self._read()), asyncio.create_task(self._keep_alive())]
        self._accepting = asyncio.create_task(uploads.accept_from(self.connection))

    def detach(self, reason: str) -> None:
        """Gives the link up. What has arrived of uploads is still accepted."""
        self._stop()
        self.connection.close(reason=reason)
        self.connection.abandon(LinkLost(reason))
        self.writer.abandon()
        self.over.set()

    def stop(self) -> None:
        """Takes nothing more in."""
        self._stop()
        if self._accepting is not None:
            self._accepting.cancel()

    async def say_goodbye(self) -> None:
        """Waits a while for the client to have the last message, and gives the link up."""
        try:
            await asyncio.wait_for(self.writer.finish(), FAREWELL_SECONDS)
        except TimeoutError:
            self.writer.abandon()
        self.over.set()

    def _stop(self) -> None:
        for task in self._running:
            task.cancel()

    async def _read(self) -> None:
        session, wire, reader = self._session, self.wire, self._reader
        loop = asyncio.get_running_loop()
        try:
            while True:
                while not session.may_read():
                    self.is_paused = True
                    self.readable.clear()
                    await self.readable.wait()
                self.is_paused = False
                data = await reader.read(READ_BYTES)
                if not data:
                    raise LinkLost("the client's control stream ended without a Close")
                self._heard = loop.time()
                for message in wire.receive_data(data):
                    session.handle_client(message)
                session.messages_taken()
                if wire.acknowledgement_due:
                    self.writer.send(wire.acknowledge())
        except ProtocolError as error:
            session.end(error)
        except GpuwireError as error:
            lost = error if isinstance(error, LinkLost) else LinkLost(f"the link is gone: {error}")
            session.link_lost(self, lost)

    async def _keep_alive(self) -> None:
        """Heartbeats, always: while the client is not read its own cannot be answered, and these
        tell it that the server lives."""
        number = 0
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._heartbeat_seconds
            await asyncio.sleep(self._heartbeat_seconds)
            # While this process was itself held up it could hear nothing.
            self._heard += loop.time() - due
            if self.wire.state is not SessionState.OPEN:
                return
            number += 1
            self.writer.send(self.wire.acknowledge())
            self.writer.send(self.wire.send(Heartbeat(number)))
            if self.is_paused:
                self._heard = loop.time()
            silent = loop.time() - self._heard
            if silent > MISSED_HEARTBEATS * self._heartbeat_seconds:
                error = LinkLost(f"the client was silent for {silent:.1f} s", seconds=silent)
                self._session.link_lost(self, error)
                return
