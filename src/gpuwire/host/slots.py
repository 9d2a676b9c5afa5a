"""Tensor bytes between the front and a device host: slots of memory that both have mapped.

The memory is anonymous: it has no name in the file system, and goes with the last process that
has it open, however that ends. A slot has one owner at a time. The sender takes a free one, fills
it and names it in a message; the receiver empties it at once and hands it back. A receiver never
keeps a slot while it waits for anything, so a slow client cannot hold one.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

SLOT_BYTES = 1024 * 1024
"""At 1 MiB the messages around a slot (0.1 ms) cost less than copying its bytes."""
SLOTS_EACH_WAY = 16
BLACK_BOX_BYTES = 32 * 1024
"""Behind the slots: see `black_box`."""


class SlotMemory:
    """The mapping: `SLOTS_EACH_WAY` slots from the front to the host, as many back, a black box."""

    def __init__(self, descriptor: int) -> None:
        """Maps an open file, which must be of `size` bytes. The descriptor stays the caller's."""
        self._map = mmap.mmap(descriptor, self.size)
        self._view = memoryview(self._map)

    size = 2 * SLOTS_EACH_WAY * SLOT_BYTES + BLACK_BOX_BYTES
    to_host = range(SLOTS_EACH_WAY)
    to_front = range(SLOTS_EACH_WAY, 2 * SLOTS_EACH_WAY)

    def slot(self, number: int, size: int) -> memoryview:
        """The first `size` bytes of a slot. Release it before `close`."""
        start = number * SLOT_BYTES
        return self._view[start : start + size]

    @property
    def black_box(self) -> memoryview:
        """The memory of the black box. Release it before `close`."""
        return self._view[self.size - BLACK_BOX_BYTES :]

    def close(self) -> None:
        """Gives the mapping back. Slots still viewed keep it until their views go."""
        self._view.release()
        try:
            self._map.close()
        except BufferError:
            # A view lives on, in an error's traceback perhaps: the mapping goes when that does.
            return


def anonymous_file(size: int) -> int:
    """The descriptor of a file of `size` bytes that has no name. Nothing is allocated before it is
    written to. The caller closes it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("gpuwire-slots", os.MFD_CLOEXEC)
    else:
        descriptor, path = tempfile.mkstemp(prefix="gpuwire-slots-")
        Path(path).unlink()
    os.ftruncate(descriptor, size)
    return descriptor


class SlotPool:
    """The sending side's free slots. Whoever waits is served in order of arrival."""

    def __init__(self, slots: Sequence[int]) -> None:
        self._free = deque(slots)
        self._waiting: deque[asyncio.Future[int]] = deque()

    @property
    def free(self) -> int:
        """How many nobody has."""
        return len(self._free)

    async def acquire(self) -> int:
        """A slot, at once or when one is handed back."""
        if self._free:
            return self._free.popleft()
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(waiter.result())
            raise

    def release(self, slot: int) -> None:
        """Hands a slot back."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(slot)
                return
        self._free.append(slot)
