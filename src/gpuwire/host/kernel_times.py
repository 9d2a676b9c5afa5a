"""Device time per kernel, by samples.

Timing a launch costs two timestamps, a closed compute pass and a read: a hundred times the launch
itself. So few are timed: after each the next must wait until the cost of timing is `SHARE` of the
time that has passed. Launches are counted exactly, and a kernel's time in all is estimated as
launches times the mean of its samples.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from gpuwire.compute.completion import Completion
from gpuwire.compute.server import WgpuServer
from gpuwire.errors import GpuwireError
from gpuwire.kernels.kernel import Kernel
from gpuwire.telemetry.snapshots import KernelSnapshot

SHARE = 0.002
"""Of the host's time that may go into timing."""
LEAST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 1.0
"""The first launch of a kernel compiles it, which must not end timing for a minute."""
PASSED_OVER = 64
"""So many launches of kernels that were timed often are passed over for one that was not."""
KEPT_KERNELS = 512
TOLD_KERNELS = 24


@dataclass(slots=True, eq=False)
class _Kernel:
    name: str
    launches: int = 0
    samples: int = 0
    seconds: float = 0.0


class KernelTimes:
    """Counts and times launches, as the compute server's launch observer."""

    def __init__(self, server: WgpuServer) -> None:
        self._server = server
        self._kernels: dict[Kernel, _Kernel] = {}
        self._token: int | None = None
        self._started = 0.0
        self._next = 0.0
        self._passed_over = 0
        self._open: list[tuple[_Kernel, Completion[float]]] = []

    def before(self, kernel: Kernel, stream: int) -> None:
        """A kernel is about to be launched."""
        known = self._kernels.get(kernel)
        if known is None:
            if len(self._kernels) >= KEPT_KERNELS:
                self._kernels.clear()
            known = self._kernels[kernel] = _Kernel(kernel.name)
        known.launches += 1
        now = time.perf_counter()
        if now < self._next or self._server.capturing(stream):
            return
        if known.samples > 2 and self._passed_over < PASSED_OVER and self._has_rarer(known):
            self._passed_over += 1
            return
        self._passed_over = 0
        self._started = now
        self._token = self._server.start_profile_at_launch(stream)

    def after(self, kernel: Kernel, stream: int) -> None:
        """It is launched, or could not be."""
        token, self._token = self._token, None
        if token is None:
            return
        # Ended before any launch opened it where the launch failed: its completion says so.
        seconds = self._server.end_profile(stream, token)
        seconds.when_done(_nothing)  # Whoever waits for it has the poller look.
        self._open.append((self._kernels[kernel], seconds))
        cost = time.perf_counter() - self._started
        pause = min(max(cost / SHARE, LEAST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        self._next = self._started + pause

    def forget(self) -> None:
        """Nobody watches any more."""
        self._kernels.clear()
        self._open.clear()

    def snapshots(self) -> tuple[KernelSnapshot, ...]:
        """The kernels with the most device time, most first; launches decide where none is
        timed."""
        self._take_samples()
        told = [
            KernelSnapshot(
                kernel.name,
                kernel.launches,
                kernel.samples,
                kernel.seconds / kernel.samples if kernel.samples else 0.0,
            )
            for kernel in self._kernels.values()
        ]
        told.sort(key=lambda kernel: (kernel.device_seconds, kernel.launches), reverse=True)
        return tuple(told[:TOLD_KERNELS])

    def _has_rarer(self, known: _Kernel) -> bool:
        return any(kernel.samples < known.samples for kernel in self._kernels.values())

    def _take_samples(self) -> None:
        under_way = []
        for kernel, seconds in self._open:
            if not seconds.done:
                under_way.append((kernel, seconds))
                continue
            try:
                kernel.seconds += seconds.result()
            except GpuwireError:
                # Work in the window failed, so there is no time to tell; its tensor tells why.
                continue
            kernel.samples += 1
        self._open = under_way


def _nothing() -> None:
    """The sample is taken when somebody asks."""
