"""Seeking another link: again and again, not for ever, and not where the answer will not change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from gpuwire.client.connecting import Link
from gpuwire.client.resuming import FIRST_ATTEMPT_SECONDS, find_link
from gpuwire.config import LoggerConfig
from gpuwire.errors import (
    ConnectTimeout,
    GpuwireError,
    LinkLost,
    ServerNotFound,
    ServerRefused,
    SessionLost,
    TokenRejected,
    WrongFingerprint,
)
from gpuwire.telemetry.logs import open_logger

CUT = LinkLost("the server was silent")
FOUND = cast("Link", object())
LOGGER = open_logger(LoggerConfig(), "test")


def found(attempt: Callable[[float], Awaitable[Link]], grace: float = 60.0) -> Link:
    return asyncio.run(
        find_link(attempt, cause=CUT, grace_seconds=grace, attempt_seconds=10.0, logger=LOGGER)
    )


def answers(*outcomes: Any) -> tuple[Callable[[float], Awaitable[Link]], list[float]]:
    """Attempts that end so, one after the other, and the deadlines they were given."""
    left, deadlines = list(outcomes), []

    async def attempt(seconds: float) -> Link:
        deadlines.append(seconds)
        outcome = left.pop(0)
        if isinstance(outcome, GpuwireError):
            raise outcome
        return cast("Link", outcome)

    return attempt, deadlines


def test_it_tries_again_until_the_network_is_back_and_gives_each_attempt_more_time() -> None:
    attempt, deadlines = answers(ServerNotFound("no DNS"), ConnectTimeout("late"), FOUND)
    assert found(attempt) is FOUND
    assert deadlines[0] == FIRST_ATTEMPT_SECONDS
    assert deadlines[0] < deadlines[1] < deadlines[2] <= 10.0


@pytest.mark.parametrize(
    "answer",
    [SessionLost("unknown"), TokenRejected("revoked"), WrongFingerprint("another server")],
    ids=lambda answer: type(answer).__name__,
)
def test_an_answer_that_will_not_change_is_the_last(answer: GpuwireError) -> None:
    attempt, deadlines = answers(ServerRefused("not yet"), answer)
    with pytest.raises(type(answer)):
        found(attempt)
    assert len(deadlines) == 2


def test_after_the_grace_it_says_what_was_lost_and_what_was_tried() -> None:
    async def attempt(seconds: float) -> Link:
        assert 0 < seconds <= 0.2
        raise ServerRefused("nobody listens")

    with pytest.raises(LinkLost, match=r"was silent.*within the 0\.2 s.*nobody listens") as caught:
        found(attempt, grace=0.2)
    assert caught.value.__cause__ is CUT
