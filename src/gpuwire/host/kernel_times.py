"""Device time per kernel, by samples.

Timing a launch costs two timestamps, a closed compute pass and a read: 0.15 ms of the thread that
launches and 0.2 of others, where a launch takes 0.01. So few are timed, some a second, and in
between launches are not even looked at. They are counted exactly, by the compute server, and a
kernel's time in all is estimated as launches times the mean of its samples.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from gpuwire.compute.completion import Completion
from gpuwire.compute.server import WgpuServer
from gpuwire.errors import GpuwireError
from gpuwire.kernels.kernel import Kernel
from gpuwire.telemetry.snapshots import KernelSample, KernelSnapshot

PAUSE_SECONDS = 0.5
"""Between two that are timed: 0.1 % of a processor."""
CLOSE_PAUSE_SECONDS = 0.01
"""The same while somebody watches closely: 3 %."""
PASSED_OVER = 32
"""So many launches of kernels that were timed often are passed over for one that was not."""
KEPT_KERNELS = 512
TOLD_KERNELS = 24


@dataclass(slots=True, eq=False)
class _Times:
    """What is known of the kernels of one name."""

    samples: int = 0
    seconds: float = 0.0


class _Timed:
    """A launch that is being timed."""

    __slots__ = ("ended", "name", "seconds", "session")

    def __init__(self, name: str, session: int, seconds: Completion[float]) -> None:
        self.name = name
        self.session = session
        self.seconds = seconds
        self.ended = 0.0
        # Whoever waits for it has the poller look.
        seconds.when_done(self._note_end)

    def _note_end(self) -> None:
        self.ended = time.time()


class LaunchTold(Protocol):
    """Somebody to whom each launch is told, with its time."""

    def wants(self) -> bool:
        """Whether the launch that is about to begin is to be timed."""

    def launched(self, name: str, seconds: Completion[float]) -> None:
        """A launch of a kernel of that name was queued; its time comes later."""


class KernelTimes:
    """Times launches now and then, as the compute server's launch observer."""

    def __init__(self, server: WgpuServer) -> None:
        self.session = 0
        """The session whose work is being run."""
        self.is_close = False
        """Whether more are timed than nobody would notice."""
        self._server = server
        self._is_wanted = False
        self._is_observing = False
        self._told: LaunchTold | None = None
        self._times: dict[str, _Times] = {}
        self._launches: dict[str, int] = {}
        """As of the last look."""
        self._token: int | None = None
        self._fewest = self._passed_over = 0
        self._open: list[_Timed] = []
        self._samples: list[KernelSample] = []

    def start(self) -> None:
        """Somebody watches: times launches from now on."""
        self._is_wanted = True
        self._look_again()

    def stop(self) -> None:
        """Nobody watches any more. What is known is kept."""
        self._is_wanted = False
        self._observe(False)
        self._samples.clear()

    @contextmanager
    def told_to(self, told: LaunchTold) -> Iterator[None]:
        """Times the launches of the block for somebody else than viewers."""
        before, self._told = self._told, told
        self._server.observe_launches(self)
        try:
            yield
        finally:
            self._told = before
            is_wanted = self._is_observing or before is not None
            self._server.observe_launches(self if is_wanted else None)

    def before(self, kernel: Kernel, stream: int) -> None:
        """A kernel is about to be launched."""
        if self._server.capturing(stream):
            return
        if self._told is not None:
            if self._told.wants():
                self._token = self._server.start_profile_at_launch(stream)
            return
        times = self._times.get(kernel.name)
        if times is None:
            if len(self._times) >= KEPT_KERNELS:
                self._times.clear()
            times = self._times[kernel.name] = _Times()
        if times.samples > self._fewest and self._passed_over < PASSED_OVER:
            self._passed_over += 1
            return
        self._passed_over = 0
        self._token = self._server.start_profile_at_launch(stream)

    def after(self, kernel: Kernel, stream: int) -> None:
        """It is launched, or could not be."""
        token, self._token = self._token, None
        if token is None:
            return
        # Ended before any launch opened it where the launch failed: its completion says so.
        seconds = self._server.end_profile(stream, token)
        if self._told is not None:
            self._told.launched(kernel.name, seconds)
            return
        self._open.append(_Timed(kernel.name, self.session, seconds))
        pause = CLOSE_PAUSE_SECONDS if self.is_close else PAUSE_SECONDS
        self._observe(False)
        asyncio.get_running_loop().call_later(pause, self._look_again)

    def samples(self) -> tuple[KernelSample, ...]:
        """The launches that were timed since the call before."""
        self._take_samples()
        samples, self._samples = tuple(self._samples), []
        return samples

    def snapshots(self) -> tuple[KernelSnapshot, ...]:
        """The kernels with the most device time, most first; launches decide where none is
        timed."""
        self._take_samples()
        told = []
        for name, launches in self._server.launch_counts().items():
            times = self._times.get(name) or _Times()
            mean = times.seconds / times.samples if times.samples else 0.0
            told.append(KernelSnapshot(name, launches, times.samples, mean))
        told.sort(key=lambda kernel: (kernel.device_seconds, kernel.launches), reverse=True)
        return tuple(told[:TOLD_KERNELS])

    def _look_again(self) -> None:
        if not self._is_wanted:
            return
        self._take_samples()
        times = self._times
        samples = [times[name].samples if name in times else 0 for name in self._launched()]
        self._fewest = min(samples, default=0)
        self._observe(True)

    def _observe(self, wanted: bool) -> None:
        self._is_observing = wanted
        self._server.observe_launches(self if wanted else None)

    def _launched(self) -> Iterator[str]:
        """Kernels launched since the last look: others need no time."""
        before, self._launches = self._launches, self._server.launch_counts()
        return (n for n, count in self._launches.items() if count > before.get(n, 0))

    def _take_samples(self) -> None:
        under_way = []
        for timed in self._open:
            # The callback comes a moment after `done`, on another thread.
            if not timed.ended:
                under_way.append(timed)
                continue
            try:
                seconds = timed.seconds.result()
            except GpuwireError:
                # Work in the window failed, so there is no time to tell; its tensor tells why.
                continue
            times = self._times.setdefault(timed.name, _Times())
            times.seconds += seconds
            times.samples += 1
            self._samples.append(KernelSample(timed.ended, timed.session, timed.name, seconds))
        self._open = under_way
