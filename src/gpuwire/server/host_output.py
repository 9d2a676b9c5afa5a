"""What a device host writes to stderr: a driver's complaints, a crash's last words."""

from __future__ import annotations

import asyncio
from collections import deque

from gpuwire.telemetry.logs import Logger

LINE_BYTES = 4096
"""A longer line is cut into several."""
LAST_LINES = 12
"""A crash's message and where it happened."""


class HostOutput:
    """Reads a process's stderr to its end and keeps the last lines.

    Drivers complain of much that is no fault, so a line is logged at level `full` as it comes; the
    last lines of a process that died are worth more.
    """

    def __init__(self, stream: asyncio.StreamReader, logger: Logger, name: str) -> None:
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._stream = stream
        self._logger = logger
        self._name = name
        self._task = asyncio.create_task(self._read())

    async def ended(self) -> None:
        """Returns when all was read."""
        await self._task

    def log_last_lines(self) -> None:
        """Logs what a process that died said last."""
        for line in self.last_lines:
            self._logger.basic(f"{self._name}: {line}")

    async def _read(self) -> None:
        rest = b""
        while data := await self._stream.read(LINE_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LINE_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._log(line)
        self._log(rest)

    def _log(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()
        if text:
            self.last_lines.append(text)
            self._logger.full(f"{self._name}: {text}")
