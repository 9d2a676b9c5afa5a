"""Long waits made visible: a bar in a terminal or a notebook, after half a second.

Nothing of it runs before that: a wait that is answered sooner costs 1.2 µs more. Only the main
thread shows its waits, one at a time; other threads wait in silence, and so does a program whose
stderr is no terminal and that runs in no notebook.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable
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


class Waits:
    """Waits for answers of one device, and shows it when that takes long."""

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
        bar = self._open_bar() if threading.current_thread() is threading.main_thread() else None
        if bar is None:
            return answer.wait(remaining)
        with bar:
            self._show(bar, answer, what, remaining, transfer)
        return answer.wait(0)

    def _show(
        self,
        bar: Bar,
        answer: Awaited,
        what: str,
        seconds: float | None,
        transfer: Transfer | None,
    ) -> None:
        """Returns when there is an answer, or time is over."""
        began = time.monotonic() - PATIENCE_SECONDS
        began_to_move = began
        deadline = None if seconds is None else time.monotonic() + seconds
        graphs = self._graphs_registered()
        new, self._graphs_known = graphs - self._graphs_known, graphs
        slice_ = 0.0
        while not answer.is_answered_within(slice_):
            now = time.monotonic()
            slice_ = REFRESH_SECONDS
            if deadline is not None:
                slice_ = min(slice_, deadline - now)
                if slice_ <= 0:
                    return
            if transfer is None or not transfer.done:
                began_to_move = now
                bar.show(self._waiting(new, now - began), 0, 0, 0.0)
            else:
                moving = now - began_to_move
                bar.show(f"{what} {self._address}", transfer.done, transfer.total, moving)

    def _waiting(self, new_graphs: int, seconds: float) -> str:
        first = f", {new_graphs} new op-graph{'s' * (new_graphs > 1)}" if new_graphs else ""
        return f"waiting for {self._address}, {seconds:.0f} s{first}"


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
