"""How a long wait looks: on a terminal by rich, in a notebook as HTML."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from gpuwire.telemetry.quantities import in_bytes

if TYPE_CHECKING:
    from rich.progress import Progress


def how_far(done: int, total: int, seconds: float) -> str:
    """`123 MiB of 512 MiB, 85 MiB/s, 0:05 left`; nothing where `total` is 0. `seconds` is how long
    it took so far."""
    if not total:
        return ""
    rate = done / seconds if seconds > 0 else 0.0
    text = f"{in_bytes(done)} of {in_bytes(total)}"
    if not rate:
        return text
    left = int((total - done) / rate + 0.5)
    return f"{text}, {in_bytes(rate)}/s, {left // 60}:{left % 60:02} left"


class TerminalBar:
    """A line at the cursor that is gone when the wait is over. Drawn by whoever waits, so that no
    thread runs for it."""

    def __init__(self, progress: Progress) -> None:
        """Use `on`."""
        self._progress = progress
        self._task = progress.add_task("", total=None, far="", visible=False)
        self._began = time.monotonic()

    @classmethod
    def on(cls, stream: TextIO) -> TerminalBar | None:
        """None where the terminal cannot move its cursor."""
        # 60 ms to import, which only a wait that is long already pays.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(file=stream)
        if not console.is_terminal or console.is_dumb_terminal:
            return None
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[far]}", markup=False),
        )
        return cls(Progress(*columns, console=console, transient=True, auto_refresh=False))

    def show(self, text: str, done: int, total: int, seconds: float) -> None:
        far = how_far(done, total, seconds)
        self._progress.update(
            self._task,
            description=text,
            completed=done,
            total=total or None,
            far=far,
            visible=True,
            refresh=True,
        )

    def __enter__(self) -> TerminalBar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


class NotebookBar:
    """An output of the cell, empty again when the wait is over. Plain HTML: rich would need
    ipywidgets for it."""

    def __init__(self, display: Callable[..., Any]) -> None:
        """`display` is IPython's."""
        self._display = display
        self._handle: Any = None

    def show(self, text: str, done: int, total: int, seconds: float) -> None:
        position = f' value="{done}" max="{total}"' if total else ""
        self._put(
            f"<span>{escape(text)} <progress{position}></progress> "
            f"{escape(how_far(done, total, seconds))}</span>"
        )

    def _put(self, html: str) -> None:
        data = {"text/html": html, "text/plain": ""}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def __enter__(self) -> NotebookBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._put("")
