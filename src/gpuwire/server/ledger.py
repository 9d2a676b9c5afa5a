"""What a bounded store holds: sizes, who is in use, and who was used least lately."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Ledger(Generic[Key]):
    """The books of one store. What is reserved counts as used, so that the bound holds while many
    entries come at once; an entry in use is not evicted."""

    def __init__(self, limit_bytes: int, evict: Callable[[Key], None]) -> None:
        """`evict` is called with a key that has just left the books."""
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        """Of entries, and reserved."""
        self._evict = evict
        self._sizes: OrderedDict[Key, int] = OrderedDict()
        self._pins: Counter[Key] = Counter()

    def __contains__(self, key: Key) -> bool:
        return key in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def reserve(self, count: int) -> bool:
        """Room for `count` further bytes, for which what was used least lately goes; False if that
        would not be enough, and then nothing has changed."""
        unpinned = [key for key in self._sizes if key not in self._pins]
        free = self.limit_bytes - self.used_bytes
        going = []
        for key in unpinned:
            if free >= count:
                break
            free += self._sizes[key]
            going.append(key)
        if free < count:
            return False
        for key in going:
            self.remove(key)
            self._evict(key)
        self.used_bytes += count
        return True

    def release(self, count: int) -> None:
        """Gives back bytes that were reserved."""
        self.used_bytes -= count

    def add(self, key: Key, size: int) -> None:
        """Enters a new key, used just now, whose `size` bytes were reserved."""
        self._sizes[key] = size

    def remove(self, key: Key) -> None:
        """Takes a key out, if it is there, and gives back its bytes."""
        self.used_bytes -= self._sizes.pop(key, 0)

    def use(self, key: Key) -> None:
        """Notes that a key is used, if it is there."""
        if key in self._sizes:
            self._sizes.move_to_end(key)

    def pin(self, key: Key) -> None:
        """Keeps a key until `unpin`, which comes as often as this."""
        self._pins[key] += 1

    def unpin(self, key: Key) -> None:
        self._pins[key] -= 1
        if not self._pins[key]:
            del self._pins[key]
