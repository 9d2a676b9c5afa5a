"""Noticing silence, by our own messages and with our own deadline.

QUIC notices too, but by its own clock, and it answers for the server's network process even when
nothing behind it moves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from gpuwire.client.pending import fresh
from gpuwire.errors import GpuwireError, LinkLost

_DEADLINE_INTERVALS = 3
_GRACE_SECONDS = 0.2
"""A process that was itself held up (stopped, suspended, out of the processor) first takes in what
has come meanwhile, and only then judges."""


class Heartbeats:
    """Asks a silent server every `interval` seconds, and gives it up after three times as long."""

    def __init__(self, interval: float, send: Callable[[int], None]) -> None:
        """`send` sends the heartbeat of a number."""
        self._interval = interval
        self._send = send
        self._number = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._heard = time.monotonic()

    def heard(self) -> None:
        """Something came from the server."""
        self._heard = time.monotonic()

    def answered(self, number: int) -> None:
        """The answer to heartbeat `number` came."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def ping(self) -> float:
        """One round trip through the server's front, in seconds."""
        self._number += 1
        number = self._number
        self._waiting[number] = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        self._send(number)
        try:
            await self._waiting[number]
        finally:
            self._waiting.pop(number, None)
        return time.perf_counter() - began

    def fail(self, cause: GpuwireError) -> None:
        """Fails every ping under way."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(fresh(cause))

    async def run(self, on_interval: Callable[[], None]) -> None:
        """Calls `on_interval` every interval. Ends only by raising `LinkLost`."""
        deadline = self._interval * _DEADLINE_INTERVALS
        while True:
            await asyncio.sleep(self._interval)
            on_interval()
            silence = time.monotonic() - self._heard
            if silence >= deadline:
                await self._judge(deadline)
            if silence >= self._interval:
                self._number += 1
                self._send(self._number)

    async def _judge(self, deadline: float) -> None:
        await asyncio.sleep(_GRACE_SECONDS)
        silence = time.monotonic() - self._heard
        if silence >= deadline:
            raise LinkLost(
                f"the server has been silent for {silence:.1f} s; the link is given up after "
                f"{deadline:g} s (three times remote.heartbeat_seconds)",
                seconds=silence,
            )
