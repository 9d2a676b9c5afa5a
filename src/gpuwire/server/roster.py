"""Who is here, and how much has gone through: the front's own counts.

Nothing is counted here while sessions work: their wire and their transport count anyway, and are
asked when somebody wants to know.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gpuwire.server.session import LinkFacts, Session
from gpuwire.server.upload_cache import UploadCache
from gpuwire.telemetry.snapshots import SessionSnapshot, Totals


@dataclass(frozen=True, slots=True, eq=False)
class Present:
    """A session that is open."""

    session: Session
    name: str
    device: int
    token: str
    client: str
    since: float = field(default_factory=time.monotonic)


class Roster:
    """The sessions of a server."""

    def __init__(self, upload_cache: UploadCache) -> None:
        self._upload_cache = upload_cache
        self.refusals = 0
        self._present: dict[int, Present] = {}
        self._gone = Totals()
        """What sessions that are over have counted."""
        self._opened = 0

    @contextlib.contextmanager
    def listed(self, present: Present) -> Iterator[None]:
        """Lists a session while it lasts, and keeps its counts afterwards."""
        self._opened += 1
        key = self._opened
        self._present[key] = present
        try:
            yield
        finally:
            del self._present[key]
            self._gone = _plus(self._gone, present.session.facts())

    def sessions(self) -> tuple[SessionSnapshot, ...]:
        """Those that are open, the oldest first; what only their device host knows is 0."""
        return tuple(map(_snapshot, self._present.values()))

    def totals(self) -> Totals:
        """Everything so far."""
        totals = self._gone
        for present in self._present.values():
            totals = _plus(totals, present.session.facts())
        kept = self._upload_cache.facts
        return replace(
            totals,
            upload_hits=kept.hits,
            upload_misses=kept.misses,
            upload_bytes_not_sent=kept.bytes_not_sent,
            upload_memory_bytes=kept.memory_bytes,
            upload_disk_bytes=kept.disk_bytes,
            sessions=self._opened,
            refusals=self.refusals,
            cpu_seconds=time.process_time(),
        )


def _plus(totals: Totals, facts: LinkFacts) -> Totals:
    return replace(
        totals,
        frames_in=totals.frames_in + facts.frames_in,
        frames_out=totals.frames_out + facts.frames_out,
        tasks=totals.tasks + facts.tasks,
        bytes_in=totals.bytes_in + facts.path.bytes_received,
        bytes_out=totals.bytes_out + facts.path.bytes_sent,
    )


def _snapshot(present: Present) -> SessionSnapshot:
    facts = present.session.facts()
    path = facts.path
    return SessionSnapshot(
        present.name,
        facts.number,
        present.device,
        present.token,
        present.client,
        path.address,
        facts.state,
        time.monotonic() - present.since,
        facts.frames_in,
        facts.frames_out,
        facts.tasks,
        path.bytes_received,
        path.bytes_sent,
        path.rtt_seconds.smoothed,
        path.datagram_bytes,
        path.packets_lost,
        facts.backlog_bytes,
        tensors=0,
        memory_bytes=0,
        resumptions=facts.resumptions,
    )
