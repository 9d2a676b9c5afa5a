"""Pages and the blocks they are cut into: pure bookkeeping, no wgpu.

A page is one wgpu buffer. Its blocks lie side by side, each with its neighbours at hand, so that
a freed one grows into a free neighbour at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gpuwire.compute.memory.pools import Pool


class Binder(Protocol):
    """What keeps bind groups over pages: a program, or a sequence of launches."""

    def forget(self, key: Any) -> None:
        """Lets go of those that it keeps under `key`, and of the notes of them at their pages."""
        ...


GroupKey = tuple[Binder, Any]
"""Who keeps bind groups, and its own name for them."""


class Page:
    """One wgpu buffer. `number` is never reused, so that it can stand for the buffer in keys."""

    __slots__ = ("buffer", "groups", "number", "owner", "size", "used_blocks")

    def __init__(self, number: int, size: int, buffer: Any, owner: object) -> None:
        self.owner = owner
        """The storage that made it: tells one server's memory from another's."""
        self.number = number
        self.size = size
        """Bytes."""
        self.buffer = buffer
        """The wgpu buffer; None in tests of the pools alone."""
        self.used_blocks = 0
        self.groups: set[GroupKey] = set()
        """The cached bind groups that bind it, which go when it goes."""


class Block:
    """A part of a page: used, free, or kept warm for the next request of its very size."""

    __slots__ = ("bin", "next", "offset", "page", "place", "pool", "previous", "size", "used")

    def __init__(self, page: Page, offset: int, size: int, pool: Pool) -> None:
        self.page = page
        self.pool = pool
        self.offset = offset
        self.place = page.number << 48 | offset
        """Where it begins, among all blocks of all pages."""
        self.size = size
        self.used = False
        self.bin = -1
        """Which list of free blocks it is in; −1 is none."""
        self.previous: Block | None = None
        self.next: Block | None = None


class PageSource(Protocol):
    """Where pools get pages from and return them to."""

    def create(self, size: int) -> Page:
        """A page of at least `size` bytes. Raises OutOfMemory."""
        ...

    def destroy(self, page: Page) -> None:
        """Gives the page back."""
        ...
