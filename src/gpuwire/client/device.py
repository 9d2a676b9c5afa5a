"""The synchronous face of a session: what `gpuwire.connect` gives."""

from __future__ import annotations

import atexit
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from gpuwire.client.connecting import devices_of
from gpuwire.client.device_face import SyncFace
from gpuwire.client.host_copies import HostCopy
from gpuwire.client.local import LocalServer, start_local_server
from gpuwire.client.loop_thread import LoopThread
from gpuwire.client.opening import open_session
from gpuwire.client.pending import HostArray
from gpuwire.client.profiling import profiled
from gpuwire.client.progress import Waits
from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.client.session import (
    HELD_BYTES_HIGH,
    SNAPSHOT_BYTES,
    Session,
    timed_out,
)
from gpuwire.client.tensor import Tensor
from gpuwire.client.transfers import Transfer
from gpuwire.client.waiting import ThreadReply, wait_interruptibly
from gpuwire.config import Config, load_config, ticket_from_environment
from gpuwire.ids import StreamId
from gpuwire.ir.attributes import Attributes
from gpuwire.ir.operations import OpDef
from gpuwire.ir.tensors import Scalar
from gpuwire.transport import Ticket
from gpuwire.wire.device_tasks import GraphDescribed
from gpuwire.wire.messages import DeviceInfo

T = TypeVar("T")


def connect(
    ticket: str | None = None,
    *,
    device: int = 0,
    config: Config | None = None,
    authority: Path | None = None,
) -> Device:
    """Opens a session on one device of a server.

    `ticket` is the text that `gpuwire serve` prints; without it `GPUWIRE_URL` counts, and without
    that a server is started on this machine, and stopped when the device is closed. `device` is
    the index that `gpuwire devices` shows. `config` None is `load_config()`. `authority` names a
    PEM file of certificate authorities, for a server whose ticket pins no key.

    One deadline, `remote.connect_timeout_seconds`, holds over lookup, handshake and welcome. Raises
    `TicketError`, the `ConnectError` family, and `ServerStartError` for a local server.
    """
    text = ticket if ticket is not None else ticket_from_environment()
    if text is not None:
        loaded = config or load_config()
        return _opened(Ticket.parse(text), device, loaded, authority, None)
    local = start_local_server(config)
    try:
        return _opened(Ticket.parse(local.ticket), device, config or load_config(), None, local)
    except BaseException:
        local.stop()
        raise


def list_devices(
    ticket: str, *, config: Config | None = None, authority: Path | None = None
) -> tuple[DeviceInfo, ...]:
    """The devices that a server lends. Raises as `connect`."""
    remote = (config or load_config()).remote
    loop = LoopThread("gpuwire")
    try:
        return loop.run(devices_of(Ticket.parse(ticket), remote, authority))
    finally:
        loop.stop()


def _opened(
    ticket: Ticket, device: int, config: Config, authority: Path | None, local: LocalServer | None
) -> Device:
    loop = LoopThread(f"gpuwire {ticket.host}:{ticket.port}")
    try:
        session = loop.run(open_session(ticket, device, config.remote, authority))
        remote = config.remote
        kind = Device if session.tracing is None else _traced_device()
        return kind(
            session,
            loop,
            remote.request_timeout_seconds,
            local,
            shows_progress=remote.progress == "auto",
        )
    except BaseException:
        loop.stop()
        raise


def _traced_device() -> type[Device]:
    from gpuwire.client.traced_devices import TracedDevice

    return TracedDevice


