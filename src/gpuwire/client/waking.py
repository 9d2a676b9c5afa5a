"""How a thread that records gets the event loop to look.

A wake is a write to a pipe, 3 to 5 µs and a chance for the other thread to take the interpreter
lock, so one at most is under way, and none while the idle flush is due anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpuwire.client.batch import Batches


class Waker:
    """Wakes the event loop for what was recorded."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        batches: Batches,
        *,
        send: Callable[[], None],
        idle: Callable[[float], float | None],
    ) -> None:
        """On the event loop's thread, `send` is called when a batch is closed, `idle` while
        anything is open: it is told the time, closes what has waited long enough, and says in how
        many seconds it wants to be asked again; None if nothing waits."""
        self._loop = loop
        self._batches = batches
        self._send = send
        self._idle = idle
        self._is_under_way = False
        self._due: asyncio.TimerHandle | None = None

    def wake(self, urgent: bool) -> None:
        """Makes the event loop look at the batches; not `urgent`: within the idle flush. On any
        thread, in the garbage collector too: takes no lock."""
        if self._is_under_way or (self._due is not None and not urgent):
            return
        try:
            # In this order, and undone by whatever ends the call: a mark without a wake under way
            # would be the last one.
            self._is_under_way = True
            self._loop.call_soon_threadsafe(self._look)
        except RuntimeError:  # The loop is closed, and the session is over with it.
            self._is_under_way = False
        except BaseException:  # KeyboardInterrupt
            self._is_under_way = False
            raise

    def _look(self) -> None:
        self._is_under_way = False
        if not self._batches.is_drained:
            self._send()
        if self._due is None:
            self._ask()

    def _ask(self) -> None:
        # First: what is recorded from here on must see that no flush is due.
        self._due = None
        delay = self._idle(self._loop.time())
        if not self._batches.is_drained:
            self._send()
        if delay is not None and self._due is None:
            self._due = self._loop.call_later(delay, self._ask)
