"""What the device will have done: one result, for a coroutine to await or a thread to wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from gpuwire.errors import GpuwireError, RequestTimeout

T = TypeVar("T")
U = TypeVar("U")


class Completion(Generic[T]):
    """One result that the poller's thread sets.

    `await` it on an asyncio loop, or call `wait` on any thread; both give the same result or raise
    the same error, any number of times. Dropping it without either is allowed.
    """

    __slots__ = ("_callbacks", "_drive", "_error", "_event", "_lock", "_value", "_watch", "done")

    def __init__(
        self,
        drive: Callable[[Completion[T]], None] | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        """`drive` blocks until the completion is done; `watch` has another thread see to it."""
        self._drive = drive
        self._watch = watch
        self._lock = threading.Lock()
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._error: BaseException | None = None
        self._value: T | None = None
        self.done = False

    @classmethod
    def failed(cls, error: BaseException) -> Completion[T]:
        """One that has ended with `error`."""
        completion = cls()
        completion.fail(error)
        return completion

    @classmethod
    def of(cls, value: T) -> Completion[T]:
        """One that has ended with `value`."""
        completion = cls()
        completion.succeed(value)
        return completion

    def succeed(self, value: T) -> None:
        """Set the result. The first of `succeed` and `fail` counts."""
        self._end(value, None)

    def fail(self, error: BaseException) -> None:
        """Set the error that waiting raises."""
        self._end(None, error)

    def then(self, change: Callable[[T], U]) -> Completion[U]:
        """One that ends with `change` of this one's result, or with the same error."""
        changed = Completion[U](drive=lambda _: self._ended(), watch=self._watch)

        def pass_on() -> None:
            if self._error is not None:
                changed.fail(self._error)
                return
            try:
                value = change(self.result())
            except GpuwireError as error:
                changed.fail(error)
            else:
                changed.succeed(value)

        self._callbacks_or_call(pass_on)
        return changed

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback` once the result is there: now, or later on the poller's thread."""
        if self._callbacks_or_call(callback) and self._watch is not None:
            self._watch()

    def result(self) -> T:
        """The value, or raises the error. Only after `done`."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._value  # type: ignore[return-value]

    def wait(self, timeout: float | None = None) -> T:
        """Block this thread until the result is there; `timeout` in seconds, then RequestTimeout.

        Without a timeout the thread polls the device itself: the hand-over from the poller's
        thread costs more than a small kernel does.
        """
        if not self.done and timeout is None and self._drive is not None:
            self._drive(self)
        if not self.done and not self._wait_event(timeout):
            raise RequestTimeout(f"the device has not finished within {timeout} s", seconds=timeout)
        return self.result()

    def __await__(self) -> Generator[object, None, T]:
        if not self.done:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self.when_done(lambda: _wake(loop, future))
            yield from future.__await__()
        return self.result()

    def _ended(self) -> None:
        if not self.done and self._drive is not None:
            self._drive(self)

    def _callbacks_or_call(self, callback: Callable[[], object]) -> bool:
        """Have `callback` called once done; whether that lies ahead."""
        with self._lock:
            waits = not self.done
            if waits:
                self._callbacks.append(callback)
        if not waits:
            callback()
        return waits

    def _wait_event(self, timeout: float | None) -> bool:
        with self._lock:
            if self.done:
                return True
            event = self._event = self._event or threading.Event()
        if self._watch is not None:
            self._watch()
        return event.wait(timeout)

    def _end(self, value: T | None, error: BaseException | None) -> None:
        with self._lock:
            if self.done:
                return
            self._value, self._error = value, error
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
            event = self._event
        if event is not None:
            event.set()
        for callback in callbacks:
            callback()


def _wake(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    def finish() -> None:
        if not future.done():
            future.set_result(None)

    try:
        loop.call_soon_threadsafe(finish)
    except RuntimeError:
        # The loop was closed while the device worked: nobody is left to be told.
        return
