"""The event loop under the synchronous face: one thread for each device."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from gpuwire.client.waiting import ThreadReply
from gpuwire.errors import DeviceClosed
from gpuwire.loops import loop_factory

T = TypeVar("T")


class LoopThread:
    """A daemon thread that runs an event loop until `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = loop_factory()()
        self._posting = threading.Lock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._is_stopped

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there and waits for its result here. What ends the wait before, such as
        KeyboardInterrupt, cancels it. `DeviceClosed` if the thread was stopped before its end."""
        reply = ThreadReply()
        task: asyncio.Task[T] | None = None

        def start() -> None:
            nonlocal task
            task = self._loop.create_task(coroutine)
            task.add_done_callback(lambda task: _hand_over(task, reply))

        try:
            if not self._post(start):
                coroutine.close()
                raise _stopped()
            result: T = reply.wait()
        except BaseException:
            if reply.abandon():
                self._post(lambda: task and task.cancel())
            raise
        return result

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function called there; here, once the thread has been stopped."""
        if self._is_stopped:
            return function()

        async def called() -> T:
            return function()

        return self.run(called())

    def stop(self) -> None:
        """Ends what runs there, and the thread. From another thread; may be called twice."""
        if not self._post(self._loop.stop, last=True):
            return
        self._thread.join()
        self._loop.close()

    def _post(self, callback: Callable[[], object], *, last: bool = False) -> bool:
        """False if the thread was stopped before. Whatever is posted before the stop is started
        before it, so that nobody waits for what never begins."""
        with self._posting:
            if self._is_stopped:
                return False
            self._is_stopped = last
            self._loop.call_soon_threadsafe(callback)
            return True

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        while remaining := asyncio.all_tasks(self._loop):
            for task in remaining:
                task.cancel()
            ended = asyncio.gather(*remaining, return_exceptions=True)
            self._loop.run_until_complete(ended)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


def _hand_over(task: asyncio.Task[T], reply: ThreadReply) -> None:
    # The error is looked at in any case, so that asyncio does not report it as forgotten.
    error = _stopped() if task.cancelled() else task.exception()
    if reply.done():
        return
    if error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(task.result())


def _stopped() -> DeviceClosed:
    return DeviceClosed("the device was closed meanwhile")
