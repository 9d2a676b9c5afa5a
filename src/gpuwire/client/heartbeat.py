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


class Heartbeats:
    """Asks a silent server every `interval` seconds, and gives it up after three times as long."""

    def __init__(
        self,
        interval: float,
        send: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`send` sends the heartbeat of a number."""
        self._interval = interval
        self._send = send
        self._clock = clock
        self._number = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._heard = self._clock()

    def heard(self) -> None:
        """Something came from the server."""
        self._heard = self._clock()

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
        """Watches over one link: calls `on_interval` every interval, and sends again what pings
        wait for an answer. Ends only by raising `LinkLost`."""
        deadline = self._interval * _DEADLINE_INTERVALS
        self._heard = self._clock()
        for number in self._waiting:
            self._send(number)
        while True:
            due = self._clock() + self._interval
            await asyncio.sleep(self._interval)
            # While this process was itself held up (stopped, or kept from the interpreter lock), it
            # could hear nothing: that time is not the server's.
            self._heard += self._clock() - due
            on_interval()
            silence = self._clock() - self._heard
            if silence >= deadline:
                raise LinkLost(
                    f"the server has been silent for {silence:.1f} s; the link is given up after "
                    f"{deadline:g} s (three times remote.heartbeat_seconds)",
                    seconds=silence,
                )
            if silence >= self._interval:
                self._number += 1
                self._send(self._number)
