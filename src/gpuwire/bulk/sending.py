"""The sending end of bulk streams, and when it compresses.

Whether compressing pays is measured: a sample of the tensor says how much smaller it gets and what
that costs (`wire.compression.try_out`), the transport says how fast the link takes bytes, and the
tensor is compressed if that ends sooner. The link's rate is looked at again for each piece, so a
tensor may begin as it is and go on compressed. Compressing runs on a thread of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal

from gpuwire.ids import RequestId
from gpuwire.transport import SendStream
from gpuwire.wire.compression import (
    CODED_PIECE_BYTES,
    LEAST_BYTES,
    PieceKind,
    Trial,
    encode_piece,
    try_out,
)
from gpuwire.wire.framing import encode_bulk_header
from gpuwire.wire.messages import Buffer, BulkHeader

Mode = Literal["auto", "off", "on"]

FAST_BYTES_PER_SECOND = 125e6
"""A link of 1 Gb/s. What is faster is limited by the processors at its ends, whose time compressing
would take."""
LEAST_GAIN = 0.05
"""Of the time; below, the estimates are not that good."""
LEARNING_BYTES = 512 * 1024
"""A connection that carried less has seen small messages only, which say nothing of its rate."""
PIECE_BYTES = 1024 * 1024
"""The most that `BulkWriter.write` takes at once."""


class LinkCompression:
    """What is known of one connection, and what compressing has saved on it."""

    def __init__(self, mode: Mode, rate: Callable[[], float]) -> None:
        """`rate` gives the bytes a second that the link delivers, as far as is known."""
        self.mode: Mode = mode
        self._rate = rate
        self.is_rate_known = False
        """Whether enough was sent to believe `rate`."""
        self.saved_bytes = 0
        """Tensor bytes less what was sent for them."""

    @property
    def may_pay(self) -> bool:
        """Whether any tensor might be worth compressing now."""
        if self.mode == "auto":
            return not self.is_rate_known or self._rate() < FAST_BYTES_PER_SECOND
        return self.mode == "on"

    def best(self, trials: tuple[Trial, ...]) -> PieceKind:
        """How a tensor of which a sample gave `trials` is sent now."""
        if self.mode == "on":
            return min(trials, key=lambda trial: trial.ratio).kind
        rate = self._rate()
        found = min(trials, key=lambda trial: trial.cost(rate))
        return found.kind if found.cost(rate) < (1 - LEAST_GAIN) / rate else PieceKind.STORED


class BulkWriter:
    """One tensor on its bulk stream. `begin`, `write` its bytes in order, `finish`."""

    def __init__(
        self,
        stream: SendStream,
        request: RequestId,
        length: int,
        item_bytes: int,
        link: LinkCompression,
    ) -> None:
        """`item_bytes` is the size of one element."""
        self.stream = stream
        self.sent_bytes = 0
        """What was handed to the stream."""
        self._link = link
        self._item_bytes = item_bytes
        self._in_pieces = length >= LEAST_BYTES and link.may_pay
        self._header = BulkHeader(request, length, item_bytes if self._in_pieces else 0)
        self._trials: tuple[Trial, ...] | None = None

    async def begin(self) -> None:
        """Writes the header. Raises as `SendStream.write`, as all of these."""
        await self._write(encode_bulk_header(self._header))

    async def write(self, data: memoryview, whole: memoryview | None = None) -> None:
        """Writes the next bytes, at most `PIECE_BYTES`. What is not compressed is kept by reference
        until it is acknowledged. `whole` is the whole tensor where that is at hand, to take a
        sample from."""
        if not self._in_pieces:
            await self._write(data)
            return
        if self._link.mode == "auto" and not self._link.is_rate_known:
            await self._write_as(PieceKind.STORED, data[:LEARNING_BYTES])
            data = data[LEARNING_BYTES:]
            if not data:
                return
            await self.stream.wait_acknowledged()
            self._link.is_rate_known = True
        kind = PieceKind.STORED
        if self._link.may_pay:
            if self._trials is None:
                sample = data if whole is None else whole
                self._trials = await asyncio.to_thread(
                    try_out, sample, self._item_bytes, time.perf_counter
                )
            kind = self._link.best(self._trials)
        await self._write_as(kind, data)

    def finish(self) -> None:
        """Marks the end."""
        self.stream.finish()

    async def _write_as(self, kind: PieceKind, data: memoryview) -> None:
        if kind is PieceKind.STORED:
            buffers = _encoded((data,), kind, self._item_bytes)
        else:
            pieces = [
                data[start : start + CODED_PIECE_BYTES]
                for start in range(0, len(data), CODED_PIECE_BYTES)
            ]
            buffers = await asyncio.to_thread(_encoded, pieces, kind, self._item_bytes)
            self._link.saved_bytes += len(data) - sum(map(len, buffers))
        for buffer in buffers:
            await self._write(buffer)

    async def _write(self, data: Buffer) -> None:
        await self.stream.write(data)
        self.sent_bytes += len(data)


def _encoded(
    pieces: list[memoryview] | tuple[memoryview, ...], kind: PieceKind, item_bytes: int
) -> list[Buffer]:
    return [part for piece in pieces for part in encode_piece(piece, kind, item_bytes)]
