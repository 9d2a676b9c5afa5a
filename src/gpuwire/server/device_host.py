"""One device host: its process, the channel to it, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gpuwire.config import Config
from gpuwire.errors import DeviceLost, GpuwireError
from gpuwire.host.black_box import BlackBox, LastWords
from gpuwire.host.channel import Channel
from gpuwire.host.channel_messages import (
    AskFacts,
    AskGraph,
    ChannelMessage,
    Configure,
    EndSession,
    Facts,
    HostFailed,
    OpenSession,
    Payload,
    Ping,
    Pong,
    Ready,
    SessionEnded,
    SlotFree,
    Stop,
    ToHost,
    UploadChunk,
)
from gpuwire.host.envelopes import unpack_devices, unpack_error
from gpuwire.host.slots import SlotMemory, SlotPool, anonymous_file
from gpuwire.server.host_output import HostOutput
from gpuwire.telemetry.logs import Logger
from gpuwire.telemetry.plain import from_json
from gpuwire.telemetry.snapshots import GraphDrawing, HostSnapshot
from gpuwire.wire.messages import DeviceInfo

STOP_SECONDS = 2.0
"""A host that was told to stop, or whose channel ended, is killed after so long."""
PING_SECONDS = 1.0


class HostedSession(Protocol):
    """A session, as its device host sees it."""

    def handle_host(self, message: ChannelMessage) -> None:
        """Takes a message about this session."""

    def host_lost(self, reason: str, error: GpuwireError | None) -> None:
        """The host is gone, and all that the session had there; `error` where it is known that
        this session's work ended it."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a host says once it is ready."""

    info: DeviceInfo
    adapters: int
    """How many this machine has."""


