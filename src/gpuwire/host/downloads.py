"""A download: a tensor's bytes on a bulk stream, pulled by the front.

The front pulls as fast as the client's link takes the bytes and hands each slot back at once, so
a client that does not read holds no slot, and one block of `READ_BYTES` twice at most here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from gpuwire.compute.completion import Completion
from gpuwire.errors import GpuwireError
from gpuwire.host.channel_messages import DownloadBroken, DownloadChunk, DownloadReady, ToFront
from gpuwire.host.device import Device, byte_range
from gpuwire.host.slots import SLOT_BYTES, SlotMemory, SlotPool
from gpuwire.host.tensors import MemoryAccount
from gpuwire.ids import RequestId
from gpuwire.lowering import Value
from gpuwire.wire.messages import Failed, Reply, TensorData
from gpuwire.wire.records import to_record

READ_BYTES = 4 * SLOT_BYTES
"""Read from the device at once: each readback costs 0.1 ms and more besides its bytes."""


@dataclass(frozen=True, slots=True)
class Outlets:
    """Where a session's bytes go."""

    reply: Callable[[Reply], None]
    send: Callable[[ToFront], None]
    wake: Callable[[], None]
    """The session may have work again."""
    memory: SlotMemory
    slots: SlotPool


@dataclass(frozen=True, slots=True)
class Read:
    """A read that is asked for."""

    request: RequestId
    value: Value
    stream: int


class Download:
    """One download. `run` it, and `pull` as the front asks."""

    def __init__(
        self, session: int, read: Read, device: Device, account: MemoryAccount, outlets: Outlets
    ) -> None:
        self._session = session
        self._read = read
        self._device = device
        self._account = account
        self._outlets = outlets
        self._pulled = 0
        self._more_pulled = asyncio.Event()

    def pull(self, size: int) -> None:
        """The front takes `size` further bytes."""
        self._pulled += size
        self._more_pulled.set()

    async def run(self) -> None:
        """Replies, and sends the bytes as they are pulled. A failure of the device is told in a
        reply, before the bytes or after as many of them as there were."""
        request, type_ = self._read.request, self._read.value.type
        announced = False
        try:
            async for block in self._blocks():
                if not announced:
                    announced = True
                    self._outlets.reply(TensorData(request, type_, None))
                    item = type_.dtype.itemsize
                    self._outlets.send(DownloadReady(self._session, request, type_.nbytes, item))
                await self._send(block)
        except GpuwireError as error:
            self._device.note(error)
            if announced:
                self._outlets.send(DownloadBroken(self._session, request))
            self._outlets.reply(Failed(request, to_record(error), 0))

    async def _blocks(self) -> AsyncIterator[memoryview]:
        """The tensor's bytes in order, one block read ahead."""
        value, stream = self._read.value, self._read.stream
        length = value.type.nbytes
        if not (value.is_contiguous and value.offset == 0):
            self._account.require(length)
            value = self._device.lowering.contiguous(value, stream)
        ahead: deque[Completion[list[memoryview]]] = deque()
        for start in range(0, length, READ_BYTES):
            part = byte_range(value, start, min(READ_BYTES, length - start))
            ahead.append(self._device.server.read([part], stream))
            if len(ahead) > 1:
                yield (await ahead.popleft())[0]
        yield (await ahead.popleft())[0]

    async def _send(self, block: memoryview) -> None:
        for start in range(0, len(block), SLOT_BYTES):
            piece = block[start : start + SLOT_BYTES]
            while self._pulled < len(piece):
                self._more_pulled.clear()
                await self._more_pulled.wait()
            self._pulled -= len(piece)
            slot = await self._outlets.slots.acquire()
            with self._outlets.memory.slot(slot, len(piece)) as target:
                target[:] = piece
            self._outlets.send(DownloadChunk(self._session, self._read.request, slot, len(piece)))
