"""The last lines of a log, kept for whoever watches."""

from __future__ import annotations

from collections import deque

KEPT_LINES = 200
LINE_LETTERS = 400
"""A longer line is cut."""


class LogTail:
    """A sink that keeps the last lines. They are numbered from 1, so that each viewer can ask for
    those it has not seen."""

    __slots__ = ("_lines", "written")

    def __init__(self, kept: int = KEPT_LINES) -> None:
        self._lines: deque[tuple[int, str]] = deque(maxlen=kept)
        self.written = 0

    def write(self, line: str, text: str) -> None:
        """See `logs.Sink`."""
        self.written += 1
        line = line.rstrip("\n")
        if len(line) > LINE_LETTERS:
            line = line[: LINE_LETTERS - 1] + "…"
        self._lines.append((self.written, line))

    def since(self, number: int) -> tuple[str, ...]:
        """The lines after the one of that number, as far as they are kept."""
        return tuple(line for n, line in tuple(self._lines) if n > number)
