"""Running a server as a process: signals, the ticket file, the parent's end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from gpuwire.errors import ServerStartError
from gpuwire.server.front import Server
from gpuwire.server.tokens import write_private


async def run(
    server: Server,
    *,
    ticket_file: Path | None = None,
    on_ready: Callable[[Server], None] | None = None,
    until_eof_of: int | None = None,
    beside: Callable[[Server], AbstractAsyncContextManager[None]] | None = None,
) -> None:
    """Starts the server, enters `beside` (what runs as long as the server does), writes its ticket
    to `ticket_file` (atomically, mode 0600), calls `on_ready`, and stops at SIGINT, SIGTERM, or the
    end of file descriptor `until_eof_of`: a pipe whose other end the parent holds, so that the
    server never outlives it.

    Call it in the main thread. Raises what `Server.start` raises, and `ServerStartError` if the
    ticket file cannot be written.
    """
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told_to_stop.set)
    if until_eof_of is not None:
        _watch_for_eof(loop, until_eof_of, told_to_stop)
    running = AsyncExitStack()
    starting = asyncio.create_task(_start(server, ticket_file, on_ready, beside, running))
    stopping = asyncio.create_task(told_to_stop.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            await stopping
        else:
            starting.cancel()
            await asyncio.wait((starting,))
    finally:
        stopping.cancel()
        if until_eof_of is not None:
            loop.remove_reader(until_eof_of)
        await running.aclose()
        await server.stop()


async def _start(
    server: Server,
    ticket_file: Path | None,
    on_ready: Callable[[Server], None] | None,
    beside: Callable[[Server], AbstractAsyncContextManager[None]] | None,
    running: AsyncExitStack,
) -> None:
    await server.start()
    if beside is not None:
        await running.enter_async_context(beside(server))
    if ticket_file is not None:
        try:
            write_private(ticket_file, server.ticket)
        except OSError as error:
            raise ServerStartError(
                f"the ticket file {ticket_file} cannot be written: {error.strerror}",
                reason=str(error),
            ) from error
    if on_ready is not None:
        on_ready(server)


def _watch_for_eof(loop: asyncio.AbstractEventLoop, descriptor: int, ended: asyncio.Event) -> None:
    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            ended.set()

    loop.add_reader(descriptor, readable)
