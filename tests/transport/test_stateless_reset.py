"""A connection that the server has forgotten: the client is told, and nobody else can tell it."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from gpuwire.errors import LinkLost
from gpuwire.transport import Identity
from gpuwire.transport.stateless_reset import (
    LARGEST_RESET_BYTES,
    SMALLEST_RESET_BYTES,
    ResetTokens,
    is_reset,
)

CONNECTION = os.urandom(8)


def test_a_token_is_of_one_server_and_one_connection_and_outlives_the_process() -> None:
    identity = Identity.create()
    tokens = ResetTokens(identity)
    token = tokens.token(CONNECTION)
    assert token == ResetTokens(identity).token(CONNECTION)
    assert token != tokens.token(os.urandom(8))
    assert token != ResetTokens(Identity.create()).token(CONNECTION)


@pytest.mark.parametrize("size", [22, 30, 44, 1200])
def test_an_answer_is_shorter_than_what_it_answers(size: int) -> None:
    tokens = ResetTokens(Identity.create())
    answer = tokens.answer(b"\x41" + CONNECTION + bytes(size - 9))
    assert answer is not None
    assert SMALLEST_RESET_BYTES <= len(answer) <= LARGEST_RESET_BYTES
    assert len(answer) < size
    assert answer[0] >> 6 == 1  # A short header, as any packet of a connection.
    assert is_reset(answer, tokens.token(CONNECTION))
    assert not is_reset(answer, tokens.token(os.urandom(8)))
    assert not is_reset(answer, None)


@pytest.mark.parametrize(
    "data", [b"", b"\x41" + CONNECTION, bytes(21), b"\xc1" + bytes(1199)], ids=len
)
def test_what_is_too_short_or_a_first_packet_has_no_answer(data: bytes) -> None:
    assert ResetTokens(Identity.create()).answer(data) is None


def test_a_client_hears_at_once_that_its_connection_is_forgotten(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            control = await link.client.open_control()
            control.writer.write_nowait(b"!")
            await (await link.server.accept_control()).reader.read(1)
            link.server.abandon(LinkLost("power cut"))
            control.writer.write_nowait(b"is anybody there?")
            with pytest.raises(LinkLost, match="does not know the connection any more"):
                await asyncio.wait_for(control.reader.read(1), 10)

    run(scenario())


def test_nobody_else_can_end_a_connection_so(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            control = await link.client.open_control()
            control.writer.write_nowait(b"!")
            far = await link.server.accept_control()
            await far.reader.read(1)
            forged = ResetTokens(Identity.create()).answer(b"\x41" + CONNECTION + bytes(40))
            assert forged is not None
            server, client = link.server, link.server.path
            server._endpoint.send([(forged, (client.host, client.port))], server._driver.offload)
            far.writer.write_nowait(b"?")
            assert await control.reader.read(1) == b"?"

    run(scenario())


def test_a_listener_answers_garbage_with_less(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.setblocking(False)
                stranger.connect(("127.0.0.1", link.client.path.port))
                stranger.send(b"\x41" + bytes(30))
                answer = await asyncio.get_running_loop().sock_recv(stranger, 2000)
                assert len(answer) == 30

    run(scenario())
