"""Running the dashboard inside a server's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from gpuwire.dashboard.access import Access
from gpuwire.dashboard.address import Address
from gpuwire.dashboard.application import Pages
from gpuwire.dashboard.event_stream import STALL_SECONDS
from gpuwire.server import Server
from gpuwire.transport import IDENTITY_FILE

STOP_SECONDS = 1


class Dashboard:
    """A dashboard whose port is taken; `serve` it beside the server that it shows."""

    def __init__(self, address: Address, *, stall_seconds: float = STALL_SECONDS) -> None:
        """Listens. `ServerStartError` if the address cannot be had."""
        self._address = address
        self._stall_seconds = stall_seconds
        self._socket: socket.socket = address.bind()

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        host, port = self._socket.getsockname()[:2]
        host = "localhost" if host in ("0.0.0.0", "::", "127.0.0.1", "::1") else host
        host = f"[{host}]" if ":" in host else host
        return f"{'http' if self._address.is_local else 'https'}://{host}:{port}/"

    @contextlib.asynccontextmanager
    async def serve(self, server: Server) -> AsyncIterator[None]:
        """Answers requests about a server that has started, until the end of the block."""
        access = Access(server.sight, is_local=self._address.is_local)
        pages = Pages(server.watching, access, stall_seconds=self._stall_seconds)
        key = None if self._address.is_local else str(server.state_dir / IDENTITY_FILE)
        config = uvicorn.Config(
            pages.application(),
            http="h11",
            ws="none",
            lifespan="off",
            loop="none",
            access_log=False,
            log_config=None,
            log_level="critical",
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
            ssl_certfile=key,
            ssl_keyfile=key,
        )
        serving = _Serving(config)
        task = asyncio.create_task(serving.serve(sockets=[self._socket]))
        try:
            yield
        finally:
            server.watching.close()
            serving.should_exit = True
            await task

    def close(self) -> None:
        """Gives the port back, where it was never served."""
        self._socket.close()


class _Serving(uvicorn.Server):
    """Signals are the gpuwire server's to answer."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
