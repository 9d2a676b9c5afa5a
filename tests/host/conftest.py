"""A real device host in this process, seen from the front's end of its channel."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from typing import TypeVar

import pytest

from gpuwire.config import load_config
from gpuwire.errors import GpuwireError
from gpuwire.host.channel import Channel
from gpuwire.host.channel_messages import (
    ChannelMessage,
    Configure,
    DownloadChunk,
    EndSession,
    OpenSession,
    Ready,
    Replies,
    RepliesWritten,
    SessionEnded,
    SlotFree,
    Stop,
    Tasks,
    UploadChunk,
)
from gpuwire.host.slots import SLOT_BYTES, SlotMemory, anonymous_file
from gpuwire.host.worker import Worker
from gpuwire.ids import StreamId, TensorId
from gpuwire.wire.codec import decode_replies, encode_task
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import (
    Failed,
    GraphMissing,
    ReadTensor,
    Reply,
    Task,
    TensorData,
    WorkCounts,
)
from gpuwire.wire.records import from_record

M = TypeVar("M")

MAX_GRAPHS = 3
"""That a session of the shared host keeps."""


class FrontEnd:
    """The front's end: sends what a front would, keeps what comes, per session."""

    def __init__(self) -> None:
        self.sessions = 0
        self.requests = 1_000_000
        self.ready = asyncio.Event()
        self._waiting: dict[tuple[int, int], asyncio.Future[Reply]] = {}
        self._messages: dict[type, asyncio.Queue[ChannelMessage]] = {}
        self.unwritten: dict[int, int] = {}
        """Reply bytes that came, by session."""
        self.counts: dict[int, list[WorkCounts]] = {}
        """What came of them, by session."""
        self.kinds: dict[int, list[type[Reply]]] = {}
        """Of all replies, in order, by session."""
        self.acknowledges_replies = True

    async def start(self) -> None:
        """Starts a worker on the machine's best adapter."""
        descriptor = anonymous_file(SlotMemory.size)
        self.memory, host_memory = SlotMemory(descriptor), SlotMemory(descriptor)
        os.close(descriptor)
        ours, theirs = socket.socketpair()
        self.lost = asyncio.Event()
        self.channel = await Channel.over(ours, self._handle, self.lost.set)
        self.worker = asyncio.create_task(Worker(host_memory).run(theirs))
        config = load_config(server={"max_graphs": MAX_GRAPHS})
        self.channel.send(Configure(0, config.model_dump_json().encode()))
        ready = asyncio.create_task(self.message(Ready))
        await asyncio.wait((ready, self.worker), return_when=asyncio.FIRST_COMPLETED)
        assert ready.done(), f"the worker ended: {self.worker.result()}"

    def forget(self) -> None:
        """Drops what came and was not taken."""
        self._messages.clear()

    async def stop(self) -> None:
        self.channel.send(Stop())
        await self.worker
        await self.lost.wait()

    def open(self, *, memory: int = 0, upload: int = 0) -> int:
        """A new session's number."""
        self.sessions += 1
        self.channel.send(OpenSession(self.sessions, memory, upload))
        return self.sessions

    async def end(self, session: int) -> int:
        """Ends a session; the bytes it freed."""
        self.channel.send(EndSession(session))
        ended = await self.message(SessionEnded)
        assert ended.session == session
        return ended.freed

    def tasks(self, session: int, *tasks: Task) -> None:
        body = b"".join(encode_task(task) for task in tasks)
        self.channel.send(Tasks(session, len(tasks), body))

    async def reply(self, session: int, request: int) -> Reply:
        return await self._waiting.setdefault((session, request), self._future())

    def has_reply(self, session: int, request: int) -> bool:
        waiting = self._waiting.get((session, request))
        return waiting is not None and waiting.done()

    def forget_reply(self, session: int, request: int) -> None:
        """Another reply to the same request will come."""
        del self._waiting[session, request]

    async def read(self, session: int, tensor: int) -> bytes:
        """A small tensor's bytes, or the error that it carries."""
        self.requests += 1
        self.tasks(session, ReadTensor(StreamId(0), self.requests, TensorId(tensor)))  # type: ignore[arg-type]
        reply = await self.reply(session, self.requests)
        if isinstance(reply, Failed):
            raise from_record(reply.error)
        assert isinstance(reply, TensorData)
        assert reply.data is not None
        return bytes(reply.data)

    async def failure(self, session: int, tensor: int) -> GpuwireError:
        """The error that reading a tensor raises."""
        with pytest.raises(GpuwireError) as caught:
            await self.read(session, tensor)
        return caught.value

    async def message(self, kind: type[M]) -> M:
        """The next message of that class."""
        return await self._queue(kind).get()  # type: ignore[return-value]

    def count(self, kind: type) -> int:
        """Messages of that class that came and were not taken."""
        return self._queue(kind).qsize()

    async def put(self, session: int, request: int, offset: int, data: bytes) -> None:
        """A chunk of an upload; returns when the host has given the slot back."""
        assert len(data) <= SLOT_BYTES
        with self.memory.slot(0, len(data)) as slot:
            slot[:] = data
        self.channel.send(UploadChunk(session, request, offset, 0, len(data)))
        await self.message(SlotFree)

    def take(self, chunk: DownloadChunk) -> bytes:
        """A chunk's bytes; its slot goes back."""
        with self.memory.slot(chunk.slot, chunk.size) as slot:
            data = bytes(slot)
        self.channel.send(SlotFree(chunk.slot))
        return data

    def _handle(self, message: ChannelMessage) -> None:
        if not isinstance(message, Replies):
            self._queue(type(message)).put_nowait(message)
            return
        for reply in decode_replies(bytes(message.payload), message.count, WireLimits()):
            self.kinds.setdefault(message.session, []).append(type(reply))
            if isinstance(reply, GraphMissing):
                self._queue(GraphMissing).put_nowait(reply)  # type: ignore[arg-type]
                continue
            if isinstance(reply, WorkCounts):
                self.counts.setdefault(message.session, []).append(reply)
                continue
            key = (message.session, int(reply.request))
            self._waiting.setdefault(key, self._future()).set_result(reply)
        if self.acknowledges_replies:
            self.channel.send(RepliesWritten(message.session, len(message.payload)))
        else:
            size = self.unwritten.get(message.session, 0)
            self.unwritten[message.session] = size + len(message.payload)

    def _queue(self, kind: type) -> asyncio.Queue[ChannelMessage]:
        return self._messages.setdefault(kind, asyncio.Queue())

    def _future(self) -> asyncio.Future[Reply]:
        return asyncio.get_running_loop().create_future()


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all tests of the host, since the device is opened once."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def front(shared_front: FrontEnd) -> FrontEnd:
    """The front's end, with nothing left over from the test before."""
    shared_front.forget()
    return shared_front


@pytest.fixture(scope="session")
def shared_front(runner: asyncio.Runner, runtime_directory: None) -> Iterator[FrontEnd]:
    """The front's end of one device host that all tests share."""
    end = FrontEnd()
    runner.run(end.start())
    yield end
    runner.run(end.stop())
