"""aioquic's stream halves, changed in what they keep and in whom they tell.

aioquic copies all that is written into one bytearray per stream and copies each frame out of it
twice. `ReferencingSender` keeps the written buffers themselves and copies each frame once, into
the contiguous bytes that encryption wants. On the way in, aioquic puts bytes that arrive out of
order into one bytearray, 10 µs a packet while a hole is open, which on a lossy path is always;
`CreditedReceiver` keeps them as they came. Private attributes of aioquic 1.7's `QuicStreamSender`,
`QuicStreamReceiver` and `RangeSet` are used here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Protocol

from aioquic.quic.connection import QuicConnectionError
from aioquic.quic.events import StreamReset
from aioquic.quic.packet import QuicErrorCode, QuicStreamFrame
from aioquic.quic.packet_builder import QuicDeliveryState
from aioquic.quic.stream import FinalSizeError, QuicStream, QuicStreamReceiver, QuicStreamSender

from gpuwire.transport.engine import Piece
from gpuwire.transport.windows import Mark

HELD_PIECES = 16_384
"""Pieces of one stream that wait for a hole before them; each has its own cost, so a peer that
sends single bytes with gaps between must not have as many as its window has bytes."""


class StreamOwner(Protocol):
    """The connection, as its streams see it."""

    def stream_is_ready(self, stream: QuicStream) -> None:
        """The stream has something to send, or is finished."""

    def stream_progressed(self, stream_id: int, position: int, is_final: bool) -> None:
        """The peer acknowledged up to `position`; `is_final` if the sending half is finished."""

    def bytes_discarded(self, count: int) -> None:
        """Bytes that count against the connection's window and will never be delivered."""

    def stream_data_arrived(self, stream_id: int, data: Piece, end: bool) -> None:
        """The next bytes of a stream, in order."""


class ReferencingSender(QuicStreamSender):
    """A sending half that holds written buffers by reference until they are acknowledged."""

    def __init__(self, stream: QuicStream, owner: StreamOwner) -> None:
        super().__init__(stream_id=stream.stream_id, writable=not stream.sender.is_finished)
        self._stream = stream
        self._owner = owner
        # Two lists in step: where each buffer begins in the stream, and the buffer.
        self._starts: list[int] = []
        self._chunks: list[bytes | memoryview] = []

    def write(self, data: bytes | memoryview, end_stream: bool = False) -> None:
        if self._buffer_fin is not None or self._reset_error_code is not None:
            raise RuntimeError("write after the stream's end")
        size = len(data)
        if size:
            self._starts.append(self._buffer_stop)
            self._chunks.append(data)
            self._pending.add(self._buffer_stop, self._buffer_stop + size)
            self._buffer_stop += size
        if end_stream:
            self._buffer_fin = self._buffer_stop
            self._pending_eof = True
        if size or end_stream:
            self.buffer_is_empty = False
            self._owner.stream_is_ready(self._stream)

    def get_frame(self, max_size: int, max_offset: int | None = None) -> QuicStreamFrame | None:
        if max_size < 0:
            return None
        if not len(self._pending):
            frame = None
            if self._pending_eof:
                self._pending_eof = False
                frame = QuicStreamFrame(fin=True, offset=self._buffer_fin or 0)
            self.buffer_is_empty = True
            return frame
        pending = self._pending[0]
        start = pending.start
        stop = min(pending.stop, start + max_size)
        if max_offset is not None and stop > max_offset:
            stop = max_offset
        if stop <= start:
            return None
        self._pending.subtract(start, stop)
        if stop > self.highest_offset:
            self.highest_offset = stop
        fin = stop == self._buffer_fin
        if fin:
            self._pending_eof = False
        self.buffer_is_empty = not len(self._pending) and not self._pending_eof
        return QuicStreamFrame(data=self._copy(start, stop), offset=start, fin=fin)

    def next_range(self) -> tuple[int, int] | None:
        """The first bytes that wait to be sent, from and to; None if there are none."""
        pending: list[range] = self._pending._RangeSet__ranges  # type: ignore[attr-defined]
        return (pending[0].start, pending[0].stop) if pending else None

    def take(self, start: int, stop: int) -> tuple[bytes | memoryview, bool]:
        """The bytes from `start`, which must be where `next_range` begins, to `stop`, as sent, and
        whether they are the stream's last. A view where they lie in one buffer."""
        pending: list[range] = self._pending._RangeSet__ranges  # type: ignore[attr-defined]
        if stop == pending[0].stop:
            del pending[0]
        else:
            pending[0] = range(stop, pending[0].stop)
        if stop > self.highest_offset:
            self.highest_offset = stop
        fin = stop == self._buffer_fin
        if fin:
            self._pending_eof = False
        self.buffer_is_empty = not pending and not self._pending_eof
        index = bisect_right(self._starts, start) - 1
        chunk, chunk_start = self._chunks[index], self._starts[index]
        if chunk_start + len(chunk) >= stop:
            return chunk[start - chunk_start : stop - chunk_start], fin
        return self._copy(start, stop), fin

    def _copy(self, start: int, stop: int) -> bytes:
        """The stream's bytes from `start` to `stop`, both within what is held."""
        index = bisect_right(self._starts, start) - 1
        chunk, chunk_start = self._chunks[index], self._starts[index]
        piece = chunk[start - chunk_start : stop - chunk_start]
        if chunk_start + len(chunk) >= stop:
            return bytes(piece)
        pieces = [piece]
        while chunk_start + len(chunk) < stop:
            index += 1
            chunk, chunk_start = self._chunks[index], self._starts[index]
            pieces.append(chunk[: stop - chunk_start])
        return b"".join(pieces)

    def on_data_delivery(
        self, delivery: QuicDeliveryState, start: int, stop: int, fin: bool
    ) -> None:
        before = self._buffer_start
        super().on_data_delivery(delivery, start, stop, fin)
        if delivery is not QuicDeliveryState.ACKED:
            if not self.buffer_is_empty:
                self._owner.stream_is_ready(self._stream)
            return
        if self._buffer_start != before or self.is_finished:
            self._release_acknowledged()
            position = self._buffer_start + (1 if self.is_finished else 0)
            self._owner.stream_progressed(self._stream.stream_id or 0, position, self.is_finished)
        if self.is_finished:
            self._owner.stream_is_ready(self._stream)

    def _release_acknowledged(self) -> None:
        done = bisect_right(self._starts, self._buffer_start) - 1
        if self._buffer_start == self._buffer_stop:
            done = len(self._starts)
        if done > 0:
            del self._starts[:done]
            del self._chunks[:done]

    def reset(self, error_code: int) -> None:
        super().reset(error_code)
        if self._reset_error_code is not None:
            self._starts.clear()
            self._chunks.clear()
            self._owner.stream_is_ready(self._stream)

    def on_reset_delivery(self, delivery: QuicDeliveryState) -> None:
        super().on_reset_delivery(delivery)
        self._owner.stream_is_ready(self._stream)
        if self.is_finished:
            self._owner.stream_progressed(self._stream.stream_id or 0, self._buffer_start, True)


