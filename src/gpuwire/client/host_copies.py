"""A tensor's values on their way to this machine, before anyone waits for them."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

from gpuwire.client.pending import HostArray, fresh
from gpuwire.client.tensor import Tensor
from gpuwire.client.waiting import wait_interruptibly
from gpuwire.errors import GpuwireError


class HostCopy:
    """The `Completion` of a read that was asked for ahead. Its tensor keeps it; any number of
    readers, on any threads, wait for the one answer, each for as long as it likes."""

    __slots__ = ("_arrived", "_error", "_tensor", "_values", "_waiting")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self._arrived = threading.Event()
        self._values: HostArray | None = None
        self._error: BaseException | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def done(self) -> bool:
        """Whether it has come, or nobody can ask for it any more."""
        return self._arrived.is_set() or self._tensor() is None

    @property
    def is_completed(self) -> bool:
        """Whether there are values or an error."""
        return self._arrived.is_set()

    def set_result(self, result: Any, /) -> None:
        self._values = result
        self._complete()

    def set_exception(self, exception: BaseException, /) -> None:
        self._error = exception
        self._complete()

    async def arrival(self) -> None:
        """Returns when there is an answer. On the event loop that brings it."""
        if not self.is_completed:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def is_answered_within(self, seconds: float) -> bool:
        """Waits no longer than that."""
        return wait_interruptibly(self._arrived, seconds)

    def wait(self, seconds: float | None = None) -> HostArray:
        """The values; TimeoutError after `seconds`, which takes nothing from a later wait."""
        if not wait_interruptibly(self._arrived, seconds):
            raise TimeoutError
        return self.values()

    def values(self) -> HostArray:
        """What has come, in an array of the caller's own; or the error, raised."""
        if isinstance(self._error, GpuwireError):
            raise fresh(self._error)
        if self._error is not None:
            raise self._error
        assert self._values is not None
        return self._values.copy()

    def _complete(self) -> None:
        self._arrived.set()
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting = []
