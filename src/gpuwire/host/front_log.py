"""The server's log, written to from a device host: the front writes the lines, with its own."""

from __future__ import annotations

from collections.abc import Callable

from gpuwire.config.models import LogLevel
from gpuwire.host.channel_messages import LogLine
from gpuwire.telemetry.logs import Logger


def front_logger(level: LogLevel, session: int, send: Callable[[LogLine], None]) -> Logger:
    """A logger of what concerns one session; `level` is that of the front's."""
    return Logger("server", level, (_Front(session, send),))


class _Front:
    """A sink."""

    __slots__ = ("_send", "_session")

    def __init__(self, session: int, send: Callable[[LogLine], None]) -> None:
        self._session = session
        self._send = send

    def write(self, line: str, text: str) -> None:
        self._send(LogLine(self._session, text.encode()))
