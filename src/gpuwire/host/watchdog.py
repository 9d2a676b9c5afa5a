"""The time limit of a submission.

A thread looks at what the device is at work on. It needs nothing of the loop's thread, which may
be stuck in the driver by then; nothing that runs on a device can be stopped, so the process ends,
and the front starts another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpuwire.compute.server import WgpuServer
from gpuwire.compute.submissions import Submission

_LOOKS = 8
"""How often it looks within the limit: a submission may run longer by this part of it."""
_LONGEST_PAUSE_SECONDS = 1.0


class Watchdog:
    """Watches one compute server until it is closed."""

    def __init__(
        self, server: WgpuServer, seconds: float, expired: Callable[[Submission], None]
    ) -> None:
        """`expired` is called on the watchdog's thread, once."""
        self._server = server
        self._seconds = seconds
        self._expired = expired
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpuwire-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watches no more."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        # A submission's own age would count the time for which it waited behind others.
        batch, since = -1, 0.0
        pause = min(self._seconds / _LOOKS, _LONGEST_PAUSE_SECONDS)
        while not self._closed.wait(pause):
            oldest = self._server.running()
            if oldest is None:
                batch = -1
                continue
            now = time.monotonic()
            if oldest.batch != batch:
                batch, since = oldest.batch, max(oldest.submitted, now - pause)
            elif now - since > self._seconds:
                self._expired(oldest)
                return