class DeviceHost:
    """A device host from its start to its end. Make one with `start`; `wait_ended` must be awaited
    by someone, since it is what tells the sessions."""

    def __init__(
        self, process: asyncio.subprocess.Process, memory: SlotMemory, output: HostOutput
    ) -> None:
        self._process = process
        self._memory = memory
        self._output = output
        self._channel: Channel | None = None
        self._channel_lost = asyncio.Event()
        self._ready: asyncio.Future[HostFacts] = asyncio.get_running_loop().create_future()
        self._failure: GpuwireError | None = None
        self._kill_reason: str | None = None
        self.is_excused = False
        """Whether it died of a session's kernel, and not of itself. Known once it has ended."""
        self._sessions: dict[int, HostedSession] = {}
        self._ending: dict[int, asyncio.Future[int]] = {}
        self._opened = 0
        self._slots = SlotPool(SlotMemory.to_host)
        self._ponged = asyncio.Event()
        self._asked: dict[int, asyncio.Future[Payload]] = {}
        self._questions = 0

    @classmethod
    async def start(cls, adapter: int, config: Config, logger: Logger) -> DeviceHost:
        """Starts the process for one of this machine's adapters. It is ready later."""
        ours, theirs = socket.socketpair()
        descriptor = anonymous_file(SlotMemory.size)
        try:
            memory = SlotMemory(descriptor)
            process = await asyncio.create_subprocess_exec(
                # -P: a module in the working directory must not stand in for one of ours.
                *(sys.executable, "-P", "-m", "gpuwire.host"),
                *("--channel", str(theirs.fileno()), "--slots", str(descriptor)),
                *("--parent", str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(), descriptor),
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(descriptor)
        assert process.stderr is not None
        host = cls(process, memory, HostOutput(process.stderr, logger, f"device host {adapter}"))
        host._channel = await Channel.over(ours, host._handle, host._channel_lost.set)
        host.send(Configure(adapter, config.model_dump_json().encode()))
        return host

    @property
    def alive(self) -> bool:
        """Whether it can be talked to."""
        return not self._channel_lost.is_set()

    @property
    def process_id(self) -> int:
        return self._process.pid

    async def ready(self) -> HostFacts:
        """Returns once the host has its device. Raises the error that it could not start with."""
        return await asyncio.shield(self._ready)

    # --- Sessions ---

    def open(self, session: HostedSession, max_memory_bytes: int, max_upload_bytes: int) -> int:
        """Opens a session; returns its number here. `DeviceLost` if the host is gone."""
        if not self.alive:
            raise DeviceLost("the device host has ended; connect again")
        self._opened += 1
        self._sessions[self._opened] = session
        self.send(OpenSession(self._opened, max_memory_bytes, max_upload_bytes))
        return self._opened

    async def end(self, number: int) -> int:
        """Ends a session; returns how many bytes of device memory that freed."""
        self._sessions.pop(number, None)
        if not self.alive:
            return 0
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ending[number] = ended
        self.send(EndSession(number))
        return await ended

    def send(self, message: ToHost) -> None:
        """Sends a message; never waits, and does nothing once the host is gone."""
        if self._channel is not None:
            self._channel.send(message)

    async def send_chunk(
        self, session: int, request: int, offset: int, data: bytearray | memoryview
    ) -> None:
        """Sends bytes of an upload through the next slot that is free; at most `SLOT_BYTES`."""
        slot = await self._slots.acquire()
        if not self.alive:
            return
        with self._memory.slot(slot, len(data)) as target:
            target[:] = data
        self.send(UploadChunk(session, request, offset, slot, len(data)))

    def take_chunk(self, slot: int, size: int) -> bytes:
        """The bytes of a download that the host put into a slot, which it gets back."""
        with self._memory.slot(slot, size) as source:
            data = bytes(source)
        self.send(SlotFree(slot))
        return data

    # --- Being watched ---

    async def facts(self, lease_seconds: float, *, closely: bool = False) -> HostSnapshot:
        """What the host says of itself, as soon as it turns its loop; it notes events for so long
        from now, and times more launches if `closely`. `DeviceLost` if it is gone."""
        lease_ms = round(lease_seconds * 1000)
        answer = await self._ask(lambda number: AskFacts(number, lease_ms, int(closely)))
        return from_json(HostSnapshot, bytes(answer))

    async def drawing(self, session: int, graph: int) -> GraphDrawing | None:
        """An op-graph of a session; None where it has none of that number any more."""
        answer = await self._ask(lambda number: AskGraph(number, session, graph))
        return from_json(GraphDrawing, bytes(answer)) if len(answer) else None

    async def _ask(self, question: Callable[[int], ToHost]) -> Payload:
        if not self.alive:
            raise DeviceLost("the device host has ended")
        self._questions += 1
        number = self._questions
        answer: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self.send(question(number))
        try:
            return await answer
        finally:
            self._asked.pop(number, None)

    # --- Its end ---

    async def watch(self, seconds: float) -> None:
        """Kills the host if it does not turn its loop for so long. Runs until cancelled."""
        number = 0
        while True:
            await asyncio.sleep(PING_SECONDS)
            number += 1
            self._ponged.clear()
            self.send(Ping(number))
            try:
                await asyncio.wait_for(self._ponged.wait(), seconds)
            except TimeoutError:
                self.kill(f"gave no sign of life for {seconds:g} s")

    def stop(self) -> None:
        """Tells the host to end; `wait_ended` sees it."""
        self.send(Stop())

    def kill(self, reason: str) -> None:
        """Ends the process now; sessions are told the reason."""
        self._kill_reason = reason
        if self._process.returncode is None:
            self._process.kill()

    async def wait_ended(self) -> str:
        """Waits for the process's end, tells its sessions and returns the reason. Nothing of the
        host is left then."""
        await self._channel_lost.wait()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self.kill("closed its channel and went on")
            await self._process.wait()
        await self._output.ended()
        with self._memory.black_box as memory:
            words = BlackBox(memory).last_words()
        reason = self._reason(words)
        self.is_excused = words.verdict is not None or bool(words.kernel)
        if not self._ready.done():
            self._ready.set_exception(self._failure or DeviceLost(reason, reason=reason))
            self._ready.exception()
        for ended in self._ending.values():
            if not ended.done():
                ended.set_result(0)
        for asked in tuple(self._asked.values()):
            if not asked.done():
                asked.set_exception(DeviceLost(reason, reason=reason))
        sessions, self._sessions = self._sessions, {}
        for number, session in sessions.items():
            session.host_lost(reason, _blame(words, number, reason))
        self._memory.close()
        return reason

    def _reason(self, words: LastWords) -> str:
        if self._failure is not None:
            return str(self._failure)
        if words.verdict is not None:
            return "the device host was ended because a session's work ran past its time limit"
        code = self._process.returncode
        assert code is not None
        if self._kill_reason is not None:
            return f"the device host {self._kill_reason} and was killed"
        if code < 0:
            how = f"was ended by signal {_signal_name(-code)}"
        else:
            how = f"ended with exit code {code}"
        if code:
            self._output.log_last_lines()
        return f"the device host {how}"

    # --- Messages ---

    def _handle(self, message: ChannelMessage) -> None:
        match message:
            case SlotFree(slot):
                self._slots.release(slot)
            case Ready(adapters, payload):
                (info,) = unpack_devices(payload)
                self._ready.set_result(HostFacts(info, adapters))
            case HostFailed(payload):
                self._failure = unpack_error(payload)
            case Pong():
                self._ponged.set()
            case Facts(number, payload):
                asked = self._asked.get(number)
                if asked is not None and not asked.done():
                    asked.set_result(payload)
            case SessionEnded(number, freed):
                ended = self._ending.pop(number, None)
                if ended is not None and not ended.done():
                    ended.set_result(freed)
            case _:
                session = self._sessions.get(message.session)  # type: ignore[union-attr]
                if session is not None:
                    session.handle_host(message)


def _blame(words: LastWords, session: int, reason: str) -> GpuwireError | None:
    """What a session is told of a host that died of its work."""
    if session in words.condemned:
        return words.verdict
    if session == words.session and words.kernel:
        return DeviceLost(
            f"{reason} over kernel {words.kernel!r} of this session, which it was handing to the "
            "device; every array of this session is lost, connect again",
            reason=reason,
            kernel=words.kernel,
        )
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
