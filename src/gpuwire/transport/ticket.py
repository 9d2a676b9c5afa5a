"""Tickets: a URL with all that a client needs to reach and trust a server."""

from __future__ import annotations

from dataclasses import dataclass

SCHEME = "gpuwire"
DEFAULT_PORT = 4433


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
        """Reads a ticket's text. Raises `TicketError`, whose message names the part that is wrong."""
        raise NotImplementedError

    def format(self) -> str:
        """The text that `parse` reads; it holds the token."""
        raise NotImplementedError


def make_token() -> str:
    """A new random token of 256 bits as base64url, 43 characters."""
    raise NotImplementedError
