"""Supervision: a device's host is started, watched, and started anew when it dies."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import replace

from gpuwire.config import Config
from gpuwire.errors import DeviceLost, GpuwireError, ServerStartError
from gpuwire.server.device_host import STOP_SECONDS, DeviceHost
from gpuwire.telemetry.logs import Logger
from gpuwire.wire.messages import DeviceInfo

START_SECONDS = 60.0
"""A host that has no device after so long is killed."""
RESTART_WINDOW_SECONDS = 600.0
"""`max_host_restarts` counts the deaths within so long."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0
"""Between a death and the next start; doubles with each death in the window."""


class ServedDevice:
    """One device of the server, whichever process owns it at the moment."""

    def __init__(self, index: int, adapter: int, config: Config, logger: Logger) -> None:
        self.index = index
        """Its number for clients. Set anew only before the first of them is let in."""
        self._adapter = adapter
        self._config = config
        self._logger = logger
        self._info: DeviceInfo | None = None
        self._adapters = 0
        self._host: DeviceHost | None = None
        self._given_up: GpuwireError | None = None
        self._decided = asyncio.Event()
        """A host is ready, or none ever will be."""
        self._deaths: deque[float] = deque()
        self._stopping = False
        self._is_excused = False
        """The last host died of what a session gave it, which says nothing of the device: it does
        not count as one of its deaths."""
        self._supervising: asyncio.Task[None] | None = None

    @property
    def info(self) -> DeviceInfo:
        """The device as clients see it. Known once `start` has returned."""
        assert self._info is not None
        return replace(self._info, index=self.index)

    @property
    def state(self) -> str:
        """ready, starting or given up."""
        if self._given_up is not None:
            return "given up"
        return "ready" if self.present_host is not None else "starting"

    @property
    def restarts(self) -> int:
        """How often its host died within the last ten minutes."""
        return len(self._deaths)

    @property
    def present_host(self) -> DeviceHost | None:
        """The host, if one is ready now."""
        host = self._host
        return host if self._decided.is_set() and host is not None and host.alive else None

    async def start(self) -> int:
        """Starts the first host; returns how many adapters the machine has. Raises the error that
        it could not start with: `NoAdapter`, `NoSuchDevice`, `DeviceLost`, `ServerStartError`."""
        self._supervising = asyncio.create_task(self._supervise())
        await self.host()
        return self._adapters

    async def host(self) -> DeviceHost:
        """The host, once one is ready. Raises the error for which the device was given up."""
        while True:
            await self._decided.wait()
            if self._given_up is not None:
                raise self._given_up
            if self._host is not None and self._host.alive:
                return self._host
            await asyncio.sleep(0)  # its end is known to the channel and not yet to us

    async def stop(self) -> None:
        """Ends the host and starts no other."""
        self._stopping = True
        if self._supervising is None:
            return
        if self._host is not None:
            self._host.stop()
        _, late = await asyncio.wait((self._supervising,), timeout=STOP_SECONDS)
        if late and self._host is not None:
            self._host.kill("did not stop when told to")
        await self._supervising

    # --- One host after the other ---

    async def _supervise(self) -> None:
        pause = 0.0
        while not self._stopping:
            await asyncio.sleep(pause)
            failure, reason = await self._live()
            if self._stopping:
                break
            if self._info is None:
                self._give_up(failure or self._lost(reason))
                return
            self._logger.basic(f"device {self.index}: {reason}")
            if self._is_excused:
                pause = FIRST_PAUSE_SECONDS
                continue
            restarts = self._count_death()
            if restarts > self._config.server.max_host_restarts:
                self._logger.basic(f"device {self.index} is given up after {restarts - 1} restarts")
                self._give_up(self._lost(f"given up after {restarts - 1} restarts; last, {reason}"))
                return
            pause = min(FIRST_PAUSE_SECONDS * 2 ** (restarts - 1), LONGEST_PAUSE_SECONDS)
        self._give_up(self._lost("the server is stopping"))

    async def _live(self) -> tuple[GpuwireError | None, str]:
        """The life of one host. Returns why it could not start, if so, and how it ended."""
        try:
            host = await DeviceHost.start(self._adapter, self._config, self._logger)
        except OSError as error:
            reason = f"the device host's process cannot be started: {error}"
            return ServerStartError(reason, reason=str(error)), reason
        self._host = host
        if self._stopping:
            host.stop()
        ended = asyncio.create_task(host.wait_ended())
        failure: GpuwireError | None = None
        try:
            await self._become_ready(host)
            await self._watch(host, ended)
        except GpuwireError as error:
            failure = error
        except TimeoutError:
            host.kill(f"had not opened its device after {START_SECONDS:g} s")
        reason = await ended
        self._is_excused = host.is_excused
        self._host = None
        self._decided.clear()
        return failure, reason

    async def _become_ready(self, host: DeviceHost) -> None:
        facts = await asyncio.wait_for(host.ready(), START_SECONDS)
        self._adapters = facts.adapters
        self._info = facts.info
        self._logger.basic(
            f"adapter {self._adapter} is {facts.info.name} ({facts.info.backend}), "
            f"owned by process {host.process_id}"
        )
        self._decided.set()

    async def _watch(self, host: DeviceHost, ended: asyncio.Task[str]) -> None:
        """Until the host has ended; kills it if it hangs."""
        seconds = self._config.compute.watchdog_seconds
        if not seconds:
            await asyncio.wait([ended])
            return
        # The host stops a long submission by itself: this is for one that cannot.
        watching = asyncio.create_task(host.watch(seconds + 5.0))
        await asyncio.wait([ended, watching], return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()

    def _count_death(self) -> int:
        now = time.monotonic()
        self._deaths.append(now)
        while self._deaths[0] < now - RESTART_WINDOW_SECONDS:
            self._deaths.popleft()
        return len(self._deaths)

    def _lost(self, reason: str) -> DeviceLost:
        return DeviceLost(f"device {self.index}: {reason}", device=self.index, reason=reason)

    def _give_up(self, error: GpuwireError) -> None:
        self._given_up = error
        self._decided.set()
