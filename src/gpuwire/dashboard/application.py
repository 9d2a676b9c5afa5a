"""The dashboard's routes."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gpuwire.dashboard.access import COOKIE, COOKIE_SECONDS, Access
from gpuwire.dashboard.event_stream import STALL_SECONDS, EventStream
from gpuwire.errors import GpuwireError, QuotaExceeded, TokenRejected
from gpuwire.server.watching import Sight, Watching
from gpuwire.telemetry.plain import to_json
from gpuwire.telemetry.prometheus import CONTENT_TYPE, exposition

FORM_BYTES = 4096
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing comes from another host, and nothing inline runs."""
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class Pages:
    """Answers requests about one server."""

    def __init__(
        self, watching: Watching, access: Access, *, stall_seconds: float = STALL_SECONDS
    ) -> None:
        self._watching = watching
        self._access = access
        self._stall_seconds = stall_seconds
        directory = files("gpuwire.dashboard") / "static"
        self._files = {file.name: file.read_bytes() for file in directory.iterdir()}

    def application(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/", self._index),
            Route("/enter", self._enter, methods=["POST"]),
            Route("/static/{name}", self._static),
            Route("/events", _Events(self)),
            Route("/graph/{device:int}/{session:int}/{graph:int}", self._graph),
            Route("/metrics", self._metrics),
        ]
        return Starlette(routes=routes)

    async def sight(self, request: Request) -> Sight:
        """What the sender may see, or raises."""
        return await self._access.sight(dict(request.headers), _address(request))

    async def events(self, request: Request) -> Callable[..., object]:
        """The answer to a viewer."""
        try:
            view = self._watching.view(await self.sight(request))
        except GpuwireError as error:
            return _refusal(error)
        headers = [(k.lower().encode(), v.encode()) for k, v in _HEADERS.items()]
        return EventStream(view, headers[:-1], self._stall_seconds)

    async def _index(self, request: Request) -> Response:
        try:
            await self.sight(request)
        except TokenRejected as error:
            if self._access.is_local:
                return _refusal(error)
            return self._file("enter.html", 401)
        return self._file("index.html")

    async def _enter(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES:
                return Response("the form is too long", 413, _HEADERS, "text/plain")
        token = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0].strip()
        # A whole ticket is what people have at hand.
        if "token=" in token:
            token = parse_qs(token.partition("?")[2]).get("token", [""])[0]
        try:
            value = await self._access.enter(token, _address(request))
        except GpuwireError as error:
            page = self._files["enter.html"].replace(b"<!--error-->", _escaped(str(error)))
            return Response(page, 401, _HEADERS, _TYPES["html"])
        answer = RedirectResponse("/", 303, _HEADERS)
        answer.set_cookie(
            COOKIE, value, COOKIE_SECONDS, httponly=True, secure=True, samesite="strict"
        )
        return answer

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files or name.endswith(".html"):
            return Response("there is no such file", 404, _HEADERS, "text/plain")
        return self._file(name)

    async def _graph(self, request: Request) -> Response:
        numbers = request.path_params
        try:
            drawing = await self._watching.drawing(
                await self.sight(request), numbers["device"], numbers["session"], numbers["graph"]
            )
        except GpuwireError as error:
            return _refusal(error)
        if drawing is None:
            return Response("null", 404, _HEADERS, "application/json")
        return Response(to_json(drawing), 200, _HEADERS, "application/json")

    async def _metrics(self, request: Request) -> Response:
        try:
            snapshot = await self._watching.once(await self.sight(request))
        except GpuwireError as error:
            return _refusal(error)
        return Response(exposition(snapshot), 200, _HEADERS, CONTENT_TYPE)

    def _file(self, name: str, status: int = 200) -> Response:
        kind = _TYPES[name.rpartition(".")[2]]
        return Response(self._files[name], status, _HEADERS, kind)


class _Events:
    """`/events`, an endpoint that answers for as long as it is read."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._pages.events(Request(scope, receive))
        await answer(scope, receive, send)  # type: ignore[misc]


def _refusal(error: GpuwireError) -> Response:
    status = 429 if isinstance(error, QuotaExceeded) else 401
    if not isinstance(error, (QuotaExceeded, TokenRejected)):
        status = 503
    body = json.dumps({"error": type(error).__name__, "message": str(error)})
    return Response(body, status, _HEADERS, "application/json")


def _address(request: Request) -> str:
    return f"{request.client.host}:{request.client.port}" if request.client else "?"


def _escaped(text: str) -> bytes:
    for letter, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(letter, entity)
    return f'<p class="error" role="alert">{text}</p>'.encode()
