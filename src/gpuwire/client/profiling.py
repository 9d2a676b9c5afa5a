"""Taking a profile: the client's own timeline, and what the server tells meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuwire.client.loop_thread import LoopThread
from gpuwire.client.session import Session
from gpuwire.client.timeline import TimedSink, Timeline
from gpuwire.client.timeline_file import ServerSide, trace_file
from gpuwire.errors import ArgumentError, GpuwireError
from gpuwire.telemetry.event_block import unpacked
from gpuwire.telemetry.snapshots import ServerSnapshot

SESSION_LETTERS = 8
"""Of its id in hexadecimal, by which a server names a session."""


@contextmanager
def profiled(
    session: Session, loop: LoopThread, path: Path, sync: Callable[[], None]
) -> Iterator[None]:
    """See `Device.timeline`."""
    if session.timeline is not None:
        raise ArgumentError("a profile of this device is being taken already")
    file = path.open("wb")  # What cannot be written is known before anything is measured.
    with file:
        telling = loop.run(_Telling.begin(session))
        timeline = session.timeline = Timeline()
        session.recorder.time_recording(lambda sink: TimedSink(sink, timeline))
        try:
            try:
                yield
                sync()
            finally:
                session.recorder.time_recording(None)
                session.timeline = None
        finally:
            server = loop.run(telling.end(time.time()))
            file.write(trace_file(timeline, server, session.name))


class _Telling:
    """A viewer beside the session, for as long as the profile takes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._name = session.id.hex()[:SESSION_LETTERS]
        self._side = ServerSide()
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last = float("inf")
        self._task = asyncio.create_task(self._watch())

    @classmethod
    async def begin(cls, session: Session) -> _Telling:
        """Returns when the server notes events. Raises as connecting does."""
        telling = cls(session)
        await asyncio.wait((telling._first, telling._task), return_when=asyncio.FIRST_COMPLETED)
        if not telling._first.done():
            telling._task.result()
        return telling

    async def end(self, moment: float) -> ServerSide:
        """What was told up to that moment by this machine's clock. If the server has gone, what
        it told before."""
        self._last = moment
        try:
            await self._task
        except GpuwireError:
            # The program's own next call on the device says why.
            return self._side
        return self._side

    async def _watch(self) -> None:
        side = self._side
        async with self._session.viewer() as viewer:
            while True:
                snapshot = await viewer.next()
                side.clock_offset = viewer.clock_offset
                side.clock_uncertainty = viewer.clock_uncertainty
                if self._first.done():
                    self._take(snapshot)
                else:
                    self._first.set_result(None)
                if snapshot.moment - side.clock_offset > self._last:
                    # Timed launches are read with the snapshot after their end.
                    self._take(await viewer.next())
                    return

    def _take(self, snapshot: ServerSnapshot) -> None:
        own = {(s.device, s.number) for s in snapshot.sessions if s.name == self._name}
        for at, block in snapshot.events:
            self._side.events += [e for e in unpacked(block) if (at, e.session) in own]
        self._side.samples += [s for at, s in snapshot.samples if (at, s.session) in own]
        self._side.dropped += snapshot.dropped