class CreditedReceiver(QuicStreamReceiver):
    """A receiving half whose window moves only as the program consumes."""

    def __init__(self, stream: QuicStream, owner: StreamOwner, mark: Mark) -> None:
        """`mark`: since when the use of its window is observed."""
        super().__init__(stream_id=stream.stream_id, readable=not stream.receiver.is_finished)
        self._stream = stream
        self._owner = owner
        self.mark = mark
        self.used_up = False
        """Whether the peer had sent all it was let and nothing of it waited to be read, since the
        window was last renewed."""
        self.consumed = 0
        self.is_released = False
        # Pieces beyond a hole, without overlaps: their offsets in order, and their bytes.
        self._held_at: list[int] = []
        self._held: dict[int, Piece] = {}

    def handle_frame(self, frame: QuicStreamFrame) -> None:
        """As aioquic calls it; the data is told to the owner."""
        self.take(frame.offset, frame.data, frame.fin)

    def take(self, offset: int, data: Piece, fin: bool) -> None:
        """A frame's data. Raises aioquic's `FinalSizeError` or, for a stream in too many pieces,
        its `QuicConnectionError`."""
        end = offset + len(data)
        if fin or self._final_size is not None:
            self._check_final_size(end, fin)
        if end > self.highest_offset:
            self.highest_offset = end
        if self.is_finished:
            return
        start = self._buffer_start
        if offset <= start:
            if end > start:
                self._deliver(data if offset == start else data[start - offset :], end)
            elif end == self._final_size:
                self._deliver(b"", end)
        elif data:
            self._hold(offset, data)

    def _check_final_size(self, end: int, fin: bool) -> None:
        """RFC 9000 section 4.5."""
        if self._final_size is not None and (
            end > self._final_size or (fin and end != self._final_size)
        ):
            raise FinalSizeError("the final size changed")
        if fin:
            if end < self.highest_offset:
                raise FinalSizeError("data lies beyond the final size")
            self._final_size = end

    def _deliver(self, data: Piece, end: int) -> None:
        tell, stream_id = self._owner.stream_data_arrived, self._stream_id or 0
        while self._held_at and self._held_at[0] <= end:
            if data:
                tell(stream_id, data, False)
            offset = self._held_at.pop(0)
            held = self._held.pop(offset)
            data = held[end - offset :]
            end = max(end, offset + len(held))
        self._buffer_start = end
        if end == self._final_size:
            self.is_finished = True
            self._held_at.clear()
            self._held.clear()
            self._owner.stream_is_ready(self._stream)
        if data or self.is_finished:
            tell(stream_id, data, self.is_finished)

    def _hold(self, offset: int, data: Piece) -> None:
        """Keeps what is not kept already of bytes beyond a hole."""
        index = bisect_right(self._held_at, offset)
        if index:
            before = self._held_at[index - 1]
            covered = before + len(self._held[before]) - offset
            if covered > 0:
                data = data[covered:]
                offset += covered
        while data:
            index = bisect_left(self._held_at, offset, max(0, index - 1))
            after = self._held_at[index] if index < len(self._held_at) else offset + len(data)
            piece = data[: after - offset]
            if piece:
                if len(self._held) >= HELD_PIECES:
                    raise QuicConnectionError(
                        error_code=QuicErrorCode.INTERNAL_ERROR,
                        frame_type=0x08,
                        reason_phrase="a stream has too many holes",
                    )
                self._held_at.insert(index, offset)
                self._held[offset] = piece
            skipped = len(self._held[after]) if after in self._held else 0
            data = data[len(piece) + skipped :]
            offset = after + skipped

    def handle_reset(
        self, *, final_size: int, error_code: int = QuicErrorCode.NO_ERROR
    ) -> StreamReset | None:
        event = super().handle_reset(final_size=final_size, error_code=error_code)
        if event is not None:
            self._held_at.clear()
            self._held.clear()
            self._owner.bytes_discarded(final_size - self._buffer_start)
            self._owner.stream_is_ready(self._stream)
        return event

    def stop(self, error_code: int = QuicErrorCode.NO_ERROR) -> None:
        super().stop(error_code)
        self._owner.stream_is_ready(self._stream)

    def on_stop_sending_delivery(self, delivery: QuicDeliveryState) -> None:
        super().on_stop_sending_delivery(delivery)
        if self.stop_pending:
            self._owner.stream_is_ready(self._stream)
