"""The sending end of bulk streams, and when it compresses.

Whether compressing pays is measured: a sample of the tensor says how much smaller it gets and what
that costs (`wire.compression.try_out`), the transport says how fast the link takes bytes, and the
tensor is compressed if that ends sooner. The link's rate is looked at again for each piece, so a
tensor may begin as it is and go on compressed. Compressing runs on a thread of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

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

PIECE_BYTES = 1024 * 1024
"""The most that `BulkWriter.write` takes at once."""
FAST_BYTES_PER_SECOND = 60e6
"""A link of 500 Mb/s. What is much faster is limited by the processors at its ends, whose time
compressing would take; so it is not even tried."""
LEAST_GAIN = 0.05
"""Of the time; below, the estimates are not that good."""
LEARNING_BYTES = 4 * 1024 * 1024
"""Small messages say nothing of a link's rate: a connection's first tensors are sent as they are
until so many bytes of them have arrived, which a loopback path takes to become fast …"""
LEARNING_SECONDS = 0.5
"""… or for so long, in which a fast link would have brought them."""
LEARNING_PIECE_BYTES = 512 * 1024


class BulkLink:
    """What the bulk streams that leave over one connection know and count together."""

    def __init__(self, mode: Mode, rate: Callable[[], float]) -> None:
        """`rate` gives the bytes a second that the link delivers, as far as is known."""
        self.mode: Mode = mode
        self._rate = rate
        self._learned_bytes = 0
        self._learned_seconds = 0.0
        self.is_rate_known = False
        """Whether enough was sent to believe `rate`."""
        self.sent_bytes = 0
        """Bytes handed to streams."""
        self.saved_bytes = 0
        """Tensor bytes less what was sent for them."""

    @property
    def may_compress(self) -> bool:
        """Whether compressing any tensor might pay now."""
        if self.mode == "auto":
            return not self.is_rate_known or 0 < self._rate() < FAST_BYTES_PER_SECOND
        return self.mode == "on"

    def learned(self, count: int, seconds: float) -> None:
        """So many further bytes have arrived, and it took so long."""
        self._learned_bytes += count
        self._learned_seconds += seconds
        self.is_rate_known = (
            self._learned_bytes >= LEARNING_BYTES or self._learned_seconds >= LEARNING_SECONDS
        )

    def forget_rate(self) -> None:
        """The link is another."""
        self._learned_bytes, self._learned_seconds, self.is_rate_known = 0, 0.0, False

    def best(self, trials: Sequence[Trial]) -> PieceKind:
        """How a tensor of which a sample gave `trials` is sent now."""
        if self.mode == "on":
            return min(trials, key=lambda trial: trial.ratio).kind
        rate = self._rate()
        if not rate:
            return PieceKind.STORED
        found = min(trials, key=lambda trial: trial.cost(rate))
        return found.kind if found.cost(rate) < (1 - LEAST_GAIN) / rate else PieceKind.STORED


class BulkWriter:
    """One tensor, or the rest of one, on its bulk stream: `begin`, `write` its bytes in order."""

    def __init__(self, stream: SendStream, header: BulkHeader, link: BulkLink) -> None:
        """`header.item_bytes` is the size of an element; whether the stream comes in pieces is
        decided here. A header without it is never compressed."""
        self.stream = stream
        self._link = link
        self._item_bytes = header.item_bytes
        self._in_pieces = bool(header.item_bytes) and (
            header.length >= LEAST_BYTES and link.may_compress
        )
        item_bytes = header.item_bytes if self._in_pieces else 0
        self._header = BulkHeader(header.request, header.length, item_bytes)
        self._trials: Sequence[Trial] = ()
        self._written = 0
        self._arrived = 0
        """Bytes of the stream, the latter as far as learning needs it."""
        self._tensor_bytes = 0
        self._arrived_tensor_bytes = 0
        self._marks: deque[tuple[int, int]] = deque()
        """After each piece, how much of the stream and of the tensor was written; of those that
        have not arrived."""

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes of the tensor that were written and that the peer may not have."""
        under_way = self.stream.unacknowledged_bytes
        if not self._in_pieces:
            return min(under_way, self._tensor_bytes)
        while self._marks and self._marks[0][0] <= self._written - under_way:
            self._arrived_tensor_bytes = self._marks.popleft()[1]
        return self._tensor_bytes - self._arrived_tensor_bytes

    async def begin(self) -> None:
        """Writes the header. Raises as `SendStream.write`, and so does `write`."""
        await self._write(encode_bulk_header(self._header))

    async def write(self, data: memoryview, whole: memoryview | None = None) -> None:
        """Writes the next bytes, at most `PIECE_BYTES`. What is not compressed is kept by reference
        until it is acknowledged. `whole` is the whole tensor where that is at hand, to take a
        sample from."""
        if not self._in_pieces:
            self._tensor_bytes += len(data)
            await self._write(data)
            return
        link = self._link
        while data and link.mode == "auto" and not link.is_rate_known:
            data = await self._learn(data)
        if not data:
            return
        kind = PieceKind.STORED
        if link.may_compress:
            sample = data if whole is None else whole
            self._trials = self._trials or await asyncio.to_thread(
                try_out, sample, self._item_bytes, time.perf_counter
            )
            kind = link.best(self._trials)
        await self._write_as(kind, data)

    async def _learn(self, data: memoryview) -> memoryview:
        """Sends the first bytes as they are, to see how fast the link is, with as many always under
        way; returns the others."""
        piece, rest = data[:LEARNING_PIECE_BYTES], data[LEARNING_PIECE_BYTES:]
        began = time.monotonic()
        await self._write_as(PieceKind.STORED, piece)
        await self.stream.wait_acknowledged(LEARNING_PIECE_BYTES)
        arrived = self._written - self.stream.unacknowledged_bytes
        self._link.learned(arrived - self._arrived, time.monotonic() - began)
        self._arrived = arrived
        return rest

    async def _write_as(self, kind: PieceKind, data: memoryview) -> None:
        if kind is PieceKind.STORED:
            buffers = _encoded((data,), kind, self._item_bytes)
        else:
            starts = range(0, len(data), CODED_PIECE_BYTES)
            pieces = [data[start : start + CODED_PIECE_BYTES] for start in starts]
            buffers = await asyncio.to_thread(_encoded, pieces, kind, self._item_bytes)
            self._link.saved_bytes += len(data) - sum(map(len, buffers))
        self._tensor_bytes += len(data)
        self._marks.append((self._written + sum(map(len, buffers)), self._tensor_bytes))
        for buffer in buffers:
            await self._write(buffer)

    async def _write(self, data: Buffer) -> None:
        await self.stream.write(data)
        self._written += len(data)
        self._link.sent_bytes += len(data)


def _encoded(pieces: Sequence[memoryview], kind: PieceKind, item_bytes: int) -> list[Buffer]:
    return [part for piece in pieces for part in encode_piece(piece, kind, item_bytes)]
