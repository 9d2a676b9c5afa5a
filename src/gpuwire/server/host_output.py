"""What a device host writes to stderr: a driver's complaints, a crash's last words."""

from __future__ import annotations

import asyncio

from gpuwire.telemetry.logs import Logger

LINE_BYTES = 4096
"""A longer line is cut into several."""


class HostOutput:
    """Logs a process's stderr line by line and keeps the last line."""

    def __init__(self, stream: asyncio.StreamReader, logger: Logger, name: str) -> None:
        self.last_line = ""
        self._stream = stream
        self._logger = logger
        self._name = name
        self._task = asyncio.create_task(self._read())

    async def ended(self) -> None:
        """Returns when all was read."""
        await self._task

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
            self.last_line = text
            self._logger.basic(f"{self._name}: {text}")
