"""The server: a listener, its device hosts, and the sessions between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpuwire.config import Config
from gpuwire.server.admission import Authorizer


class Server:
    """One server. Arguments that are None are taken from `config.server`."""

    def __init__(
        self,
        config: Config,
        *,
        host: str | None = None,
        port: int | None = None,
        devices: Sequence[int] | None = None,
        state_dir: Path | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        raise NotImplementedError

    @property
    def port(self) -> int:
        """The UDP port it listens on."""
        raise NotImplementedError

    @property
    def ticket(self) -> str:
        """The ticket that opens sessions here, with the token named `default`."""
        raise NotImplementedError

    async def start(self) -> None:
        """Listens and starts the device hosts; returns when sessions can be opened."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Tells every session, ends the device hosts, frees the port. May be called twice."""
        raise NotImplementedError
