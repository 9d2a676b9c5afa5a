"""Counts of workgroups that lie on the device.

A buffer may not be storage and indirect in one dispatch, and slices share their page's buffer, so
the twelve bytes are copied into a buffer of their own kind first.
"""

from __future__ import annotations

from gpuwire.compute.handles import Binding
from gpuwire.compute.native import Pointer, Usage, lib
from gpuwire.compute.storage import Storage
from gpuwire.compute.streams import Stream

COUNTS_BYTES = 12
SLOT_BYTES = 16
SLOTS = 256


class IndirectCounts:
    """A ring of slots for counts. Work of one queue is ordered, so a slot may be used again as
    soon as the batch before has been submitted, and by one stream at once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._buffer: Pointer | None = None
        self._next = 0
        self._stream: Stream | None = None
        self._batch = 0

    def copy(self, counts: Binding, stream: Stream) -> tuple[Pointer, int]:
        """The buffer and offset that a dispatch of the stream's open batch may take them from."""
        if self._buffer is None:
            self._buffer = self._storage.create(
                SLOTS * SLOT_BYTES, Usage.INDIRECT | Usage.COPY_DST | Usage.COPY_SRC
            )
        self._settle(stream)
        used = counts.handle.slice
        assert used is not None
        stream.touch(used)
        offset = self._next * SLOT_BYTES
        self._next = (self._next + 1) % SLOTS
        lib.wgpuCommandEncoderCopyBufferToBuffer(
            stream.copying(),
            used.page.buffer,
            used.offset + counts.offset,
            self._buffer,
            offset,
            COUNTS_BYTES,
        )
        return self._buffer, offset

    def cleanup(self) -> int:
        """Give the buffer back."""
        if self._buffer is None:
            return 0
        self._storage.destroy(self._buffer, SLOTS * SLOT_BYTES)
        self._buffer = None
        return SLOTS * SLOT_BYTES

    def _settle(self, stream: Stream) -> None:
        other = self._stream
        if other is not stream:
            if other is not None and other.batch == self._batch:
                other.submit()
            self._stream = stream
        self._batch = stream.batch
