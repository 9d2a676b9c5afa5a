"""What a session's client is told of work that only the device host can count.

The counts ride along with replies that go anyway, about 20 bytes where something has changed and
nothing else: no task is sent for them and nobody waits. A frame of replies takes 4 µs longer here,
and 4 at the client, where there is something to tell.
"""

from __future__ import annotations

from operator import sub

from gpuwire.host.graphs import Graphs
from gpuwire.lowering.counting import Tally
from gpuwire.wire.messages import WorkCounts


class UntoldCounts:
    """The counts of one session that its client does not know."""

    def __init__(self, operations: Tally, graphs: Graphs) -> None:
        self._operations = operations
        self._graphs = graphs
        self._told = self._now()

    def take(self) -> WorkCounts | None:
        """What has been counted since the call before, None if nothing has. It counts as told."""
        now = self._now()
        if now == self._told:
            return None
        hits, misses, evictions, *operations = map(sub, now, self._told)
        self._told = now
        return WorkCounts(tuple(operations), hits, misses, evictions)

    def _now(self) -> tuple[int, ...]:
        counts = self._operations.counts
        return (*self._graphs.cache_use, *counts.fused, *counts.unfused)
