"""The tensors of one session: what exists, what is on its way, what failed and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuwire.errors import GpuwireError, MalformedMessage, OutOfMemory
from gpuwire.ids import TensorId
from gpuwire.ir.tensors import TensorType
from gpuwire.lowering.values import Value
from gpuwire.wire.fields import breached


@dataclass(slots=True, eq=False)
class Failure:
    """The first cause of everything that depends on it."""

    error: GpuwireError
    location: int
    """Where the failed work was recorded; 0 if it was not an operation."""
    stream: int
    """Number of the compute stream it happened on."""
    arrival: int
    """When the failed work arrived, in the session's count."""
    reported: bool = False
    """Whether a reply has told the client."""

    def __post_init__(self) -> None:
        # A kept traceback keeps the locals of its frames, and with them tensors.
        link: BaseException | None = self.error
        while link is not None:
            link.__traceback__ = link.__context__ = None
            link = link.__cause__


class MemoryAccount:
    """A session's device memory against its limit. Sizes in bytes; limit 0 is none."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0

    def require(self, size: int) -> None:
        """Raises `OutOfMemory` if `size` more would pass the limit."""
        if self.limit and self.in_use + size > self.limit:
            raise OutOfMemory(
                f"{size} more bytes pass this session's limit of {self.limit}, of which "
                f"{self.in_use} are in use; delete arrays that are no longer needed",
                wanted=size,
                in_use=self.in_use,
                limit=self.limit,
            )


class Lease:
    """The account's entry for one piece of memory; it ends when the last tensor over it goes."""

    __slots__ = ("_account", "size")

    def __init__(self, account: MemoryAccount, size: int) -> None:
        self._account = account
        self.size = size
        account.in_use += size

    def __del__(self) -> None:
        self._account.in_use -= self.size


class Tensor:
    """One tensor of a session: awaited, there, or failed. Once settled it never changes."""

    __slots__ = ("_waiting", "arrival", "failure", "lease", "type", "value")

    def __init__(self, type_: TensorType | None, arrival: int) -> None:
        self.type = type_
        """None only where it failed before its type was known."""
        self.arrival = arrival
        """When the work that makes it arrived, in the session's count."""
        self.value: Value | None = None
        self.failure: Failure | None = None
        self.lease: Lease | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def settled(self) -> bool:
        return self.value is not None or self.failure is not None

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Has `settle` or `fail` return this callback among those to be called."""
        self._waiting.append(callback)

    def settle(self, value: Value, lease: Lease) -> list[Callable[[], None]]:
        """The tensor is there; returns who waited for it."""
        self.value = value
        self.lease = lease
        return self._take_waiting()

    def fail(self, failure: Failure) -> list[Callable[[], None]]:
        """The tensor will never be there; returns who waited for it."""
        self.failure = failure
        return self._take_waiting()

    def _take_waiting(self) -> list[Callable[[], None]]:
        waiting, self._waiting = self._waiting, []
        return waiting


MAX_TENSORS = 1 << 20
"""Of one session. Each takes half a KiB here besides its device memory, which may be none."""


class TensorTable:
    """A session's tensors by id."""

    def __init__(self) -> None:
        self._tensors: dict[TensorId, Tensor] = {}
        self.drop_other: Callable[[int], None] = lambda _: None
        """Lets go of what has an id out of the same row and is no tensor."""

    def __len__(self) -> int:
        return len(self._tensors)

    def find(self, tensor_id: TensorId) -> Tensor | None:
        """The tensor of that id, or None if the session has none."""
        return self._tensors.get(tensor_id)

    def find_all(self, ids: Sequence[TensorId]) -> tuple[Tensor | None, ...]:
        """The same for several."""
        return tuple(map(self._tensors.get, ids))

    def add(self, tensor_id: TensorId, tensor: Tensor) -> None:
        """Puts a new tensor in. `MalformedMessage` if the id is taken, `LimitBreached` above
        `MAX_TENSORS`."""
        if len(self._tensors) >= MAX_TENSORS:
            raise breached("tensors of one session", len(self._tensors) + 1, MAX_TENSORS)
        if tensor_id in self._tensors:
            raise MalformedMessage(f"tensor {tensor_id} exists already", what="tensor id")
        self._tensors[tensor_id] = tensor

    def drop(self, tensor_id: TensorId) -> None:
        """Forgets a tensor; work that waits for it keeps it. An unknown id is no error."""
        if self._tensors.pop(tensor_id, None) is None:
            self.drop_other(tensor_id)

    def clear(self) -> None:
        self._tensors.clear()
