"""Windows on a stream's time, for a session to know how long its work takes on the device.

Streams of several sessions may share one of the device's, and their work is then in the number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gpuwire.compute.completion import Completion
from gpuwire.compute.properties import TimingMethod
from gpuwire.errors import ArgumentError, ExecutionError, GpuwireError, MalformedMessage
from gpuwire.host.dataflow import Dataflow
from gpuwire.host.device import Device
from gpuwire.host.work import Stream, Window
from gpuwire.ids import RequestId
from gpuwire.wire.device_tasks import EndProfile, ProfileTime, StartProfile
from gpuwire.wire.fields import breached
from gpuwire.wire.messages import Done, Failed, Reply
from gpuwire.wire.records import to_record

MAX_WINDOWS = 1024
"""Of one session, open at once."""


@dataclass(slots=True, eq=False)
class _Profile:
    stream: Stream
    window: Window
    token: int | None = None
    """The compute server's; None until it is open."""


class Profiles:
    """The windows of one session."""

    def __init__(self, device: Device, dataflow: Dataflow, reply: Callable[[Reply], None]) -> None:
        self._device = device
        self._dataflow = dataflow
        self._reply = reply
        self._open: dict[RequestId, _Profile] = {}
        self._running: set[asyncio.Task[None]] = set()

    def start(self, task: StartProfile) -> None:
        """Opens a window once what was asked for before on its stream has ended, and says so."""
        if task.request in self._open:
            raise MalformedMessage(f"request {task.request} is a window already", what="request")
        if len(self._open) >= MAX_WINDOWS:
            raise breached("profiling windows", len(self._open) + 1, MAX_WINDOWS)
        profile = _Profile(self._dataflow.stream(task.stream), Window())
        self._open[task.request] = profile
        self._dataflow.when_all_settled(
            task.stream, lambda: self._run(task.request, lambda: self._begin(task.request, profile))
        )

    def end(self, task: EndProfile) -> None:
        """Closes a window once what was asked for within is on its way, and answers with its
        time."""
        profile = self._open.pop(task.request, None)
        if profile is None or profile.token is None:
            error = ArgumentError(f"no profiling window {task.request} is open")
            self._reply(Failed(task.request, to_record(error), 0))
            return
        self._dataflow.when_all_settled(task.stream, lambda: self._end(task.request, profile))

    def close(self) -> None:
        """Drops every window."""
        for running in self._running:
            running.cancel()
        for profile in self._open.values():
            if profile.token is not None:
                self._device.server.abandon_profile(profile.stream.number, profile.token)
        self._open.clear()

    async def _begin(self, request: RequestId, profile: _Profile) -> None:
        server, stream = self._device.server, profile.stream
        await server.sync((), stream.number)
        profile.token = server.start_profile(stream.number)
        stream.windows.append(profile.window)
        self._reply(Done(request))

    def _end(self, request: RequestId, profile: _Profile) -> None:
        """Closes a window at once, before whatever comes next."""
        assert profile.token is not None
        completion = self._device.server.end_profile(profile.stream.number, profile.token)
        profile.stream.windows.remove(profile.window)
        cause = profile.window.cause
        self._run(request, lambda: self._tell(request, completion, cause))

    async def _tell(
        self, request: RequestId, completion: Completion[float], cause: GpuwireError | None
    ) -> None:
        server = self._device.server
        if cause is not None:
            spoiled = ExecutionError(
                f"work inside the profiled block failed, so its time means nothing: {cause}"
            )
            spoiled.__cause__ = cause
            raise spoiled
        try:
            seconds = await completion
        except ExecutionError as error:
            # Its text may be about another session's work.
            raise ExecutionError(
                "another session's work on the same stream of the device failed meanwhile, so the "
                "time means nothing: measure again"
            ) from (error if server.lost() else None)
        by_device = server.timing_method is TimingMethod.DEVICE
        self._reply(ProfileTime(request, max(seconds, 0.0), by_device))

    def _run(self, request: RequestId, work: Callable[[], Awaitable[None]]) -> None:
        async def answered() -> None:
            try:
                await work()
            except GpuwireError as error:
                self._device.note(error)
                self._reply(Failed(request, to_record(error), 0))

        running = asyncio.ensure_future(answered())
        self._running.add(running)
        running.add_done_callback(self._running.discard)
