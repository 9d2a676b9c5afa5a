"""Who may look, and at what.

On a loopback address whoever is on this machine sees everything, as the server's owner does; the
request must then name this machine as its host, so that no page of another site can reach it
through a name that points here. On any other address the dashboard speaks TLS with the server's own
key and wants a token: in a form, which answers with a cookie, or as `Authorization: Bearer`.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from gpuwire.errors import TokenRejected
from gpuwire.server.watching import Sight

COOKIE = "gpuwire-viewer"
COOKIE_SECONDS = 12 * 3600
KEPT_COOKIES = 256

_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Access:
    """Judges requests. `judge` gives the sight of a token, or raises."""

    def __init__(self, judge: Callable[[str, str], Awaitable[Sight]], *, is_local: bool) -> None:
        self.is_local = is_local
        self._judge = judge
        self._cookies: OrderedDict[str, tuple[Sight, float]] = OrderedDict()

    async def sight(self, headers: dict[str, str], address: str) -> Sight:
        """What the sender of a request may see; `TokenRejected` if nothing. `headers` by their
        names in lower case."""
        if self.is_local:
            host = headers.get("host", "")
            if host.rpartition(":")[0] not in _LOCAL_NAMES and host not in _LOCAL_NAMES:
                raise TokenRejected(
                    "this dashboard answers to localhost only: open it by that name, or serve it "
                    "with --dashboard ADDRESS:PORT, behind the token",
                    reason="wrong",
                )
            return Sight()
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return await self._judge(token.strip(), address)
        found = self._cookies.get(_cookie(headers.get("cookie", "")))
        if found is None or found[1] < time.monotonic():
            raise TokenRejected("this dashboard wants a token of the server", reason="missing")
        return found[0]

    async def enter(self, token: str, address: str) -> str:
        """A cookie's value for a token. Raises as the server refuses the token."""
        sight = await self._judge(token, address)
        value = secrets.token_urlsafe(32)
        self._cookies[value] = (sight, time.monotonic() + COOKIE_SECONDS)
        if len(self._cookies) > KEPT_COOKIES:
            self._cookies.popitem(last=False)
        return value


def _cookie(header: str) -> str:
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""
