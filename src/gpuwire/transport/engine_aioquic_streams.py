"""aioquic's stream halves, changed in what they keep and in whom they tell.

aioquic copies all that is written into one bytearray per stream and copies each frame out of it
twice. `ReferencingSender` keeps the written buffers themselves and copies each frame once, into
the bytes that aioquic's packet buffer takes (it refuses a memoryview). Private attributes of
aioquic 1.7's `QuicStreamSender` and `QuicStreamReceiver` are used here: `_buffer_start`,
`_buffer_stop`, `_buffer_fin`, `_pending`, `_pending_eof`, `_reset_error_code`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

from aioquic.quic.events import StreamDataReceived, StreamReset
from aioquic.quic.packet import QuicErrorCode, QuicStreamFrame
from aioquic.quic.packet_builder import QuicDeliveryState
from aioquic.quic.stream import QuicStream, QuicStreamReceiver, QuicStreamSender


class StreamOwner(Protocol):
    """The connection, as its streams see it."""

    def stream_is_ready(self, stream: QuicStream) -> None:
        """The stream has something to send, or is finished."""

    def stream_progressed(self, stream_id: int, position: int, is_final: bool) -> None:
        """The peer acknowledged up to `position`; `is_final` if the sending half is finished."""

    def bytes_discarded(self, count: int) -> None:
        """Bytes that count against the connection's window and will never be delivered."""


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

    def __init__(self, stream: QuicStream, owner: StreamOwner) -> None:
        super().__init__(stream_id=stream.stream_id, readable=not stream.receiver.is_finished)
        self._stream = stream
        self._owner = owner
        self.consumed = 0
        self.is_released = False

    def handle_frame(self, frame: QuicStreamFrame) -> StreamDataReceived | None:
        event = super().handle_frame(frame)
        if self.is_finished:
            self._owner.stream_is_ready(self._stream)
        return event

    def handle_reset(
        self, *, final_size: int, error_code: int = QuicErrorCode.NO_ERROR
    ) -> StreamReset | None:
        event = super().handle_reset(final_size=final_size, error_code=error_code)
        if event is not None:
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
