"""The event loop under the synchronous face: one thread for each device."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from gpuwire.client.waiting import ThreadReply

T = TypeVar("T")


class LoopThread:
    """A daemon thread that runs an event loop until `stop`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` has ended it."""
        return self.loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there and waits for its result here. What ends the wait before, such as
        KeyboardInterrupt, cancels it."""
        reply = ThreadReply()
        task: asyncio.Task[T] | None = None

        def start() -> None:
            nonlocal task
            if reply.done():
                coroutine.close()
                return
            task = self.loop.create_task(coroutine)
            task.add_done_callback(lambda task: _hand_over(task, reply))

        try:
            self.loop.call_soon_threadsafe(start)
            result: T = reply.wait()
        except BaseException:
            if reply.abandon():
                self.loop.call_soon_threadsafe(lambda: task and task.cancel())
            raise
        return result

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function called there; here, once the loop has been stopped."""
        if self.is_stopped:
            return function()

        async def called() -> T:
            return function()

        return self.run(called())

    def stop(self) -> None:
        """Ends loop and thread. From another thread; may be called twice."""
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        remaining = asyncio.all_tasks(self.loop)
        for task in remaining:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*remaining, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())


def _hand_over(task: asyncio.Task[T], reply: ThreadReply) -> None:
    if reply.done():
        if not task.cancelled():
            task.exception()  # Looked at, so that asyncio does not report it as forgotten.
        return
    if task.cancelled():
        reply.set_exception(asyncio.CancelledError())
        return
    error = task.exception()
    if error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(task.result())
