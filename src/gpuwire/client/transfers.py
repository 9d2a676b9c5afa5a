"""How far a long tensor is on its way. Written by the event loop, read by whoever waits."""

from __future__ import annotations

from collections.abc import Callable


class Transfer:
    """One upload or download. Counts pieces of a MiB, so that it costs nothing beside them."""

    __slots__ = ("_moved", "_on_the_way", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        """Bytes."""
        self._moved = 0
        self._on_the_way: Callable[[], int] | None = None

    @property
    def done(self) -> int:
        """Bytes that have arrived."""
        on_the_way = self._on_the_way() if self._on_the_way is not None else 0
        return max(self._moved - on_the_way, 0)

    def begins(self, on_the_way: Callable[[], int], taken: int = 0) -> None:
        """An upload: what is handed over has arrived only when it is acknowledged. `on_the_way`
        counts what is not; `taken` bytes are there from before."""
        self._moved = taken
        self._on_the_way = on_the_way

    def moved(self, count: int) -> None:
        """So many bytes more were handed over, or came in."""
        self._moved += count
