"""The sending halves of qh3's streams: what its core has not been given yet.

The core copies what it is given, and sends streams in an order of its own. So bulk bytes are kept
by reference and handed over a little at a time, in turns: they are copied late, and control never
waits behind much of them. Copies of an upload's bytes between the caller's memory and the kernel:
the core's own, encryption, and the packet that is made a Python object. Private attributes of qh3
2.1's `QuicConnection` are used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from gpuwire.transport.congestion import NEAR_WINDOW_MOST
from gpuwire.transport.engine import StreamAcknowledged

FED_BYTES = 128 * 1024
"""Bulk bytes that the core holds unsent: 1 to 2 ms of sending."""

PIECE_BYTES = 32 * 1024
UNIDIRECTIONAL = 2


class _Sending:
    """The sending half of one stream."""

    __slots__ = ("acknowledged", "end", "fed", "is_ended", "pieces", "stream_id")

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self.pieces: deque[memoryview] = deque()
        self.end = False  # the end is written
        self.is_ended = False  # … and the core knows it
        self.fed = 0
        self.acknowledged = 0


class SendingStreams:
    """All of one connection."""

    def __init__(self, quic: Any) -> None:
        self._quic = quic
        self._streams: dict[int, _Sending] = {}
        self._bulk: deque[_Sending] = deque()

    def send(self, stream_id: int, data: bytes | memoryview, *, end: bool) -> None:
        """Queues bytes of a bulk stream; those of the control stream go to the core at once."""
        sending = self._streams.get(stream_id)
        if sending is None:
            sending = self._streams[stream_id] = _Sending(stream_id)
        if stream_id & UNIDIRECTIONAL:
            if not sending.pieces and not sending.end:
                self._bulk.append(sending)
            if len(data):
                sending.pieces.append(memoryview(data))
            sending.end = sending.end or end
            return
        self._quic.send_stream_data(stream_id, data, end)
        sending.fed += len(data)
        sending.end = sending.is_ended = sending.end or end

    def give_up(self, stream_id: int) -> bool:
        """Drops what the core has not been given. Whether the stream was there."""
        sending = self._streams.pop(stream_id, None)
        if sending is None:
            return False
        if sending in self._bulk:
            self._bulk.remove(sending)
        return True

    def feed(self, core: Any, *, is_near: bool) -> None:
        """Gives the core the next pieces of bulk streams. On a near path no more than
        `NEAR_WINDOW_MOST` is under way, whatever the core's window: the rest would wait in the
        sockets' buffers, in front of control."""
        if not self._bulk or (is_near and core.bytes_in_flight >= NEAR_WINDOW_MOST):
            return
        room = FED_BYTES - core.get_send_buffer_size()
        while room > 0 and self._bulk:
            sending = self._bulk.popleft()
            piece = memoryview(b"")
            if sending.pieces:
                piece = sending.pieces.popleft()
                if len(piece) > PIECE_BYTES:
                    sending.pieces.appendleft(piece[PIECE_BYTES:])
                    piece = piece[:PIECE_BYTES]
            is_last = sending.end and not sending.pieces
            self._quic.send_stream_data(sending.stream_id, piece, is_last)
            sending.fed += len(piece)
            sending.is_ended = is_last
            room -= len(piece)
            if sending.pieces:
                self._bulk.append(sending)

    def acknowledged(self, core: Any) -> Iterator[StreamAcknowledged]:
        """The core does not say what was acknowledged, but how much is unsent and how much under
        way: the rest was."""
        if not self._streams:
            return
        under_way = core.bytes_in_flight
        open_streams = self._quic._created_local_stream_ids
        for stream_id, sending in list(self._streams.items()):
            if sending.is_ended and stream_id not in open_streams and not sending.pieces:
                del self._streams[stream_id]
                yield StreamAcknowledged(stream_id, sending.fed + 1, True)
                continue
            position = sending.fed - core.get_send_buffer_size(stream_id) - under_way
            if position > sending.acknowledged:
                sending.acknowledged = position
                yield StreamAcknowledged(stream_id, position, False)
