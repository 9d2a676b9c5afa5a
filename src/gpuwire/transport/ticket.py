"""Tickets: a URL with all that a client needs to reach and trust a server."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass
from urllib.parse import quote, unquote

from gpuwire.errors import TicketError
from gpuwire.transport.fingerprints import FINGERPRINT_LENGTH, is_fingerprint

SCHEME = "gpuwire"
DEFAULT_PORT = 4433
FORM = f"{SCHEME}://HOST:PORT?fp=FINGERPRINT&token=TOKEN"
TOKEN_BYTES = 32
LONGEST_TICKET = 4_096
PARAMETERS = ("fp", "token")


@dataclass(frozen=True, slots=True, repr=False)
class Ticket:
    """`gpuwire://host:port?fp=…&token=…`. Its repr shows no token; `format` does."""

    host: str
    """A name or address; an IPv6 address without brackets."""
    port: int = DEFAULT_PORT
    fingerprint: str | None = None
    """None: trust must come from elsewhere, such as an authority file."""
    token: str = ""

    @classmethod
    def parse(cls, text: str) -> Ticket:
        """Reads a ticket's text. Raises `TicketError`, whose message names what is wrong and never
        repeats the token."""
        text = text.strip()
        try:
            return _parse(text)
        except _Flaw as flaw:
            raise TicketError(
                f"this is no valid ticket: {flaw}. A ticket looks like {FORM}",
                ticket=_without_token(text),
            ) from None

    def format(self) -> str:
        """The text that `parse` reads; it holds the token."""
        return self._text(self.token)

    def __repr__(self) -> str:
        return f"Ticket({self._text('…' if self.token else '')})"

    def _text(self, token: str) -> str:
        host = f"[{quote(self.host, safe=':')}]" if ":" in self.host else quote(self.host, safe="")
        parameters = []
        if self.fingerprint is not None:
            parameters.append(f"fp={quote(self.fingerprint, safe='')}")
        if token:
            parameters.append(f"token={token if token == '…' else quote(token, safe='')}")
        query = "?" + "&".join(parameters) if parameters else ""
        return f"{SCHEME}://{host}:{self.port}{query}"


def make_token() -> str:
    """A new random token of 256 bits as base64url, 43 characters."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class _Flaw(Exception):
    """What is wrong with a ticket, as the middle of a sentence."""


def _parse(text: str) -> Ticket:
    if not text:
        raise _Flaw("it is empty")
    if len(text) > LONGEST_TICKET:
        raise _Flaw(f"it is longer than {LONGEST_TICKET} characters")
    if any(letter.isspace() or not letter.isprintable() for letter in text):
        raise _Flaw("it has a space, a line break or another invisible character inside")
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise _Flaw(f"it does not begin with {SCHEME}://")
    if scheme.lower() != SCHEME:
        raise _Flaw(f"it begins with {scheme}:// in place of {SCHEME}://")
    if "#" in rest:
        raise _Flaw("it has a # inside; the sign is written %23")
    place, _, query = rest.partition("?")
    place, _, path = place.partition("/")
    if path:
        raise _Flaw(f"it names a path, /{path}, after the server")
    if "@" in place:
        raise _Flaw("it has a user name (@) before the host; the token belongs at the end")
    host, port = _parse_place(place)
    parameters = _parse_query(query)
    fingerprint = parameters.get("fp")
    if fingerprint is not None and not is_fingerprint(fingerprint):
        raise _Flaw(
            f"its fingerprint (fp) has {len(fingerprint)} characters or letters that do not belong "
            f"there; it must be {FINGERPRINT_LENGTH} letters, digits, - or _"
        )
    return Ticket(host, port, fingerprint, parameters.get("token", ""))


def _parse_place(place: str) -> tuple[str, int]:
    if place.startswith("["):
        inside, bracket, after = place[1:].partition("]")
        if not bracket:
            raise _Flaw("the bracket around its IPv6 address is not closed")
        host = _unquote(inside, "host")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise _Flaw(f"[{inside}] is no IPv6 address") from None
        if after and not after.startswith(":"):
            raise _Flaw(f"after the host comes {after!r} in place of a port")
        return host, _parse_port(after[1:] if after else None)
    if place.count(":") > 1:
        raise _Flaw(f"an IPv6 address needs brackets: [{place}]")
    name, colon, port = place.partition(":")
    host = _unquote(name, "host")
    if not host:
        raise _Flaw("it names no host")
    if any(letter in host for letter in "[]/?#@:%") or not host.isprintable() or " " in host:
        raise _Flaw(f"{host!r} is no host name")
    return host, _parse_port(port if colon else None)


def _parse_port(text: str | None) -> int:
    if text is None:
        return DEFAULT_PORT
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 65_535:
        raise _Flaw(f"its port is {text!r}; it must be a number from 1 to 65535")
    return int(text)


def _parse_query(query: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for item in query.split("&") if query else ():
        name, equals, value = item.partition("=")
        if name not in PARAMETERS:
            raise _Flaw(f"it has a parameter {name!r}; there are only fp and token")
        if name in parameters:
            raise _Flaw(f"it gives {name} twice")
        if not equals or not value:
            raise _Flaw(f"its {name} is empty")
        parameters[name] = _unquote(value, name)
    return parameters


def _unquote(text: str, what: str) -> str:
    try:
        plain = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _Flaw(f"its {what} has percent signs that stand for no text") from None
    if not plain.isprintable():
        raise _Flaw(f"its {what} stands for invisible characters")
    return plain


def _without_token(text: str) -> str:
    before, marker, after = text.partition("token=")
    _, ampersand, rest = after.partition("&")
    return before + marker + ("…" if marker else "") + ampersand + rest
