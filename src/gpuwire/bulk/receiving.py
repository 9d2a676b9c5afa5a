"""The receiving end of bulk streams."""

from __future__ import annotations

import asyncio

from gpuwire.errors import MalformedMessage
from gpuwire.transport import ReceiveStream
from gpuwire.wire.compression import (
    PIECE_HEADER_BYTES,
    PieceHeader,
    PieceKind,
    decode_piece,
    decode_piece_header,
)
from gpuwire.wire.messages import BulkHeader


class BulkReader:
    """A tensor's bytes from a bulk stream whose header was read.

    Bytes that were sent as they are go straight into the reader's target. A compressed piece is
    unpacked on another thread: its `CODED_PIECE_BYTES` are here twice at most while that lasts.
    """

    def __init__(self, stream: ReceiveStream, header: BulkHeader, taken: int = 0) -> None:
        """`taken` bytes of the tensor came on an earlier stream."""
        self._stream = stream
        self._item_bytes = header.item_bytes
        self._left = header.length - taken
        """Bytes of the tensor that are in no piece so far."""
        self._stored = 0 if header.item_bytes else header.length - taken
        """Of the present piece, which was sent as it is."""
        self._unpacked = memoryview(b"")
        """Of the present piece, which was compressed."""
        self.received_bytes = 0
        """What the stream brought, its header left out."""
        self.filled_bytes = 0
        """Bytes of the tensor that are in targets, that of a call which failed included."""

    async def read_into(self, target: memoryview) -> None:
        """Fills `target` whole with the next bytes. Raises as `ReceiveStream.read_into`, and
        `MalformedMessage` or `LimitBreached` for a piece that is not in order. A call that is
        cancelled leaves a stream to be stopped."""
        while target:
            if self._stored:
                count = min(self._stored, len(target))
                before = self._stream.taken_bytes
                try:
                    await self._stream.read_into(target[:count])
                finally:
                    count = self._stream.taken_bytes - before
                    self.received_bytes += count
                    self._stored -= count
                    self.filled_bytes += count
            elif self._unpacked:
                count = min(len(self._unpacked), len(target))
                target[:count] = self._unpacked[:count]
                self._unpacked = self._unpacked[count:]
                self.filled_bytes += count
            else:
                count = await self._next_piece(target)
                self.filled_bytes += count
            target = target[count:]

    async def expect_end(self) -> None:
        """`MalformedMessage` if more follows than the tensor."""
        if await self._stream.read(1):
            raise MalformedMessage("a bulk stream goes on after its tensor", what="bulk stream")

    async def _next_piece(self, target: memoryview) -> int:
        """Takes in the header of a piece, and the piece if it is compressed: into `target` where it
        has room for it all. Returns how many bytes of that it has filled."""
        head = await self._stream.readexactly(PIECE_HEADER_BYTES)
        self.received_bytes += len(head)
        header = decode_piece_header(head, self._left)
        self._left -= header.raw
        if header.kind is PieceKind.STORED:
            self._stored = header.raw
            return 0
        coded = await self._stream.readexactly(header.coded)
        self.received_bytes += len(coded)
        if len(target) >= header.raw:
            await self._unpack(header, coded, target[: header.raw])
            return header.raw
        unpacked = memoryview(bytearray(header.raw))
        await self._unpack(header, coded, unpacked)
        self._unpacked = unpacked
        return 0

    async def _unpack(self, header: PieceHeader, coded: bytes, target: memoryview) -> None:
        await asyncio.to_thread(decode_piece, header, coded, self._item_bytes, target)
