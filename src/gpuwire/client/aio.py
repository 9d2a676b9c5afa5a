"""The asyncio face of a session: the core that the synchronous face stands on, used directly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

from gpuwire.client.device_face import AsyncFace
from gpuwire.client.host_copies import HostCopy
from gpuwire.client.local import LocalServer, start_local_server
from gpuwire.client.opening import open_session
from gpuwire.client.pending import HostArray
from gpuwire.client.progress import AsyncWaits
from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.client.session import Session, timed_out
from gpuwire.client.tensor import Tensor
from gpuwire.client.transfers import Transfer
from gpuwire.config import Config, load_config, ticket_from_environment
from gpuwire.errors import BacklogFull
from gpuwire.ids import StreamId
from gpuwire.ir.attributes import Attributes
from gpuwire.ir.operations import OpDef
from gpuwire.ir.tensors import Scalar
from gpuwire.transport import Ticket
from gpuwire.wire.device_tasks import GraphDescribed

HELD_BYTES_MAX = 256 * 1024 * 1024
"""What may be recorded and unsent. Recording cannot wait here, so beyond it is refused."""

_STREAM = StreamId(0)


def connect(
    ticket: str | None = None,
    *,
    device: int = 0,
    config: Config | None = None,
    authority: Path | None = None,
) -> Connecting:
    """As `gpuwire.connect`, on the running event loop.

    `async with connect(…) as dev:` closes the device at the end of the block; `dev = await
    connect(…)` leaves that to `await dev.close()`.
    """
    return Connecting(ticket, device, config, authority)


class Connecting:
    """A connection to be made: by `await` or by `async with`."""

    def __init__(
        self, ticket: str | None, device: int, config: Config | None, authority: Path | None
    ) -> None:
        self._ticket = ticket
        self._index = device
        self._config = config
        self._authority = authority
        self._device: AsyncDevice | None = None

    def __await__(self) -> Generator[Any, None, AsyncDevice]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncDevice:
        self._device = await self._connect()
        return self._device

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._device is not None
        await self._device.close()

    async def _connect(self) -> AsyncDevice:
        text = self._ticket if self._ticket is not None else ticket_from_environment()
        if text:
            return await self._opened(text, None)
        local = await asyncio.to_thread(start_local_server, self._config)
        try:
            return await self._opened(local.ticket, local)
        except BaseException:
            local.stop()
            raise

    async def _opened(self, text: str, local: LocalServer | None) -> AsyncDevice:
        remote = (self._config or load_config()).remote
        session = await open_session(Ticket.parse(text), self._index, remote, self._authority)
        kind = AsyncDevice if session.tracing is None else _traced_device()
        return kind(
            session,
            remote.request_timeout_seconds,
            local,
            shows_progress=remote.progress == "auto",
        )


def _traced_device() -> type[AsyncDevice]:
    from gpuwire.client.traced_devices import TracedAsyncDevice

    return TracedAsyncDevice


class AsyncDevice(AsyncFace):
    """One device of a server, for asyncio programs. Used on the event loop that opened it;
    operations may be recorded on other threads too.

    Recording never waits. A program that records without ever awaiting sends nothing either:
    `await flush()` now and then lets it go out; at 256 MiB unsent, recording raises `BacklogFull`.
    """

    def __init__(
        self,
        session: Session,
        request_timeout: float | None,
        local: LocalServer | None,
        *,
        shows_progress: bool = False,
    ) -> None:
        """Use `connect`."""
        super().__init__(session)
        self._request_timeout = request_timeout
        self._local = local
        self._waits = (
            AsyncWaits(session.address, lambda: session.graphs_registered)
            if shows_progress
            else None
        )

    def record(
        self, definition: OpDef, inputs: Sequence[Tensor | Scalar], attributes: Attributes
    ) -> Tensor:
        """As `Device.record`; `BacklogFull` instead of waiting."""
        self._make_room()
        return self._session.recorder.operation(_STREAM, definition, inputs, attributes)

    def run_graph(
        self, graph: RecordedGraph, inputs: Sequence[Tensor], scalars: tuple[Scalar, ...]
    ) -> list[Tensor]:
        """As `Device.run_graph`; `BacklogFull` instead of waiting."""
        self._make_room()
        return self._session.recorder.run(_STREAM, graph, inputs, scalars)

    async def describe_graph(self, graph: RecordedGraph) -> str:
        """As `Device.describe_graph`."""
        plans = []
        for part in graph.parts:
            reply: asyncio.Future[GraphDescribed] = asyncio.get_running_loop().create_future()
            self._session.describe(part, reply)
            answer: GraphDescribed = await self._answer(reply, "plan")
            plans.append(answer.text)
        return graph.described(plans)

    def upload(self, array: HostArray) -> Tensor:
        """A tensor with the array's values at this moment. The array is copied, whatever its
        length, and may be changed at once; `upload_in_place` saves the copy. Raises as
        `Device.upload`, and `BacklogFull`."""
        self._make_room()
        return self._session.upload(_STREAM, array, None)

    async def upload_in_place(self, array: HostArray) -> Tensor:
        """As `upload`, sent from where the array lies: do not change it until this returns, which
        it does when the server's machine has all of it."""
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        transfer = Transfer(array.nbytes)
        tensor = self._session.upload(_STREAM, array, sent, transfer)
        with self._shown("upload to", transfer):
            await sent
        return tensor

    async def read(self, tensor: Tensor) -> HostArray:
        """The tensor's values, in a new array. Raises as `Device.read`."""
        copy = tensor.host_copy
        if copy is not None and tensor.session is self._session.recorder:
            await self._answer(copy.arrival(), "read")
            return copy.values()
        reply: asyncio.Future[HostArray] = asyncio.get_running_loop().create_future()
        transfer = Transfer(tensor.type.nbytes)
        self._session.read(_STREAM, tensor, reply, transfer)
        array: HostArray = await self._answer(reply, "read", transfer)
        return array

    def copy_to_host_async(self, tensor: Tensor) -> None:
        """As `Device.copy_to_host_async`."""
        if tensor.host_copy is None:
            copy = HostCopy(tensor)
            self._session.read(_STREAM, tensor, copy)
            tensor.host_copy = copy

    def arrived(self, tensor: Tensor) -> HostArray | None:
        """The values that `copy_to_host_async` asked for, if they are here."""
        copy = tensor.host_copy
        return copy.values() if copy is not None and copy.is_completed else None

    async def sync(self) -> None:
        """As `Device.sync`."""
        self._refuse_captured("sync")
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session.sync(reply)
        await self._answer(reply, "sync")

    async def flush(self) -> None:
        """Sends what is recorded, and returns when it is with the transport and every upload with
        the server."""
        await self._session.wait_sent()

    async def ping(self) -> float:
        """As `Device.ping`."""
        return await self._session.ping()

    async def close(self) -> None:
        """As `Device.close`."""
        if self._session.is_foreign:
            return
        await self._session.close()
        if self._local is not None:
            await asyncio.to_thread(self._local.stop)

    def _stream(self) -> StreamId:
        return _STREAM

    def _make_room(self) -> None:
        if self._session.held_bytes > HELD_BYTES_MAX:
            raise _backlog_full(self._session.held_bytes)

    def _shown(self, what: str, transfer: Transfer | None) -> AbstractContextManager[None]:
        """A wait that is shown once it takes long."""
        return nullcontext() if self._waits is None else self._waits.shown(what, transfer)

    async def _answer(
        self, reply: Awaitable[Any], what: str, transfer: Transfer | None = None
    ) -> Any:
        try:
            async with asyncio.timeout(self._request_timeout) as deadline:
                with self._shown("read from", transfer):
                    return await reply
        except TimeoutError as error:
            if not deadline.expired() or self._request_timeout is None:
                raise
            raise timed_out(what, self._session, self._request_timeout) from error


def _backlog_full(held: int) -> BacklogFull:
    return BacklogFull(
        f"{held} bytes are recorded and not yet sent: await dev.flush(), or read something",
        held=held,
        limit=HELD_BYTES_MAX,
    )
