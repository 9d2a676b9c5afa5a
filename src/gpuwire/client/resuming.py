"""A session's way back to its server after its link was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gpuwire.client.connecting import Link
from gpuwire.errors import (
    ConnectError,
    GpuwireError,
    LinkLost,
    NoSuchDevice,
    TokenRejected,
    VersionMismatch,
    WrongFingerprint,
)
from gpuwire.telemetry.logs import Logger

FIRST_ATTEMPT_SECONDS = 2.0
"""A short deadline first: a handshake whose first packets were lost asks again after 1, 3 and 7
seconds, and a new one may get through at once when the network is back."""
ATTEMPT_GROWTH = 1.5
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
"""Between an attempt that failed at once and the next; doubles with each."""

FINAL = (NoSuchDevice, TokenRejected, VersionMismatch, WrongFingerprint)
"""Answers that will not change."""


async def find_link(
    attempt: Callable[[float], Awaitable[Link]],
    *,
    cause: GpuwireError,
    grace_seconds: float,
    attempt_seconds: float,
    logger: Logger,
) -> Link:
    """The next link, by one attempt after another.

    `attempt` is given its deadline in seconds, at most `attempt_seconds`. Raises `LinkLost`, caused
    by `cause`, when the server's grace is over; at once what the server says of the session if that
    is no more, and what will not change (`TokenRejected`, `WrongFingerprint`).
    """
    loop = asyncio.get_running_loop()
    over = loop.time() + grace_seconds
    seconds, pause = min(FIRST_ATTEMPT_SECONDS, attempt_seconds), FIRST_PAUSE_SECONDS
    while True:
        try:
            return await attempt(min(seconds, max(over - loop.time(), FIRST_PAUSE_SECONDS)))
        except ConnectError as error:
            if isinstance(error, FINAL):
                raise
            last = error
        logger.full(f"the link is not back: {last}")
        remaining = over - loop.time()
        if remaining <= 0:
            raise _not_back(cause, last, grace_seconds) from cause
        await asyncio.sleep(min(pause, remaining))
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        seconds = min(ATTEMPT_GROWTH * seconds, attempt_seconds)


def _not_back(cause: GpuwireError, last: GpuwireError, grace_seconds: float) -> LinkLost:
    return LinkLost(
        f"{cause}; the link was not taken up again within the {grace_seconds:g} s for which the "
        f"server keeps the session (remote.resume_grace_seconds there). The last attempt: {last}",
        seconds=grace_seconds,
    )
