"""A session: the asyncio core that both faces stand on."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuwire.client.batch import Batches, Upload
from gpuwire.client.connecting import (
    Admission,
    Link,
    Resumption,
)
from gpuwire.client.failures import failure
from gpuwire.client.forking import call_in_forked_child
from gpuwire.client.graph_cache import GraphCache
from gpuwire.client.graph_parts import GraphPart
from gpuwire.client.heartbeat import Heartbeats
from gpuwire.client.links import Links, Parts
from gpuwire.client.locations import LocationTable
from gpuwire.client.op_by_op import OpByOp
from gpuwire.client.pending import Completion, HostArray, PendingReplies, fresh
from gpuwire.client.reader import Reader
from gpuwire.client.recorder import Recorder, TaskSink
from gpuwire.client.stats import CacheUse, ServerCounts, Stats
from gpuwire.client.tensor import Tensor
from gpuwire.client.timeline import Timeline
from gpuwire.client.transfers import Transfer
from gpuwire.client.waking import Waker
from gpuwire.client.watching import Viewer
from gpuwire.client.writer import Writer
from gpuwire.config import RemoteConfig
from gpuwire.errors import (
    ArgumentError,
    DeviceClosed,
    GpuwireError,
    ProtocolError,
    RequestTimeout,
    SessionLost,
    UploadTooLarge,
)
from gpuwire.ids import RequestId, StreamId, TensorId
from gpuwire.ir.dtypes import dtype_by_name, dtype_of_numpy
from gpuwire.ir.tensors import TensorType
from gpuwire.telemetry.logs import Logger
from gpuwire.telemetry.savings import Savings
from gpuwire.transport import PathInfo
from gpuwire.wire.device_tasks import DescribeGraph, GraphDescribed
from gpuwire.wire.messages import INLINE_BYTES, Answer, Close, Heartbeat, Task
from gpuwire.wire.records import to_record

if TYPE_CHECKING:
    from gpuwire.client.tracing import Tracing

SNAPSHOT_BYTES = 1024 * 1024
"""The longest upload that is copied and sent behind the caller's back; a longer one is sent from
where it lies while the caller waits."""

HELD_BYTES_HIGH = 8 * 1024 * 1024
"""Recorded and not yet sent: above this a recording thread waits …"""
HELD_BYTES_LOW = 4 * 1024 * 1024
"""… until it is less than this."""

_GOODBYE_SECONDS = 2.0
_STUCK_SECONDS = 10.0
_STUCK_BYTES = 16 * 1024
"""Less than this in that time is heartbeats and repeats, no progress."""
_FRAME_BYTES = 1024 * 1024
_TASKS_PER_FRAME = 32_768


class Session:
    """One session with one device.

    Recording (`recorder`, `read`, `sync`, `upload`) may be called on any thread; everything else
    on the event loop that the session was opened on. When its link is lost, recording and waits go
    on while another is sought. The session ends once: by `close`, by the server's word, or because
    the link did not come back; from then on everything raises why.
    """

    def __init__(
        self,
        link: Link,
        admission: Admission,
        config: RemoteConfig,
        logger: Logger,
        address: str,
        viewer: Callable[[], AbstractAsyncContextManager[Viewer]],
        reopen: Callable[[Resumption, float], Awaitable[Link]],
        tracing: Tracing | None = None,
    ) -> None:
        """`reopen` tries to get another link for the session, for so many seconds."""
        self.info = admission.device
        self.dtypes = frozenset(dtype_by_name(name) for name in self.info.dtypes)
        self.limits = admission.limits
        self.address = address
        self.id = admission.session
        self.viewer = viewer
        """Opens a viewer of the same server, with the same token."""
        self.tracing = tracing
        """What OpenTelemetry is told; None where nothing is traced."""
        self.timeline: Timeline | None = None
        """Where what happens is noted while a profile is taken."""
        self.room = threading.Event()
        """Set while a recording thread need not wait."""
        self.room.set()
        self._logger = logger
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._ended: GpuwireError | None = None
        self._closing: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None

        dropped: deque[TensorId] = deque()
        told = deque() if config.graph_cache else dropped
        self._batches = Batches(
            told,
            flush_threshold=min(config.flush_threshold, _TASKS_PER_FRAME),
            flush_bytes_threshold=config.flush_bytes_threshold,
            frame_bytes=min(_FRAME_BYTES, link.wire.max_body_bytes // 4),
            origin=None if tracing is None else tracing.origin,
        )
        waker = Waker(
            self._loop,
            self._batches,
            send=lambda: self._writer.wake(),
            idle=lambda now: self.recorder.idle(now),
        )
        locations = LocationTable()
        self._savings = Savings(logger)
        self._counts = ServerCounts(logger)
        sink: TaskSink = OpByOp(self._batches)
        if config.graph_cache:
            sink = GraphCache(
                self._batches, dropped, told, clock=time.monotonic, savings=self._savings
            )
        self.recorder = Recorder(
            sink if tracing is None else tracing.sink(sink),
            dropped,
            lock=threading.RLock(),
            wake=waker.wake,
            locations=locations,
            dtypes=self.dtypes,
            device=self.name,
        )
        self._pending = PendingReplies(lambda failed: failure(failed, locations))
        self._writer = Writer(
            link, self._batches, config, logger, self._make_room, lambda: self.timeline, tracing
        )
        self._heartbeats = Heartbeats(
            config.heartbeat_seconds, lambda number: self._writer.send(Heartbeat(number))
        )
        self._reader = Reader(
            link,
            self._pending,
            self._writer,
            self._heartbeats,
            self.recorder.graph_missing,
            self._counts,
        )
        parts = Parts(self._reader, self._writer, self._heartbeats, self._pending)
        self._links = Links(link, admission, config, logger, parts, reopen, address)
        call_in_forked_child(self._leave_to_parent)

    @property
    def name(self) -> str:
        """The device as errors call it."""
        return f"{self.info.name} at {self.address}"

    @property
    def ended(self) -> GpuwireError | None:
        """Why the session ended; None while it is open."""
        return self._ended

    def raise_if_ended(self) -> None:
        """Raises why the session ended, if it did."""
        if self._ended is not None:
            raise fresh(self._ended)

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a forked child of the one that opened the session."""
        return os.getpid() != self._process

    @property
    def graphs_registered(self) -> int:
        """How many op-graphs the server was told."""
        return self._savings.registered

    @property
    def held_bytes(self) -> int:
        """Memory that recorded and unsent work occupies."""
        return self._batches.backlog_bytes + self._writer.held_bytes

    @property
    def path(self) -> PathInfo:
        """The way to the server, now; while the link is lost, as it was last."""
        return self._links.path

    @property
    def is_away(self) -> bool:
        """Whether its link is lost and another is sought."""
        return self._links.is_away

    def start(self) -> None:
        """Starts sending and receiving."""
        self._logger.basic(f"session {self.id.hex()} opened on {self.name}")
        self._running = self._loop.create_task(self._run())

    # --- On any thread -----------------------------------------------------------------------

    def read(
        self,
        stream: StreamId,
        tensor: Tensor,
        completion: Completion,
        transfer: Transfer | None = None,
    ) -> None:
        """Asks for a tensor's bytes; `completion` gets a host array of its own, or the error.
        `transfer` is told how far a long one is."""
        self.recorder.check_owner("read", tensor)
        request = self.recorder.request()
        self._pending.expect(request, tensor.type, completion, transfer)
        try:
            self.recorder.read(stream, request, tensor)
        except GpuwireError:
            self._pending.forget(request)
            raise

    def ask(
        self,
        task: Callable[[RequestId], Task],
        answer: type[Answer],
        completion: Completion,
        request: RequestId | None = None,
    ) -> RequestId:
        """Asks for something else: `task` of a request that is answered by an `answer`, which
        `completion` gets (None for `Done`). `request` is one that was answered before and is asked
        again."""
        request = self.recorder.request() if request is None else request
        self._pending.expect_answer(request, answer, completion)
        try:
            self.recorder.ask(task(request))
        except GpuwireError:
            self._pending.forget(request)
            raise
        return request

    def sync(self, completion: Completion) -> None:
        """Completes `completion` when all work recorded before has ended on the device."""
        request = self.recorder.request()
        self._pending.expect(request, None, completion)
        try:
            self.recorder.sync(request)
        except GpuwireError:
            self._pending.forget(request)
            raise

    def describe(self, part: GraphPart, completion: Completion) -> None:
        """Asks for the plan by which the server runs a part of a graph; `completion` gets a
        `GraphDescribed`."""
        self.ask(
            lambda request: DescribeGraph(request, part.definition), GraphDescribed, completion
        )

    def upload(
        self,
        stream: StreamId,
        array: HostArray,
        completion: Completion | None,
        transfer: Transfer | None = None,
    ) -> Tensor:
        """A tensor with the array's values at this moment.

        `array` is C-contiguous and little-endian, else `ArgumentError`. A short one is copied into
        its task. A longer one is copied too, unless there is a `completion`: then it is sent from
        where it lies, and may be changed when that completes. Raises `UnsupportedDType` and
        `UploadTooLarge`. `transfer` is told how far a longer one is.
        """
        type_ = self._type_to_upload(array)
        request = self.recorder.request()
        if array.nbytes <= INLINE_BYTES:
            if completion is not None:
                completion.set_result(None)
            return self.recorder.register(stream, request, type_, array.tobytes())
        is_snapshot = completion is None
        flat = array.reshape(-1).view(np.uint8)
        data = memoryview(flat.tobytes()) if is_snapshot else flat.data
        upload = Upload(request, data, is_snapshot, completion, transfer, array.itemsize)
        tensor = self.recorder.register(stream, request, type_, upload)
        if not is_snapshot:
            self.recorder.flush()
        return tensor

    def stats(self) -> Stats:
        """What has been sent and received."""
        path = self.path
        savings = self._savings
        known = savings.executions - savings.registered
        return Stats(
            frames_sent=self._writer.frames_sent,
            tasks_sent=self._writer.tasks_sent,
            bytes_sent=self._writer.bytes_sent,
            bytes_received=self._reader.bytes_received,
            upload_hits=self._writer.uploads.counts.hits,
            upload_misses=self._writer.uploads.counts.misses,
            upload_bytes_not_sent=self._writer.uploads.counts.bytes_not_sent,
            compression_saved_bytes=(
                self._writer.uploads.compression_saved_bytes + self._reader.compression_saved_bytes
            ),
            graphs_registered=savings.registered,
            graph_executions=savings.executions,
            graph_misses=savings.misses,
            client_cache=CacheUse(known, savings.registered, savings.evictions),
            server_cache=self._counts.cache,
            fused_ops=self._counts.fused,
            unfused_ops=self._counts.unfused,
            baseline_bytes=savings.baseline_bytes,
            actual_bytes=savings.actual_bytes,
            replies_pending=len(self._pending),
            resumptions=path.resumptions,
            rtt_seconds=path.rtt_seconds.smoothed,
            datagram_bytes=path.datagram_bytes,
            segmentation=path.offload,
        )

    # --- On the event loop's thread ----------------------------------------------------------

    async def ping(self) -> float:
        """Seconds of one round trip through the server's front, past everything queued."""
        self.raise_if_ended()
        return await self._heartbeats.ping()

    async def wait_sent(self) -> None:
        """Flushes, and returns when what was recorded is with the transport and every upload with
        the server."""
        self.recorder.flush()
        await self._unless_ended(self._writer.wait_sent())

    async def close(self) -> None:
        """Flushes, tells the server, and ends. Work that was sent is not waited for: `sync` does;
        nor is a link that is lost. May be called again."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        closed = DeviceClosed(f"the device {self.name} is closed; connect again")
        self.recorder.end(closed)
        self._links.seek_no_more()
        if self.is_away and self._running is not None:
            self._running.cancel()
        elif self._ended is None:
            with suppress(GpuwireError, TimeoutError):
                await self._unless_ended(self._sent_or_stuck())
                self._writer.send(Close(None))
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await self._unless_ended(self._writer.finish())
                    await self._links.present.connection.wait_closed()
        self._end(closed)
        self._links.present.connection.close()
        if self._running is not None:
            await asyncio.wait((self._running,))

    async def _sent_or_stuck(self) -> None:
        """Waits until everything is sent, while it goes on: a slow link takes its time, but a
        server that is there and takes nothing in must not hold up the end of a program."""
        sent = self._loop.create_task(self._writer.wait_sent())
        while not sent.done():
            before = self.path.bytes_sent
            await asyncio.wait((sent,), timeout=_STUCK_SECONDS)
            if self.path.bytes_sent - before < _STUCK_BYTES:
                break
        sent.cancel()

    async def _run(self) -> None:
        try:
            cause = await self._links.run()
            self._end(_gone(cause, self) if isinstance(cause, SessionLost) else cause)
            if isinstance(cause, ProtocolError):
                await self._tell(cause)
        finally:
            self._links.present.connection.close()

    async def _tell(self, error: ProtocolError) -> None:
        """Tells the server what it did wrong, unless it was the server that found the fault."""
        with suppress(GpuwireError, TimeoutError):
            self._writer.send(Close(to_record(error)))
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._writer.finish()

    def _end(self, cause: GpuwireError) -> None:
        """The one way a session ends; the first cause stands."""
        if self._ended is not None:
            return
        self.recorder.end(cause)
        self._ended = self.recorder.ended
        assert self._ended is not None
        self._logger.basic(f"session {self.id.hex()} ended: {self._ended}")
        self._writer.fail(self._ended)
        self._pending.fail_all(self._ended)
        self._heartbeats.fail(self._ended)
        self.room.set()

    async def _unless_ended(self, work: Coroutine[Any, Any, None]) -> None:
        """Waits for `work`, but not beyond the session's end, whose cause is then raised."""
        assert self._running is not None
        task = self._loop.create_task(work)
        await asyncio.wait((task, self._running), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            assert self._ended is not None
            raise fresh(self._ended)
        await task

    def _make_room(self) -> None:
        if self.held_bytes < HELD_BYTES_LOW and not self.room.is_set():
            self.room.set()

    # --- Checks and ends ---------------------------------------------------------------------

    def _type_to_upload(self, array: HostArray) -> TensorType:
        dtype = dtype_of_numpy(array.dtype)
        self.recorder.check_dtype(dtype, "upload")
        if not array.flags.c_contiguous or array.dtype.newbyteorder("<") != array.dtype:
            raise ArgumentError("an array to upload must be C-contiguous and little-endian")
        limit = self.limits.max_upload_bytes
        if limit and array.nbytes > limit:
            raise UploadTooLarge(
                f"an upload of {array.nbytes} bytes to {self.name}, which takes at most {limit}: "
                "upload it in parts and join them with concat",
                size=array.nbytes,
                limit=limit,
            )
        return TensorType(dtype, array.shape)

    def _leave_to_parent(self) -> None:
        """In a forked child: the loop's thread did not come along, and the link is the parent's."""
        cause = DeviceClosed(
            f"the session with {self.name} belongs to the process {self._process} that opened it, "
            "of which this one was forked: connect in this process"
        )
        self.recorder.abandon(cause)
        self._ended = cause
        self.room.set()


def _gone(error: SessionLost, session: Session) -> SessionLost:
    """The server's word, with what is lost."""
    # Counted here and not as they come and go: that would cost each operation.
    arrays = sum(
        isinstance(found, Tensor) and found.session is session.recorder
        for found in gc.get_objects()
    )
    lost = SessionLost(
        f"the session with {session.name} is lost: {error}. Gone with it: {arrays} arrays, "
        f"{session.graphs_registered} op-graphs; connect again",
        tensors=arrays,
    )
    lost.__cause__ = error
    return lost


def timed_out(what: str, session: Session, seconds: float) -> RequestTimeout:
    """The error for a reply that did not come in time."""
    return RequestTimeout(
        f"the {what} was not answered within {seconds:g} s (remote.request_timeout_seconds); the "
        f"session with {session.name} goes on",
        seconds=seconds,
    )
