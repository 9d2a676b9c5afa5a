"""Waking the event loop: in time, once, and again after an interruption."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from gpuwire.client.batch import Batches
from gpuwire.client.op_by_op import BatchTimer
from gpuwire.client.waking import Waker
from gpuwire.ids import RequestId, StreamId, TensorId
from gpuwire.wire.messages import ReadTensor


class Woken:
    """A waker over batches of four, and what it did."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.dropped: deque[TensorId] = deque()
        self.batches = Batches(
            self.dropped, flush_threshold=4, flush_bytes_threshold=1 << 20, frame_bytes=1 << 20
        )
        self.sent: list[int] = []
        self.happened = asyncio.Event()
        timer = BatchTimer(self.batches)
        self.waker = Waker(loop, self.batches, send=self.send, idle=timer.idle)

    def send(self) -> None:
        """Takes all closed batches: how many tasks they have."""
        while batch := self.batches.take():
            self.sent.append(len(batch.tasks))
        self.happened.set()

    def add(self) -> bool:
        return self.batches.add(ReadTensor(StreamId(0), RequestId(1), TensorId(1)))

    async def next(self) -> None:
        async with asyncio.timeout(10):
            await self.happened.wait()
        self.happened.clear()


def test_a_closed_batch_is_sent_and_an_open_one_is_flushed_when_idle() -> None:
    async def program() -> None:
        woken = Woken(asyncio.get_running_loop())
        for _ in range(4):
            woken.waker.wake(woken.add())
        await woken.next()
        assert woken.sent == [4]
        woken.waker.wake(woken.add())
        await woken.next()
        assert woken.sent == [4, 1]

    asyncio.run(program())


def test_dead_tensors_alone_are_flushed_too() -> None:
    async def program() -> None:
        woken = Woken(asyncio.get_running_loop())
        woken.dropped.append(TensorId(1))
        woken.waker.wake(False)
        await woken.next()
        assert woken.sent == [0]

    asyncio.run(program())


def test_one_wake_at_a_time_is_under_way() -> None:
    async def program() -> None:
        woken = Woken(loop := CountingLoop(asyncio.get_running_loop()))  # type: ignore[arg-type]
        for _ in range(101):
            woken.waker.wake(woken.add())
        assert loop.calls == 1
        await woken.next()
        for _ in range(3):  # The idle flush is due: no wake is needed for these.
            woken.waker.wake(False)
        assert loop.calls == 1

    asyncio.run(program())


def test_an_interrupted_wake_is_not_the_last() -> None:
    async def program() -> None:
        loop = CountingLoop(asyncio.get_running_loop())
        woken = Woken(loop)  # type: ignore[arg-type]
        woken.add()
        loop.fails_with = KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            woken.waker.wake(True)
        loop.fails_with = None
        woken.waker.wake(True)
        await woken.next()
        assert woken.sent == [1]

    asyncio.run(program())


def test_a_closed_loop_is_no_error_for_the_garbage_collector() -> None:
    loop = asyncio.new_event_loop()
    woken = Woken(loop)
    loop.close()
    woken.dropped.append(TensorId(1))
    woken.waker.wake(False)
    assert woken.sent == []


class CountingLoop:
    """The running loop; counts its wakes and can be interrupted in one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.calls = 0
        self.fails_with: type[BaseException] | None = None
        self.call_later = loop.call_later
        self.time = loop.time

    def call_soon_threadsafe(self, callback: object) -> None:
        self.calls += 1
        if self.fails_with is not None:
            raise self.fails_with
        self._loop.call_soon_threadsafe(callback)  # type: ignore[arg-type]
