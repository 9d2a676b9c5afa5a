"""The two directions of a stream, with back-pressure in both."""

from __future__ import annotations

from dataclasses import dataclass

Data = bytes | bytearray | memoryview


class SendStream:
    """The sending direction of one stream. Used from the event loop's thread only."""

    id: int

    async def write(self, data: Data) -> None:
        """Sends `data`, any contiguous buffer, after everything written before.

        Returns when all of it is under way or queued, with at most the high water mark of the
        stream not yet acknowledged; waits for that while the peer or the path is slower. The
        buffer is kept by reference, not copied: it must not change until it is acknowledged.
        Concurrent writers of one stream are not ordered. Raises the connection's `close_cause`,
        or `StreamStopped` when the peer does not want more.
        """
        raise NotImplementedError

    def write_nowait(self, data: Data) -> None:
        """As `write`, without waiting and so without a bound: for small messages that must go."""
        raise NotImplementedError

    def finish(self) -> None:
        """Marks the end: the reader sees end of stream after the last byte."""
        raise NotImplementedError

    def reset(self, error_code: int = 0) -> None:
        """Gives up: what is not yet delivered is dropped and the reader gets `StreamReset`."""
        raise NotImplementedError

    async def wait_acknowledged(self) -> None:
        """Returns when the peer's transport has everything written so far, and the end if
        `finish` was called. Its program may not have read it yet. Raises as `write` does."""
        raise NotImplementedError

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes written that the peer has not acknowledged, sent or not."""
        raise NotImplementedError


class ReceiveStream:
    """The receiving direction of one stream. One reader at a time, from the event loop's thread.

    Credit goes back to the sender only as bytes are read here: not reading is back-pressure, and
    unread bytes never exceed the stream's window. A stream that is not read to its end must be
    given up with `stop`, or its unread bytes keep their share of the connection's window.
    """

    id: int

    async def read(self, max_bytes: int) -> bytes:
        """What is there, at least 1 and at most `max_bytes` bytes; b"" at the end of the stream.

        Raises `StreamReset` when the peer gave up sending, or the connection's `close_cause`.
        """
        raise NotImplementedError

    async def readexactly(self, count: int) -> bytes:
        """Exactly `count` bytes. Raises `StreamEnded` if the stream ends before; else as `read`."""
        raise NotImplementedError

    async def read_into(self, target: memoryview) -> None:
        """Fills `target`, a writable contiguous view, whole. Raises as `readexactly` does."""
        raise NotImplementedError

    def stop(self, error_code: int = 0) -> None:
        """Drops what is unread and asks the peer to stop sending; its `write` then raises."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Stream:
    """Both directions of a bidirectional stream."""

    reader: ReceiveStream
    writer: SendStream
