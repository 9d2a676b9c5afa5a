"""Watching a server: what the dashboard, `gpuwire top` and `/metrics` show.

While somebody watches, the front asks every device host for its facts each `INTERVAL_SECONDS`, and
hands one moment to all viewers. A host that is busy is not asked again before it has answered. A
viewer that is slow misses moments, and is told how many; nobody waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuwire.errors import GpuwireError, QuotaExceeded
from gpuwire.server.admission import Grant
from gpuwire.server.roster import Roster
from gpuwire.server.supervision import ServedDevice
from gpuwire.telemetry.event_block import only
from gpuwire.telemetry.log_tail import LogTail
from gpuwire.telemetry.plain import to_json
from gpuwire.telemetry.snapshots import (
    NO_EVENTS,
    CacheCounts,
    DeviceSnapshot,
    EventBlock,
    GraphDrawing,
    GraphSnapshot,
    HostSnapshot,
    KernelSample,
    ServerSnapshot,
    SessionSnapshot,
    Totals,
)
from gpuwire.telemetry.traffic import Traffic
from gpuwire.wire.limits import WireLimits

INTERVAL_SECONDS = 0.25
LEASE_SECONDS = 2.0
"""How long a host notes events after it was last asked."""
ANSWER_SECONDS = 0.2
"""A host that has not answered by then is shown as busy, with what it said last."""
KEPT_MOMENTS = 8
"""Moments that wait for one viewer."""
MAX_VIEWERS = 32
MAX_TOLD_BYTES = WireLimits().max_facts_bytes


@dataclass(frozen=True, slots=True)
class Sight:
    """What a viewer may see. `token` None: everything. A token's name: devices and traffic as a
    whole, and of sessions, graphs and operations only those opened with it; no log, no kernels."""

    token: str | None = None


_NOTHING = HostSnapshot(0.0, "", 0, 0, 0, (), (), CacheCounts(), (), NO_EVENTS, 0, (), (), ())
"""Of a host that has said nothing."""


@dataclass(frozen=True, slots=True)
class _Moment:
    moment: float
    totals: Totals
    devices: tuple[DeviceSnapshot, ...]
    sessions: tuple[SessionSnapshot, ...]
    graphs: tuple[GraphSnapshot, ...]
    events: tuple[tuple[int, EventBlock], ...]
    dropped: int
    samples: tuple[tuple[int, KernelSample], ...]


def sight_of(grant: Grant) -> Sight:
    """What the holder of a token may see: with the server's own token, `default`, everything; with
    another, what is its own."""
    return Sight(None if grant.sees_all else grant.name)


class Watching:
    """The viewers of one server, and the questions asked for them."""

    def __init__(
        self, devices: Sequence[ServedDevice], roster: Roster, log: LogTail, name: str
    ) -> None:
        self._devices = devices
        self._roster = roster
        self._log = log
        self._name = name
        self._traffic = Traffic()
        self._views: set[View] = set()
        self._asking: asyncio.Task[None] | None = None
        self._latest: _Moment | None = None
        self._said: dict[int, HostSnapshot] = {}
        """What each device's host said last."""
        self._questions: dict[int, asyncio.Task[HostSnapshot]] = {}
        """Questions that are not answered yet, by device."""

    def view(self, sight: Sight, *, closely: bool = False) -> View:
        """A new viewer; to be closed. While one watches `closely`, more launches are timed than
        work does not notice. `QuotaExceeded` above `MAX_VIEWERS`."""
        if len(self._views) >= MAX_VIEWERS:
            raise QuotaExceeded(
                f"{MAX_VIEWERS} viewers watch this server, as many as it takes; close one first",
                quota="viewers",
                limit=MAX_VIEWERS,
            )
        view = View(sight, self._shown, self._closed, closely=closely)
        self._views.add(view)
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_for_ever())
        return view

    async def once(self, sight: Sight) -> ServerSnapshot:
        """Everything now, without operations and events unless others watch anyway."""
        # Asking beside the viewers would take their events away.
        moment = self._latest if self._views else None
        if moment is None:
            moment = await self._moment(0.0)
        return self._shown(_Cursor(self._traffic.last, 0), moment, sight, 0)

    async def drawing(
        self, sight: Sight, device: int, session: int, graph: int
    ) -> GraphDrawing | None:
        """The nodes of an op-graph; None where there is none that the viewer may see."""
        if not any(
            known.device == device and known.number == session
            for known in self._visible(self._roster.sessions(), sight)
        ):
            return None
        host = self._devices[device].present_host if device < len(self._devices) else None
        return None if host is None else await host.drawing(session, graph)

    def close(self) -> None:
        """Ends every view, and the questions that are under way."""
        for view in tuple(self._views):
            view.close()
        for question in self._questions.values():
            question.cancel()
        self._questions.clear()

    # --- Asking ---

    async def _ask_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            moment = self._latest = await self._moment(LEASE_SECONDS)
            for view in self._views:
                view.put(moment)
            due = max(due + INTERVAL_SECONDS, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _moment(self, lease_seconds: float) -> _Moment:
        answered = await self._ask_hosts(lease_seconds)
        totals = self._roster.totals()
        devices = tuple(self._device(device, answered) for device in self._devices)
        now = time.time()
        if lease_seconds:
            ops = [count for facts in answered.values() for count in facts.ops]
            saved = sum(device.cache.saved_bytes for device in devices)
            self._traffic.add(now, totals, saved, ops)
        hosted = {
            (index, told.session): told
            for index, facts in self._said.items()
            for told in facts.sessions
        }
        sessions = []
        for session in self._roster.sessions():
            known = hosted.get((session.device, session.number))
            if known is not None:
                session = replace(session, tensors=known.tensors, memory_bytes=known.memory_bytes)
            sessions.append(session)
        return _Moment(
            now,
            totals,
            devices,
            tuple(sessions),
            tuple(
                replace(graph, device=index)
                for index, facts in self._said.items()
                for graph in facts.graphs or ()
            ),
            tuple((index, facts.events) for index, facts in answered.items()),
            sum(facts.dropped for facts in answered.values()),
            tuple((index, timed) for index, facts in answered.items() for timed in facts.samples),
        )

    async def _ask_hosts(self, lease_seconds: float) -> dict[int, HostSnapshot]:
        """What the hosts answered that did so in time."""
        for device in self._devices:
            host = device.present_host
            if host is None:
                self._said.pop(device.index, None)
            elif device.index not in self._questions:
                closely = any(view.closely for view in self._views)
                question = asyncio.ensure_future(host.facts(lease_seconds, closely=closely))
                question.add_done_callback(_looked_at)
                self._questions[device.index] = question
        if self._questions:
            await asyncio.wait(self._questions.values(), timeout=ANSWER_SECONDS)
        answered = {}
        for index, question in tuple(self._questions.items()):
            if not question.done():
                continue
            del self._questions[index]
            try:
                answered[index] = _completed(question.result(), self._said.get(index, _NOTHING))
                self._said[index] = answered[index]
            except GpuwireError:
                # The host is gone; its supervision has logged why, and the state shows it.
                self._said.pop(index, None)
        return answered

    def _device(self, device: ServedDevice, answered: dict[int, HostSnapshot]) -> DeviceSnapshot:
        info, said = device.info, self._said.get(device.index, _NOTHING)
        state = device.state
        if state == "ready" and device.index not in answered:
            state = "busy"
        return DeviceSnapshot(
            info.index,
            info.name,
            info.backend,
            info.kind,
            state,
            device.restarts,
            said.timing,
            said.in_use_bytes,
            said.reserved_bytes,
            said.failures,
            said.pools,
            said.cache,
            said.kernels or (),
            said.cpu_seconds,
            said.fused,
            said.unfused,
        )

    # --- Showing ---

    def _shown(self, cursor: _Cursor, moment: _Moment, sight: Sight, missed: int) -> ServerSnapshot:
        """A moment as far as `sight` goes, with what is new since `cursor`."""
        whole = sight.token is None
        sessions = self._visible(moment.sessions, sight)
        own = {(session.device, session.number) for session in sessions}
        devices = moment.devices
        if not whole:
            devices = tuple(replace(device, kernels=()) for device in devices)
        traffic = self._traffic.since(cursor.traffic)
        log = self._log.since(cursor.log) if whole else ()
        cursor.traffic, cursor.log = self._traffic.last, self._log.written
        return ServerSnapshot(
            moment.moment,
            self._name,
            len(self._views),
            missed,
            whole,
            moment.totals,
            devices,
            sessions,
            tuple(graph for graph in moment.graphs if (graph.device, graph.session) in own),
            traffic,
            moment.events if whole else _own_events(moment.events, own),
            moment.dropped if whole else 0,
            tuple(timed for timed in moment.samples if (timed[0], timed[1].session) in own),
            log,
        )

    def _visible(
        self, sessions: tuple[SessionSnapshot, ...], sight: Sight
    ) -> tuple[SessionSnapshot, ...]:
        if sight.token is None:
            return sessions
        return tuple(session for session in sessions if session.token == sight.token)

    def _closed(self, view: View) -> None:
        self._views.discard(view)
        if not self._views and self._asking is not None:
            self._asking.cancel()
            self._asking = self._latest = None
            self._traffic.pause()


@dataclass(slots=True)
class _Cursor:
    """What a viewer has seen."""

    traffic: int = 0
    log: int = 0


class View:
    """One viewer. Use it in a `with` statement, or close it."""

    def __init__(
        self,
        sight: Sight,
        shown: Callable[[_Cursor, _Moment, Sight, int], ServerSnapshot],
        closed: Callable[[View], None],
        *,
        closely: bool = False,
    ) -> None:
        self.sight = sight
        self.closely = closely
        self.is_closed = False
        self._shown = shown
        self._told_closed = closed
        self._moments: deque[_Moment] = deque(maxlen=KEPT_MOMENTS)
        self._missed = 0
        self._cursor = _Cursor()
        self._more = asyncio.Event()

    async def next(self) -> ServerSnapshot | None:
        """The next moment, as soon as there is one; None once the view is closed."""
        while not self._moments:
            if self.is_closed:
                return None
            self._more.clear()
            await self._more.wait()
        return self._shown(self._cursor, self._moments.popleft(), self.sight, self._missed)

    def put(self, moment: _Moment) -> None:
        """The server's next moment."""
        if len(self._moments) == KEPT_MOMENTS:
            self._missed += 1
        self._moments.append(moment)
        self._more.set()

    def close(self) -> None:
        """Ends the view; once is enough."""
        if not self.is_closed:
            self.is_closed = True
            self._told_closed(self)
            self._more.set()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _own_events(
    events: tuple[tuple[int, EventBlock], ...], own: set[tuple[int, int]]
) -> tuple[tuple[int, EventBlock], ...]:
    return tuple(
        (index, only(block, {number for device, number in own if device == index}))
        for index, block in events
    )


def _completed(said: HostSnapshot, before: HostSnapshot) -> HostSnapshot:
    """A snapshot with what was told before and has been left out."""
    if said.kernels is not None:
        return said
    return replace(said, kernels=before.kernels, graphs=before.graphs)


def _looked_at(question: asyncio.Task[HostSnapshot]) -> None:
    # A host that has gone is no news to a question that nobody waits for any more.
    if not question.cancelled():
        question.exception()


def told(snapshot: ServerSnapshot) -> bytes:
    """A snapshot for the wire, which carries `MAX_TOLD_BYTES` at once: what is longest and matters
    least is left out where it must be."""
    for shorter in (
        snapshot,
        replace(snapshot, events=(), log=snapshot.log[-30:]),
        replace(snapshot, events=(), samples=(), log=(), graphs=snapshot.graphs[:20]),
        replace(snapshot, events=(), samples=(), log=(), graphs=(), traffic=snapshot.traffic[-8:]),
    ):
        data = to_json(shorter)
        if len(data) <= MAX_TOLD_BYTES:
            return data
    few = replace(snapshot, events=(), samples=(), log=(), graphs=(), traffic=(), sessions=())
    return to_json(few)
