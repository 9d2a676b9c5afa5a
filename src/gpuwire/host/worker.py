"""The device host's loop: what the front says goes to the sessions, which take turns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING

from gpuwire.compute.submissions import Submission
from gpuwire.config import Config, LoggerConfig
from gpuwire.config.models import LogLevel
from gpuwire.errors import GpuwireError, ProtocolError
from gpuwire.host.black_box import BlackBox
from gpuwire.host.channel import Channel
from gpuwire.host.channel_messages import (
    AskFacts,
    AskGraph,
    ChannelMessage,
    Configure,
    DownloadCancelled,
    EndSession,
    Facts,
    HostFailed,
    OpenSession,
    Ping,
    Pong,
    Pull,
    Ready,
    RepliesWritten,
    SessionBroken,
    SessionEnded,
    SlotFree,
    Stop,
    Tasks,
    Traced,
    UploadBroken,
    UploadChunk,
)
from gpuwire.host.device import Device
from gpuwire.host.envelopes import pack_devices, pack_error, wire_limits
from gpuwire.host.graph_table import GraphBounds
from gpuwire.host.opening import open_device
from gpuwire.host.session import Ends, HostSession
from gpuwire.host.slots import SlotMemory, SlotPool
from gpuwire.host.verdicts import verdict
from gpuwire.host.watchdog import Watchdog
from gpuwire.host.watching import HostWatch
from gpuwire.ids import RequestId
from gpuwire.telemetry.logs import open_logger
from gpuwire.telemetry.plain import to_json
from gpuwire.telemetry.trace_context import TraceContext
from gpuwire.telemetry.tracing import open_tracer
from gpuwire.wire.limits import WireLimits

if TYPE_CHECKING:
    from gpuwire.host.tracing import HostTracing

EXPIRED = 4
"""Exit code after a submission ran past its time limit."""
CHUNK_RETRY_SECONDS = 0.001
"""An upload that is ahead of the device is looked at again after so long."""
IDLE_SECONDS = 0.001
"""Launches are handed to the device after so long without further work, at the latest."""


class Worker:
    """One device host. `run` ends when the front says stop, or is gone, or the device is lost."""

    def __init__(self, memory: SlotMemory) -> None:
        self._memory = memory
        self._box = BlackBox(memory.black_box)
        self._watchdog: Watchdog | None = None
        self._slots = SlotPool(SlotMemory.to_front)
        self._sessions: dict[int, HostSession] = {}
        self._turns: deque[HostSession] = deque()
        self._chunks: deque[UploadChunk] = deque()
        self._turn_due = False
        self._idle: asyncio.TimerHandle | None = None
        self._flushed = 0.0
        """When launches were last handed to the device, by `time.monotonic()`."""
        self._limits = WireLimits()
        self._graph_bounds = GraphBounds(0, 0)
        self._log_level: LogLevel = "disabled"
        self._device: Device | None = None
        self._watch: HostWatch | None = None
        self._tracing: HostTracing | None = None
        self._channel: Channel | None = None
        self._failure: BaseException | None = None
        self._ended = asyncio.Event()

    async def run(self, connected: socket.socket) -> BaseException | None:
        """Serves the front at the other end of a socket pair. Returns the error that ended the
        device, or None."""
        self._channel = Channel(self._take, self._ended.set)
        await self._channel.open(connected)
        await self._ended.wait()
        for number in tuple(self._sessions):
            self._end_session(number)
        self._channel.close()
        if self._device is not None:
            self._device.server.close()
        if self._watchdog is not None:
            self._watchdog.close()
        if self._tracing is not None:
            self._tracing.close()
        return self._failure

    # --- Messages ---

    def _take(self, message: ChannelMessage) -> None:
        try:
            self._handle(message)
        except Exception as error:  # noqa: BLE001 - a fault of ours: whoever starts us anew is told
            traceback.print_exc()
            self._end_process(error)

    def _handle(self, message: ChannelMessage) -> None:
        match message:
            case Tasks(number, count, body):
                self._add_frame(number, count, body)
            case Traced(number, high, low, span, flags):
                if session := self._sessions.get(number):
                    session.trace_next(TraceContext(high << 64 | low, span, flags))
            case SlotFree(slot):
                self._slots.release(slot)
            case UploadChunk():
                self._add_chunk(message)
            case Pull(number, request, size):
                if session := self._sessions.get(number):
                    session.reads.pull(RequestId(request), size)
            case RepliesWritten(number, size):
                if session := self._sessions.get(number):
                    session.reads.replies_written(size)
            case UploadBroken(number, request):
                self._write_chunks()
                if session := self._sessions.get(number):
                    session.uploads.broken(RequestId(request))
            case DownloadCancelled(number, request):
                if session := self._sessions.get(number):
                    session.reads.cancel(RequestId(request))
            case OpenSession():
                self._open_session(message)
            case EndSession(number):
                self._send(SessionEnded(number, self._end_session(number)))
            case Ping(number):
                self._send(Pong(number))
            case AskFacts(number, lease_ms, closely):
                self._tell_facts(number, lease_ms, closely=bool(closely))
            case AskGraph(number, session_number, graph):
                self._tell_graph(number, session_number, graph)
            case Configure(adapter, payload):
                self._configure(adapter, Config.model_validate_json(bytes(payload)))
            case Stop():
                self._ended.set()

    def _configure(self, adapter: int, config: Config) -> None:
        self._limits = wire_limits(config.server)
        self._graph_bounds = GraphBounds(config.server.max_graphs, config.server.max_graph_bytes)
        self._log_level = config.server.logger.level
        try:
            opened = open_device(adapter, config, self._end_process)
        except GpuwireError as error:
            self._end_process(error)
            return
        self._device = opened.device
        device = opened.device
        self._watch = HostWatch(device.server, device.graphs, device.lowering.operations)
        if config.server.tracing:
            self._trace_frames(opened.device, self._watch)
        seconds = config.compute.watchdog_seconds
        if seconds:
            server = opened.device.server
            self._watchdog = Watchdog(server, seconds, lambda stuck: self._expired(stuck, seconds))
        self._send(Ready(opened.adapters, pack_devices((opened.info,))))

    def _trace_frames(self, device: Device, watch: HostWatch) -> None:
        from gpuwire.host.tracing import HostTracing

        logger = open_logger(LoggerConfig(level="basic", stderr=True), "traces")
        tracer = open_tracer(True, "gpuwire-device-host", logger, key="server.tracing")
        assert tracer is not None
        self._tracing = HostTracing(tracer, watch.kernels, device.server.timing_method.value)

    def _open_session(self, opening: OpenSession) -> None:
        assert self._device is not None and self._channel is not None and self._watch is not None

        def wake() -> None:
            self._queue(session)

        ends = Ends(
            self._channel.send,
            wake,
            self._memory,
            self._slots,
            self._limits,
            self._graph_bounds,
            self._watch,
            self._log_level,
            self._tracing,
        )
        session = self._sessions[opening.session] = HostSession(opening, self._device, ends)

    def _add_frame(self, number: int, count: int, body: bytes | bytearray | memoryview) -> None:
        session = self._sessions.get(number)
        if session is None:
            return
        session.add_frame(count, body)
        if self._turns:
            self._queue(session)
        else:
            self._take_turn(session)

    def _add_chunk(self, chunk: UploadChunk) -> None:
        """A large upload fills all slots. Its chunks take turns with what else the loop has to do,
        so that the small tasks behind them do not wait for all of them."""
        self._chunks.append(chunk)
        if len(self._chunks) == 1:
            asyncio.get_running_loop().call_soon(self._write_next_chunk)

    def _write_next_chunk(self) -> None:
        if not self._chunks:
            return
        loop, chunk = asyncio.get_running_loop(), self._chunks[0]
        session = self._sessions.get(chunk.session)
        if session is not None and not session.uploads.has_room(
            RequestId(chunk.request), chunk.size
        ):
            loop.call_later(CHUNK_RETRY_SECONDS, self._write_next_chunk)
            return
        self._write_chunk(self._chunks.popleft())
        if self._chunks:
            loop.call_soon(self._write_next_chunk)

    def _write_chunks(self) -> None:
        while self._chunks:
            self._write_chunk(self._chunks.popleft())

    def _write_chunk(self, chunk: UploadChunk) -> None:
        session = self._sessions.get(chunk.session)
        if session is not None:
            with self._memory.slot(chunk.slot, chunk.size) as data:
                session.uploads.chunk(RequestId(chunk.request), chunk.offset, data)
        self._send(SlotFree(chunk.slot))

    def _end_session(self, number: int) -> int:
        session = self._sessions.pop(number, None)
        return session.close() if session is not None else 0

    def _break_session(self, session: HostSession, error: Exception) -> None:
        self._end_session(session.number)
        self._send(SessionBroken(session.number, pack_error(error)))

    # --- Being watched ---

    def _tell_facts(self, number: int, lease_ms: int, *, closely: bool) -> None:
        watch = self._watch
        if watch is None:
            return
        if not lease_ms:
            watch.tell_all()
        else:
            watch.watch(lease_ms / 1000, closely=closely)
            asyncio.get_running_loop().call_later(lease_ms / 1000 + 0.01, watch.expire)
        facts = [session.facts() for session in self._sessions.values()]
        self._send(Facts(number, to_json(watch.snapshot(facts))))

    def _tell_graph(self, number: int, session_number: int, graph: int) -> None:
        session = self._sessions.get(session_number)
        drawing = session.drawing(graph) if session is not None else None
        self._send(Facts(number, b"" if drawing is None else to_json(drawing)))

    # --- Turns ---

    def _queue(self, session: HostSession) -> None:
        """Gives a session a turn after those that have one coming."""
        if session.has_work and not session.has_turn:
            session.has_turn = True
            self._turns.append(session)
            self._plan_turn()

    def _plan_turn(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_due = False
        session = self._turns.popleft()
        session.has_turn = False
        self._take_turn(session)
        if self._turns:
            self._plan_turn()

    def _take_turn(self, session: HostSession) -> None:
        try:
            session.take_turn()
        except ProtocolError as error:
            self._break_session(session, error)
        except Exception as error:  # noqa: BLE001 - a fault of ours, met by one session
            traceback.print_exc()
            self._break_session(session, error)
        self._queue(session)
        if not self._turns:
            self._plan_flush()

    def _plan_flush(self) -> None:
        """Launches queued by the last turn must not wait for a neighbour that never comes, and
        after a pause for none at all: a device with nothing to do begins at once."""
        if self._idle is not None:
            return
        assert self._device is not None
        if time.monotonic() - self._flushed > IDLE_SECONDS and self._device.server.is_idle:
            self._flush()
        else:
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._flush)

    def _flush(self) -> None:
        self._idle = None
        assert self._device is not None
        for session in self._sessions.values():
            self._box.note(session.number)
            for stream in session.launched_streams():
                self._flushed = time.monotonic()
                # What failed is in its tensors already: `check` follows every operation.
                with contextlib.suppress(GpuwireError):
                    self._device.server.flush(stream)
        self._box.clear()

    # --- The end ---

    def _end_process(self, error: BaseException) -> None:
        """Without its device the process has no purpose: the front starts another."""
        if self._failure is None:
            self._failure = error
            self._send(HostFailed(pack_error(error)))
            self._ended.set()

    def _expired(self, stuck: Submission, seconds: float) -> None:
        """On the watchdog's thread: nothing that runs on a device can be stopped, so the process
        ends, and tells by its black box for whose work."""
        self._box.condemn(*verdict(stuck, seconds, tuple(self._sessions.values())))
        os._exit(EXPIRED)

    def _send(self, message: ChannelMessage) -> None:
        assert self._channel is not None
        self._channel.send(message)
