"""What devices this machine has, asked in a child process so that a driver crash harms nobody."""

from __future__ import annotations

from gpuwire.config import Config
from gpuwire.wire.messages import DeviceInfo


async def probe(config: Config | None = None) -> tuple[DeviceInfo, ...]:
    """The devices of this machine, best first, each physical one once.

    Raises `NoAdapter`, or `ServerStartError` if the child process died.
    """
    raise NotImplementedError
