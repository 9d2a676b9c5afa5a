"""One viewer's stream of server-sent events: a snapshot each quarter of a second.

A viewer that stops reading fills its socket; then it misses moments, and after `STALL_SECONDS` it
is given up. What it holds here is one snapshot and what its transport keeps.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from gpuwire.server.watching import View
from gpuwire.telemetry.plain import to_json

STALL_SECONDS = 20.0

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
]


class EventStream:
    """An ASGI response over a view, which it closes at its end."""

    def __init__(
        self, view: View, headers: list[tuple[bytes, bytes]], stall_seconds: float
    ) -> None:
        self._view = view
        self._headers = [*_HEADERS, *headers]
        self._stall_seconds = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self._headers}
        with self._view as view:
            leaving = asyncio.ensure_future(_left(receive))
            leaving.add_done_callback(lambda _: view.close())
            try:
                await send(start)
                while (snapshot := await view.next()) is not None:
                    data = b"data: " + to_json(snapshot) + b"\n\n"
                    body = {"type": "http.response.body", "body": data, "more_body": True}
                    async with asyncio.timeout(self._stall_seconds):
                        await send(body)
                await send({"type": "http.response.body", "body": b""})
            except TimeoutError:
                # It has not read for so long: the connection is closed without its end.
                return
            finally:
                leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
