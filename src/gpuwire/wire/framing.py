"""Cutting a stream of bytes into messages, and the header of bulk streams."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from gpuwire.errors import LimitBreached, MalformedMessage
from gpuwire.ids import RequestId
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import BulkHeader

PREFIX = struct.Struct(">I")
_BULK_HEADER = struct.Struct(">QQ")
_LENGTH_BITS = 56
_ITEM_BYTES = (0, 1, 2, 4, 8, 16)
BULK_HEADER_BYTES = _BULK_HEADER.size
_HIGHEST_ID = (1 << 63) - 1


class FrameReader:
    """Bytes in, whole messages out, each without its length prefix.

    A message that lies whole inside one piece of data is a view of that piece and is not copied;
    one that is spread over several is copied once. A message is refused when its prefix is read,
    before any of its bytes is kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """The longest message accepted, in bytes; may be changed between two messages."""
        self._partial = bytearray()

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """The messages that `data` completes, in order. `LimitBreached` for a longer one.

        Exhaust the iterator before the next call. `data` must not change afterwards: messages are
        views of it.
        """
        rest = memoryview(data)
        while rest:
            if self._partial or len(rest) < PREFIX.size:
                message, rest = self._continue(rest)
                if message is None:
                    return
                yield message
                continue
            end = PREFIX.size + self._checked_length(rest)
            if len(rest) < end:
                self._partial += rest
                return
            yield rest[PREFIX.size : end]
            rest = rest[end:]

    @property
    def pending(self) -> int:
        """Bytes kept of a message that has not yet come whole."""
        return len(self._partial)

    def _continue(self, rest: memoryview) -> tuple[memoryview | None, memoryview]:
        """Add to the message begun; it, if `rest` completes it, and what is left."""
        missing = PREFIX.size - len(self._partial)
        if missing > 0:
            self._partial += rest[:missing]
            rest = rest[missing:]
            if len(self._partial) < PREFIX.size:
                return None, rest
        missing = PREFIX.size + self._checked_length(self._partial) - len(self._partial)
        self._partial += rest[:missing]
        if len(rest) < missing:
            return None, rest[:0]
        whole, self._partial = self._partial, bytearray()
        return memoryview(whole).toreadonly()[PREFIX.size :], rest[missing:]

    def _checked_length(self, data: bytearray | memoryview) -> int:
        length: int = PREFIX.unpack_from(data)[0]
        if length > self.limit:
            raise LimitBreached(
                f"a message of {length} bytes is announced; the most is {self.limit}",
                what="message bytes",
                value=length,
                limit=self.limit,
            )
        if length == 0:
            raise MalformedMessage("a message of no bytes is announced", what="message")
        return length


def encode_bulk_header(header: BulkHeader) -> bytes:
    """The 16 bytes that a bulk stream begins with, big-endian: request, u64; `item_bytes`, u8;
    length, in 56 bits."""
    return _BULK_HEADER.pack(header.request, header.item_bytes << _LENGTH_BITS | header.length)


def decode_bulk_header(data: bytes | bytearray | memoryview, limits: WireLimits) -> BulkHeader:
    """The header in exactly `BULK_HEADER_BYTES` of data. `MalformedMessage` or `LimitBreached`."""
    if len(data) != BULK_HEADER_BYTES:
        raise MalformedMessage(
            f"a bulk stream begins with {BULK_HEADER_BYTES} bytes, not {len(data)}",
            what="bulk header",
        )
    request, coded_length = _BULK_HEADER.unpack(data)
    item_bytes, length = coded_length >> _LENGTH_BITS, coded_length & (1 << _LENGTH_BITS) - 1
    if not 1 <= request <= _HIGHEST_ID:
        raise MalformedMessage(f"{request} is no request id", what="bulk header")
    if length > limits.max_bulk_bytes:
        raise LimitBreached(
            f"a bulk stream of {length} bytes is announced; the most is {limits.max_bulk_bytes}",
            what="bulk bytes",
            value=length,
            limit=limits.max_bulk_bytes,
        )
    if item_bytes not in _ITEM_BYTES:
        raise MalformedMessage(f"elements of {item_bytes} bytes", what="bulk header")
    return BulkHeader(RequestId(request), length, item_bytes)
