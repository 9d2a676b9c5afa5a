"""Where the dashboard listens: `8433`, `0.0.0.0:8433`, `[::]:8433`."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from gpuwire.errors import ArgumentError, ServerStartError

SEND_BUFFER_BYTES = 16 * 1024
"""A snapshot or two of a busy server, so that a viewer which stops reading is noticed soon."""


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address. `host` has no brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`PORT` alone is this machine only. `ArgumentError` for what is no address."""
        host, colon, number = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
        if not number.isascii() or not number.isdigit() or int(number) > 65535 or not host:
            raise ArgumentError(
                f"{text!r} is no address for the dashboard: give a port, as in 8433, or an address "
                "and a port, as in 0.0.0.0:8433"
            )
        return cls(host, int(number))

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bind(self) -> socket.socket:
        """A listening socket; `ServerStartError` if there can be none."""
        try:
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            listening = socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            raise ServerStartError(
                f"the dashboard cannot listen on {self.host}:{self.port}: {error.strerror}; "
                "give --dashboard another port, or 0 for a free one",
                reason=str(error),
            ) from error
        # Inherited by each connection: what a viewer that stops reading can hold at most.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        return listening
