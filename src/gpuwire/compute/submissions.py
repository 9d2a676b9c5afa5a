"""What the device is at work on: for whoever watches that it ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from gpuwire.compute.polling import Poller
from gpuwire.errors import GpuwireError


@dataclass(frozen=True, slots=True)
class Submission:
    """One batch of work on its way."""

    batch: int
    submitted: float
    """By `time.monotonic()`."""
    kernels: tuple[str, ...]
    """The names of its kernels, in order of first launch; empty where it only copies."""
    streams: tuple[int, ...] = ()
    """For each of them the logical stream that launched it; where several did, one after the other
    without another kernel between, the first of those."""


class Submissions:
    """Batches that have been submitted and have not ended, the oldest first."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._running: dict[int, Submission] = {}

    def add(self, batch: int, kernels: Mapping[str, int]) -> None:
        """Note a batch that was just submitted; it goes when the device has ended it. `kernels` are
        its kernels' names with the logical streams that launched them."""
        self._running[batch] = Submission(
            batch, time.monotonic(), tuple(kernels), tuple(kernels.values())
        )

        def ended(_error: GpuwireError | None) -> None:
            self._running.pop(batch, None)

        self._poller.when_work_done(ended)

    @property
    def is_empty(self) -> bool:
        """Whether all have ended, as far as the device was asked. From any thread."""
        return not self._running

    def oldest(self) -> Submission | None:
        """The one that has been under way longest; None if the device is idle. From any thread.

        Whether work has ended is only known by asking the device, so this wakes the poller.
        """
        while self._running:
            try:
                found = next(iter(self._running.values()))
            except (StopIteration, RuntimeError):  # another thread took one in meanwhile
                continue
            self._poller.watch()
            return found
        return None