class Device(SyncFace):
    """One device of a server, for synchronous programs. Safe for threads.

    Operations are recorded and return at once; `read`, `sync` and long uploads wait. Every wait
    ends at Ctrl-C, and the device is usable afterwards. Each thread records on a stream of its
    own, and arrays may pass between threads freely. Where the server or the link is slower than
    the program, recording waits: what is recorded and unsent stays within a few MiB.

    `close()` it, or use it in a `with` statement; at the end of the program it closes itself. A
    forked child must open its own.
    """

    def __init__(
        self,
        session: Session,
        loop: LoopThread,
        request_timeout: float | None,
        local: LocalServer | None,
        *,
        shows_progress: bool = False,
    ) -> None:
        """Use `connect`."""
        super().__init__(session)
        self._recorder = session.recorder
        self._loop = loop
        self._request_timeout = request_timeout
        self._local = local
        self._waits = (
            Waits(session.address, lambda: session.graphs_registered) if shows_progress else None
        )
        self._streams = itertools.count()
        self._thread = threading.local()
        self._closing = threading.Lock()
        atexit.register(self.close)

    def record(
        self, definition: OpDef, inputs: Sequence[Tensor | Scalar], attributes: Attributes
    ) -> Tensor:
        """Records one operation; its result is a tensor at once, its value comes later.

        Raises what the operation's rule raises (`ShapeError`, `DTypeError`), `UnsupportedDType`,
        `DeviceMismatch`, and why the session ended if it did.
        """
        try:
            stream: StreamId = self._thread.stream
        except AttributeError:
            stream = self._new_stream()
        tensor = self._recorder.operation(stream, definition, inputs, attributes)
        if self._session.held_bytes > HELD_BYTES_HIGH:
            self._wait_for_room()
        return tensor

    def run_graph(
        self, graph: RecordedGraph, inputs: Sequence[Tensor], scalars: tuple[Scalar, ...]
    ) -> list[Tensor]:
        """Records one run of a graph of `recorded_graph`, in one task for each of its parts: the
        server is told the graph once. Inputs and scalars are of the graph's types. Raises as
        `record`."""
        tensors = self._recorder.run(self._stream(), graph, inputs, scalars)
        if self._session.held_bytes > HELD_BYTES_HIGH:
            self._wait_for_room()
        return tensors

    def describe_graph(self, graph: RecordedGraph) -> str:
        """The plan by which the device runs a graph over contiguous arrays: its kernels in order.
        Waits. Raises what planning the graph raises, and as `read`."""
        replies = []
        for part in graph.parts:
            replies.append(ThreadReply())
            self._session.describe(part, replies[-1])
        answers: list[GraphDescribed] = [self._answer(reply, "plan") for reply in replies]
        return graph.described([answer.text for answer in answers])

    def upload(self, array: HostArray) -> Tensor:
        """A tensor with the array's values at this moment; the array may be changed afterwards.

        `array` is C-contiguous and little-endian, of any shape, and may be read-only. Up to 1 MiB
        it is copied and sent behind the caller; a longer one is sent from where it lies, and the
        call returns when the server's machine has all of it. Raises `UnsupportedDType`,
        `UploadTooLarge`, and why the session ended if it did.
        """
        stream = self._stream()
        if array.nbytes > SNAPSHOT_BYTES:
            reply = ThreadReply()
            transfer = Transfer(array.nbytes)
            tensor = self._session.upload(stream, array, reply, transfer)
            self._wait(reply, "upload to", None, transfer)
            return tensor
        tensor = self._session.upload(stream, array, None)
        if self._session.held_bytes > HELD_BYTES_HIGH:
            self._wait_for_room()
        return tensor

    def read(self, tensor: Tensor) -> HostArray:
        """The tensor's values, in a new array. Flushes and waits.

        Raises `ExecutionError` with the operation and the line of the program that failed,
        `RequestTimeout` after `remote.request_timeout_seconds`, and why the session ended.
        """
        reply: ThreadReply | HostCopy | None = tensor.host_copy
        if reply is None or tensor.session is not self._recorder:
            reply = ThreadReply()
            transfer = Transfer(tensor.type.nbytes)
            self._session.read(self._stream(), tensor, reply, transfer)
            array: HostArray = self._answer(reply, "read", transfer)
        else:
            array = self._answer(reply, "read")
        return array

    def copy_to_host_async(self, tensor: Tensor) -> None:
        """Asks for the tensor's values and does not wait: a later `read` finds them here, or waits
        for the rest of their way. They are kept until the tensor is no more. Raises why the
        session ended; what makes the tensor fail is raised by `read`."""
        if tensor.host_copy is None:
            copy = HostCopy(tensor)
            self._session.read(self._stream(), tensor, copy)
            tensor.host_copy = copy

    def sync(self) -> None:
        """Waits until all work recorded before, on every thread, uploads included, has ended on the
        device. Raises the first failure that no read or sync has raised yet; else as `read`."""
        self._refuse_captured("sync")
        reply = ThreadReply()
        self._session.sync(reply)
        self._answer(reply, "sync")

    def timeline(self, path: str | Path) -> AbstractContextManager[None]:
        """`with dev.timeline("run.json"):` writes what happens in the block, and ends with a sync:
        see `gpuwire.profile`."""
        return profiled(self._session, self._loop, Path(path), self.sync)

    def flush(self) -> None:
        """Sends what is recorded, and does not wait. Raises why the session ended if it did."""
        self._session.raise_if_ended()
        self._recorder.flush()

    def ping(self) -> float:
        """Seconds of one round trip through the server's network process."""
        self._session.raise_if_ended()
        return self._loop.run(self._session.ping())

    def close(self) -> None:
        """Sends what is recorded, tells the server, and frees everything of the session there.
        What was sent is not waited for: `sync()` before if its failures matter. May be called
        again; arrays of the device then raise `DeviceClosed`."""
        with self._closing:
            if self._session.is_foreign or self._loop.is_stopped:
                return
            self._loop.run(self._session.close())
            self._loop.stop()
            if self._local is not None:
                self._local.stop()
            atexit.unregister(self.close)

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _on_loop(self, function: Callable[[], T]) -> T:
        """Asks on the event loop's thread, if there still is one that could change the answer."""
        return function() if self._session.ended is not None else self._loop.call(function)

    def _answer(
        self, reply: ThreadReply | HostCopy, what: str, transfer: Transfer | None = None
    ) -> Any:
        try:
            return self._wait(reply, "read from", self._request_timeout, transfer)
        except TimeoutError as error:
            if reply.is_completed or self._request_timeout is None:
                raise
            raise timed_out(what, self._session, self._request_timeout) from error

    def _wait(
        self,
        reply: ThreadReply | HostCopy,
        what: str,
        seconds: float | None,
        transfer: Transfer | None = None,
    ) -> Any:
        timeline = self._session.timeline
        began = time.time() if timeline is not None else 0.0
        try:
            if self._waits is None:
                return reply.wait(seconds)
            return self._waits.wait(reply, what, seconds, transfer)
        except BaseException:
            if isinstance(reply, ThreadReply):
                reply.abandon()  # Ctrl-C may have come while the bar was drawn.
            raise
        finally:
            if timeline is not None:
                timeline.waited(f"{what} the device", began)

    def _stream(self) -> StreamId:
        try:
            stream: StreamId = self._thread.stream
        except AttributeError:
            stream = self._new_stream()
        return stream

    def _new_stream(self) -> StreamId:
        self._thread.stream = stream = StreamId(next(self._streams))
        return stream

    def _make_room(self) -> None:
        if self._session.held_bytes > HELD_BYTES_HIGH:
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Waits until enough of what is recorded has been sent, or the session has ended."""
        session = self._session
        session.room.clear()
        if session.held_bytes > HELD_BYTES_HIGH and session.ended is None:
            wait_interruptibly(session.room)
        else:
            session.room.set()
