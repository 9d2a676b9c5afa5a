"""A slice: the part of a wgpu buffer that a pool handed out."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gpuwire.compute.memory.pages import Block, Page

if TYPE_CHECKING:
    from gpuwire.compute.streams import Stream
    from gpuwire.compute.taint import Marks

Released = tuple[Block, int, "Stream | None", int]
"""A block, the bytes asked for, the stream that touched it last and the batch it did so in."""


class Slice:
    """A part of a page, held by handles, captured graphs and reads on their way.

    It returns to its pool when the last of them lets go: its end is put on the owner's queue, which
    is safe from any thread, and the owner takes it in before it next allocates. (weakref.finalize
    costs 2 µs a slice; `__del__` with a deque 0.2 µs.)
    """

    __slots__ = (
        "_released",
        "block",
        "capacity",
        "marks",
        "offset",
        "page",
        "size",
        "touched_batch",
        "touched_by",
        "written_batch",
    )

    def __init__(
        self, block: Block, size: int, marks: Marks | None, released: deque[Released]
    ) -> None:
        self.block = block
        self.page: Page = block.page
        self.offset = block.offset
        """Bytes from the page's start."""
        self.size = size
        """Bytes asked for."""
        self.capacity = block.size
        """Bytes that are ours: padding may be written, and belongs to nobody else."""
        self.marks = marks
        """Which bytes do not exist, and why; None where all of them do."""
        self.touched_by: Stream | None = None
        """The stream whose work used it last …"""
        self.touched_batch = 0
        """… and in which batch: equal to that stream's open one while that is not submitted."""
        self.written_batch = 0
        self._released = released

    def __del__(self) -> None:
        self._released.append((self.block, self.size, self.touched_by, self.touched_batch))
