"""Long waits made visible: a bar in a terminal or a notebook, after half a second.

Nothing of it runs before that: a wait that is answered sooner costs 1.2 µs more. Only the main
thread shows its waits, one at a time; other threads wait in silence, and so does a program whose
stderr is no terminal and that runs in no notebook.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from gpuwire.client.progress_bars import NotebookBar, TerminalBar
from gpuwire.client.transfers import Transfer

PATIENCE_SECONDS = 0.5
REFRESH_SECONDS = 0.1


class Awaited(Protocol):
    """What is waited for."""

    def is_answered_within(self, seconds: float) -> bool:
        """Waits for the answer, no longer than that; may be asked again."""

    def wait(self, seconds: float | None = None) -> Any:
        """The answer; TimeoutError after `seconds`."""


class Bar(Protocol):
    """One wait on the screen, and nothing of it there afterwards."""

    def show(self, text: str, done: int, total: int, seconds: float) -> None:
        """How far it is, after so many seconds; `total` 0: that cannot be said."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: Any) -> None: ...


class _Waits:
    """What is said of the waits on one device."""

    def __init__(
        self,
        address: str,
        graphs_registered: Callable[[], int],
        open_bar: Callable[[], Bar | None] | None = None,
    ) -> None:
        """`graphs_registered` counts the op-graphs that the server was told: the first run of each
        compiles its kernels. `open_bar` is asked once for each long wait; None is `find_bar`."""
        self._address = address
        self._graphs_registered = graphs_registered
        self._open_bar = open_bar or find_bar
        self._graphs_known = 0

    def _find_bar(self) -> Bar | None:
        is_main = threading.current_thread() is threading.main_thread()
        return self._open_bar() if is_main else None

    def _wait(self, what: str, transfer: Transfer | None) -> _Wait:
        graphs = self._graphs_registered()
        new, self._graphs_known = graphs - self._graphs_known, graphs
        return _Wait(self._address, what, transfer, new)


class _Wait:
    """One wait that has lasted for `PATIENCE_SECONDS`."""

    def __init__(self, address: str, what: str, transfer: Transfer | None, new_graphs: int) -> None:
        self._address = address
        self._what = what
        self._transfer = transfer
        self._new_graphs = new_graphs
        self._began = self._began_to_move = time.monotonic() - PATIENCE_SECONDS

    def show(self, bar: Bar) -> None:
        """How far it is now."""
        now, transfer = time.monotonic(), self._transfer
        if transfer is None or not transfer.done:
            self._began_to_move = now
            bar.show(self._waiting(now - self._began), 0, 0, 0.0)
        else:
            moving = now - self._began_to_move
            bar.show(f"{self._what} {self._address}", transfer.done, transfer.total, moving)

    def _waiting(self, seconds: float) -> str:
        new = self._new_graphs
        first = f", {new} new op-graph{'s' * (new > 1)}" if new else ""
        return f"waiting for {self._address}, {seconds:.0f} s{first}"


class Waits(_Waits):
    """Waits for answers of one device, and shows it when that takes long."""

    def wait(
        self,
        answer: Awaited,
        what: str,
        seconds: float | None = None,
        transfer: Transfer | None = None,
    ) -> Any:
        """The answer; raises as `answer.wait(seconds)`. `what` is said before the server's address
        while a transfer moves: upload to, read from."""
        patience = PATIENCE_SECONDS if seconds is None else min(PATIENCE_SECONDS, seconds)
        if answer.is_answered_within(patience):
            return answer.wait(0)
        remaining = None if seconds is None else seconds - patience
        bar = self._find_bar()
        if bar is None:
            return answer.wait(remaining)
        with bar:
            self._show(bar, self._wait(what, transfer), answer, remaining)
        return answer.wait(0)

    def _show(self, bar: Bar, wait: _Wait, answer: Awaited, seconds: float | None) -> None:
        """Returns when there is an answer, or time is over."""
        deadline = None if seconds is None else time.monotonic() + seconds
        slice_ = 0.0
        while not answer.is_answered_within(slice_):
            slice_ = REFRESH_SECONDS
            if deadline is not None:
                slice_ = min(slice_, deadline - time.monotonic())
                if slice_ <= 0:
                    return
            wait.show(bar)


class AsyncWaits(_Waits):
    """Shows what an asyncio program awaits of one device, when that takes long: the first of what
    it awaits at once. The event loop draws, ten times a second, while others of its tasks run."""

    def __init__(
        self,
        address: str,
        graphs_registered: Callable[[], int],
        open_bar: Callable[[], Bar | None] | None = None,
    ) -> None:
        super().__init__(address, graphs_registered, open_bar)
        self._is_showing = False

    @contextmanager
    def shown(self, what: str, transfer: Transfer | None = None) -> Iterator[None]:
        """Around an await; `what` is as for `Waits.wait`. It costs 2 µs where it is short."""
        showing = _Showing(self, what, transfer)
        try:
            yield
        finally:
            showing.end()

    def begin(self, what: str, transfer: Transfer | None) -> tuple[Bar, _Wait] | None:
        """A bar for a wait that takes long; None while another has one, or nobody would see it."""
        if self._is_showing:
            return None
        bar = self._find_bar()
        if bar is None:
            return None
        self._is_showing = True
        return bar, self._wait(what, transfer)

    def ended(self) -> None:
        """The bar is gone."""
        self._is_showing = False


class _Showing:
    """One await, shown from timers of its event loop."""

    def __init__(self, waits: AsyncWaits, what: str, transfer: Transfer | None) -> None:
        self._waits = waits
        self._what = what
        self._transfer = transfer
        self._shown: tuple[Bar, _Wait] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(PATIENCE_SECONDS, self._begin)

    def end(self) -> None:
        """The await is over."""
        self._timer.cancel()
        if self._shown is not None:
            self._shown[0].__exit__(None, None, None)
            self._waits.ended()

    def _begin(self) -> None:
        self._shown = self._waits.begin(self._what, self._transfer)
        if self._shown is not None:
            self._shown[0].__enter__()
            self._draw()

    def _draw(self) -> None:
        assert self._shown is not None
        bar, wait = self._shown
        wait.show(bar)
        self._timer = self._loop.call_later(REFRESH_SECONDS, self._draw)


def find_bar() -> Bar | None:
    """A bar for where this program runs; None where nobody would see it."""
    notebook = _notebook_display()
    if notebook is not None:
        return NotebookBar(notebook)
    stream = sys.stderr
    if stream is None or not stream.isatty():
        return None
    return TerminalBar.on(stream)


def _notebook_display() -> Callable[..., Any] | None:
    """IPython's `display`, if this is the process of a notebook. Imports nothing to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return None
    found: Callable[..., Any] = importlib.import_module("IPython.display").display
    return found
