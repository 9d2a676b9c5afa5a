"""Running a server as a process: signals, the ticket file, the parent's end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpuwire.server.front import Server


async def run(
    server: Server,
    *,
    ticket_file: Path | None = None,
    on_ready: Callable[[Server], None] | None = None,
    until_eof_of: int | None = None,
) -> None:
    """Starts the server, writes its ticket to `ticket_file` (atomically, mode 0600), calls
    `on_ready`, and stops at SIGINT, SIGTERM, or the end of file descriptor `until_eof_of`: a pipe
    whose other end the parent holds, so that the server never outlives it.
    """
    raise NotImplementedError
