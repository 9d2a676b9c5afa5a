"""The two directions of a stream, with back-pressure in both."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwire.errors import GpuwireError, StreamEnded, StreamReset, StreamStopped
from gpuwire.transport.driver import EngineDriver
from gpuwire.transport.engine import Piece, QuicEngine
from gpuwire.transport.options import TransportOptions

Data = bytes | bytearray | memoryview

WRITE_PIECE_BYTES = 256 * 1024
"""`write` queues a long buffer in such pieces, so that its acknowledged front is let go of."""

HIGH_WATER_BYTES = 4 * 1024 * 1024
"""`write` waits at no less than this, unless the options say so."""

WHOLE_READ_BYTES = 1024 * 1024
"""`readexactly` waits for this much without taking any of it, so that cancelling loses nothing."""


class SendStream:
    """The sending direction of one stream. Used from the event loop's thread only."""

    def __init__(
        self, stream_id: int, engine: QuicEngine, driver: EngineDriver, options: TransportOptions
    ) -> None:
        self.id = stream_id
        self._engine = engine
        self._driver = driver
        self._most_high_water = options.high_water_bytes
        self._written = 0
        self._acknowledged = 0
        self._is_finished = False
        self._failure: GpuwireError | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    async def write(self, data: Data) -> None:
        """Sends `data`, any contiguous buffer, after everything written before.

        Queues it in pieces and waits before each while 4 MiB of the stream are not acknowledged, or
        twice the congestion window, at most `high_water_bytes`: a slow path or reader holds the
        writer back, and so much and one piece (256 KiB) are under way on return. The buffer is
        kept by reference, not copied: it must not change until it is acknowledged. Concurrent
        writers of one stream are not ordered. Raises the connection's `close_cause`, or
        `StreamStopped` when the peer does not want more.
        """
        chunk = _as_bytes(data)
        size = len(chunk)
        if size <= WRITE_PIECE_BYTES:
            await self._wait_for_room()
            self._queue(chunk)
            return
        view = memoryview(chunk)
        for start in range(0, size, WRITE_PIECE_BYTES):
            await self._wait_for_room()
            self._queue(view[start : start + WRITE_PIECE_BYTES])

    def write_nowait(self, data: Data) -> None:
        """As `write`, without waiting and so without a bound: for small messages that must go."""
        self._queue(_as_bytes(data))

    def finish(self) -> None:
        """Marks the end: the reader sees end of stream after the last byte."""
        self._raise_failure()
        if not self._is_finished:
            self._is_finished = True
            self._engine.send(self.id, b"", end=True)
            self._driver.transmit_soon()

    def reset(self, error_code: int = 0) -> None:
        """Gives up: what is not yet delivered is dropped and the reader gets `StreamReset`. Does
        nothing on a stream whose end is acknowledged, or that is broken already."""
        if self._failure is None:
            self._engine.reset(self.id, error_code)
            self._driver.transmit_soon()
            self.handle_failure(
                StreamReset("the stream was given up by this side", error_code=error_code)
            )

    async def wait_acknowledged(self, left: int = 0) -> None:
        """Returns when the peer's transport has everything written so far but `left` bytes, and the
        end if `finish` was called. Its program may not have read it yet. Raises as `write` does."""
        target = self._written + self._is_finished - left
        if self._acknowledged < target:
            await self._wait_for(target)

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes written that the peer has not acknowledged, sent or not."""
        return max(0, self._written - self._acknowledged)

    def handle_acknowledged(self, position: int) -> None:
        """The connection's call: the peer has the stream up to `position`, the end counting 1."""
        self._acknowledged = position
        waiting = []
        for target, waiter in self._waiters:
            if target > position:
                waiting.append((target, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._waiters = waiting

    def handle_failure(self, failure: GpuwireError) -> None:
        """The connection's call: nothing more can be sent."""
        if self._failure is None:
            self._failure = failure
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _queue(self, chunk: bytes | memoryview) -> None:
        self._raise_failure()
        if self._is_finished:
            raise RuntimeError("write after finish")
        if len(chunk):
            self._written += len(chunk)
            self._engine.send(self.id, chunk, end=False)
            self._driver.transmit_soon()

    async def _wait_for_room(self) -> None:
        under_way = self._written - self._acknowledged
        if under_way < min(HIGH_WATER_BYTES, self._most_high_water):
            return
        # Half of it must still fill the path while the program is being woken.
        wanted = max(HIGH_WATER_BYTES, 2 * self._engine.congestion_window_bytes)
        high_water = min(wanted, self._most_high_water)
        if under_way >= high_water:
            await self._wait_for(self._written - high_water // 2)

    async def _wait_for(self, target: int) -> None:
        self._raise_failure()
        waiter = asyncio.get_running_loop().create_future()
        entry = (target, waiter)
        self._waiters.append(entry)
        try:
            await waiter
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)
        if self._acknowledged < target:
            self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise renewed(self._failure)


class ReceiveStream:
    """The receiving direction of one stream. One reader at a time, from the event loop's thread.

    Credit goes back to the sender only as bytes are read here: not reading is back-pressure, and
    unread bytes never exceed the stream's window. A stream that is not read to its end must be
    given up with `stop`, or its unread bytes keep their share of the connection's window.
    """

    def __init__(
        self, stream_id: int, engine: QuicEngine, driver: EngineDriver, options: TransportOptions
    ) -> None:
        self.id = stream_id
        self._engine = engine
        self._driver = driver
        self._whole_read = min(WHOLE_READ_BYTES, options.stream_window_bytes // 4)
        self._chunks: deque[Piece] = deque()
        self._head = 0  # how much of the first chunk is taken
        self._unread = 0
        self._taken = 0
        self._is_ended = False
        self._is_stopped = False
        self._is_released = False
        self._failure: GpuwireError | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def read(self, max_bytes: int) -> bytes:
        """What is there, at least 1 and at most `max_bytes` bytes; b"" at the end of the stream.

        Cancelling it loses nothing. Raises `StreamReset` when the peer gave up sending, or the
        connection's `close_cause`, both after what had arrived before was read.
        """
        while not self._unread:
            if self._is_ended:
                self._release()
                return b""
            await self._wait()
        return self._take(min(max_bytes, self._unread))

    async def readexactly(self, count: int) -> bytes:
        """Exactly `count` bytes. Cancelling it loses nothing up to 1 MiB (a quarter of the window
        if that is less); a longer call that is cancelled leaves a stream to be stopped. Raises
        `StreamEnded` if the stream ends before; else as `read`."""
        if count > self._whole_read:
            target = bytearray(count)
            await self.read_into(memoryview(target))
            return bytes(target)
        while self._unread < count:
            self._raise_ended(count, self._unread)
            await self._wait()
        return self._take(count)

    async def read_into(self, target: memoryview) -> None:
        """Fills `target`, a writable contiguous view, whole; each byte is copied once, out of the
        decrypted packet (twice where frames are shorter than 8 KiB). A call that is cancelled
        leaves a stream to be stopped. Raises as `readexactly` does."""
        view = target.cast("B")
        filled = 0
        while filled < len(view):
            while not self._unread:
                self._raise_ended(len(view), filled)
                await self._wait()
            before = filled
            filled = self._fill(view, filled)
            self._credit(filled - before)

    def stop(self, error_code: int = 0) -> None:
        """Drops what is unread and asks the peer to stop sending; its `write` then raises. Does
        nothing at the end of a stream."""
        if self._is_stopped:
            return
        self._is_stopped = True
        unread = self._unread
        self._chunks.clear()
        self._head = self._unread = 0
        if unread:
            self._credit(unread)
        if not self._is_ended and self._failure is None:
            self._engine.stop(self.id, error_code)
            self._driver.transmit_soon()
        self._release()
        self.handle_failure(
            StreamReset("the stream was stopped by this side", error_code=error_code)
        )

    @property
    def unread_bytes(self) -> int:
        """Bytes that have arrived and are not read."""
        return self._unread

    @property
    def taken_bytes(self) -> int:
        """Bytes that have been read, those of a `read_into` that failed included."""
        return self._taken

    @property
    def is_whole(self) -> bool:
        """Whether all of it has arrived, to its end, however much of it is read."""
        return self._is_ended

    def handle_data(self, pieces: Sequence[Piece], *, end: bool) -> None:
        """The connection's call: the next bytes."""
        self._is_ended = self._is_ended or end
        count = sum(map(len, pieces))
        if self._is_stopped:
            self._credit(count)
            return
        if count:
            self._chunks.extend(piece for piece in pieces if piece)
            self._unread += count
        self._wake()

    def handle_failure(self, failure: GpuwireError) -> None:
        """The connection's call: no further bytes will come."""
        if self._failure is None and not self._is_ended:
            self._failure = failure
        self._wake()

    def _fill(self, view: memoryview, filled: int) -> int:
        """Copies what is there into `view` from `filled` on; returns up to where."""
        chunks, size = self._chunks, len(view)
        while chunks and filled < size:
            chunk = chunks[0]
            count = len(chunk) - self._head
            if count <= size - filled and not self._head:
                view[filled : filled + count] = chunk
                chunks.popleft()
                self._unread -= count
            else:
                count = min(count, size - filled)
                view[filled : filled + count] = memoryview(chunk)[self._head : self._head + count]
                self._advance(count)
            filled += count
        return filled

    def _take(self, count: int) -> bytes:
        chunk = self._chunks[0] if self._chunks else b""
        if self._head == 0 and len(chunk) == count and count:
            taken = bytes(chunk)  # no copy of what is bytes already
            self._advance(count)
        elif len(chunk) - self._head >= count:
            taken = bytes(chunk[self._head : self._head + count])
            self._advance(count)
        else:
            taken = self._joined(count)
        self._credit(count)
        return taken

    def _joined(self, count: int) -> bytes:
        """`count` bytes of several chunks."""
        chunks = self._chunks
        pieces = [chunks.popleft()[self._head :]]
        missing = count - len(pieces[0])
        while missing and missing >= len(chunks[0]):
            chunk = chunks.popleft()
            pieces.append(chunk)
            missing -= len(chunk)
        if missing:
            pieces.append(chunks[0][:missing])
        self._head = missing
        self._unread -= count
        return b"".join(pieces)

    def _advance(self, count: int) -> None:
        self._unread -= count
        self._head += count
        if self._chunks and self._head == len(self._chunks[0]):
            self._chunks.popleft()
            self._head = 0

    def _credit(self, count: int) -> None:
        self._taken += count
        if self._engine.consume(self.id, count):
            self._driver.transmit_soon()
        if self._is_ended and not self._unread:
            self._release()

    def _release(self) -> None:
        if not self._is_released:
            self._is_released = True
            if self._engine.release(self.id):
                self._driver.transmit_soon()

    async def _wait(self) -> None:
        if self._failure is not None:
            self._release()
            raise renewed(self._failure)
        if self._waiter is not None:
            raise RuntimeError("two readers of one stream")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _raise_ended(self, wanted: int, found: int) -> None:
        if self._is_ended:
            raise StreamEnded(
                f"the stream ended after {found} of {wanted} bytes", wanted=wanted, found=found
            )


@dataclass(frozen=True, slots=True)
class Stream:
    """Both directions of a bidirectional stream."""

    reader: ReceiveStream
    writer: SendStream


def _as_bytes(data: Data) -> bytes | memoryview:
    if isinstance(data, bytes):
        return data
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def renewed(failure: GpuwireError) -> GpuwireError:
    """A fresh error of the same content: one object raised in several tasks would collect all
    their tracebacks."""
    fresh = type(failure)(failure.message, **failure.fields)
    fresh.__cause__ = failure.__cause__
    return fresh


def stopped_by_peer(error_code: int) -> StreamStopped:
    """The failure of a stream whose peer wants no more."""
    return StreamStopped(
        f"the peer does not want the rest of the stream (code {error_code})", error_code=error_code
    )


def reset_by_peer(error_code: int) -> StreamReset:
    """The failure of a stream whose peer gave up."""
    return StreamReset(
        f"the peer gave up sending the stream (code {error_code})", error_code=error_code
    )
