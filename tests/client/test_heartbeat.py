"""Heartbeats: a silent server is asked, and given up at the deadline, unless we were the deaf."""

from __future__ import annotations

import asyncio
import time

import pytest

from gpuwire.client.heartbeat import Heartbeats
from gpuwire.errors import LinkLost


def test_a_silent_server_is_asked_and_then_given_up() -> None:
    asked: list[int] = []
    ticks: list[None] = []
    heartbeats = Heartbeats(0.02, asked.append)
    with pytest.raises(LinkLost, match=r"three times remote\.heartbeat_seconds") as caught:
        asyncio.run(heartbeats.run(lambda: ticks.append(None)))
    assert caught.value.seconds is not None and caught.value.seconds >= 0.06
    assert len(asked) >= 2
    assert len(ticks) == len(asked) + 1


def test_a_server_that_speaks_is_not_asked() -> None:
    asked: list[int] = []
    heartbeats = Heartbeats(0.005, asked.append)

    async def program() -> None:
        enough = asyncio.Event()
        ticks: list[None] = []

        def tick() -> None:
            heartbeats.heard()
            ticks.append(None)
            if len(ticks) == 10:
                enough.set()

        running = asyncio.create_task(heartbeats.run(tick))
        await enough.wait()
        assert not running.done()
        running.cancel()

    asyncio.run(program())
    assert asked == []


def test_time_in_which_this_process_stood_still_is_not_the_servers() -> None:
    async def program() -> None:
        stood_still = 0.0
        asked = asyncio.Event()
        heartbeats = Heartbeats(
            0.02, lambda number: asked.set(), lambda: time.monotonic() + stood_still
        )
        running = asyncio.create_task(heartbeats.run(lambda: None))
        await asyncio.sleep(0)  # It has begun to wait for its interval.
        for _ in range(5):
            heartbeats.heard()
            stood_still += 100.0
            asked.clear()
            async with asyncio.timeout(10):
                await asked.wait()
        assert not running.done()
        running.cancel()

    asyncio.run(program())


def test_a_ping_takes_its_own_answer_only() -> None:
    async def program() -> None:
        asked: list[int] = []
        both = asyncio.Event()

        def send(number: int) -> None:
            asked.append(number)
            if len(asked) == 2:
                both.set()

        heartbeats = Heartbeats(60.0, send)
        first = asyncio.create_task(heartbeats.ping())
        second = asyncio.create_task(heartbeats.ping())
        await both.wait()
        heartbeats.answered(asked[1])
        assert await second >= 0
        assert not first.done()
        heartbeats.fail(LinkLost("gone"))
        with pytest.raises(LinkLost):
            await first

    asyncio.run(program())
