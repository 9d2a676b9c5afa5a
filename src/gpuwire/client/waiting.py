"""How a thread waits for the event loop's thread, so that Ctrl-C ends the wait."""

from __future__ import annotations

import threading
import time
from typing import Any

_SLICE_SECONDS = 0.05
"""The longest wait in one piece. A signal that comes while the main thread has already left the
interpreter's last check but has not yet begun to wait does not interrupt the wait: seen in one of
two runs where the event loop was busy, since the thread gets into that gap by waiting for the
interpreter lock. On Windows no signal interrupts a wait at all."""


class ThreadReply:
    """A `Completion` that one thread waits for.

    A raw lock and no condition variable: 0.3 µs to make.
    """

    __slots__ = ("_abandoned", "_completed", "_error", "_gate", "_result")

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()
        self._completed = False
        self._abandoned = False
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._completed or self._abandoned

    @property
    def is_completed(self) -> bool:
        """Whether there is a result or an error."""
        return self._completed

    def abandon(self) -> bool:
        """Nobody waits any more. False if it was completed before."""
        self._abandoned = True
        return not self._completed

    def set_result(self, result: Any, /) -> None:
        self._result = result
        self._completed = True
        self._gate.release()

    def set_exception(self, exception: BaseException, /) -> None:
        self._error = exception
        self._completed = True
        self._gate.release()

    def is_answered_within(self, seconds: float) -> bool:
        """Waits no longer than that; may be asked again, and `wait` then does not wait."""
        try:
            acquire_interruptibly(self._gate, seconds)
        except TimeoutError:
            return False
        except BaseException:  # KeyboardInterrupt
            self.abandon()
            raise
        self._gate.release()
        return True

    def wait(self, seconds: float | None = None) -> Any:
        """The result, or the error raised; TimeoutError after `seconds`. If the wait ends before
        the result has come, nobody waits any more, and `done()` says so."""
        try:
            acquire_interruptibly(self._gate, seconds)
        except BaseException:
            self.abandon()
            raise
        if self._error is not None:
            raise self._error
        return self._result


def acquire_interruptibly(lock: threading.Lock, seconds: float | None) -> None:
    """Waits for a lock; a signal's handler may run, and raise, meanwhile. TimeoutError after
    `seconds`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        remaining = _SLICE_SECONDS
        if deadline is not None:
            remaining = min(remaining, max(deadline - time.monotonic(), 0.0))
        if lock.acquire(timeout=remaining):
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError


def wait_interruptibly(event: threading.Event, seconds: float | None = None) -> bool:
    """Waits until the event is set; a signal's handler may run, and raise, meanwhile. False after
    `seconds`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    remaining = _SLICE_SECONDS
    while True:
        if deadline is not None:
            remaining = min(_SLICE_SECONDS, max(deadline - time.monotonic(), 0.0))
        if event.wait(remaining):
            return True
        if deadline is not None and time.monotonic() >= deadline:
            return False
