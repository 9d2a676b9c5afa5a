"""How connections end, and what they tell of their path."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from gpuwire.errors import ConnectionClosed, LinkLost
from gpuwire.transport import Connection, Identity, PinnedKey, TransportOptions, connect, listen


def test_closing_is_told_to_the_peer_at_once(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            assert link.client.close_cause is None
            link.client.close(42, "done here")
            await link.client.wait_closed()
            await link.server.wait_closed()
            ours, theirs = link.client.close_cause, link.server.close_cause
            assert isinstance(ours, ConnectionClosed)
            assert isinstance(theirs, ConnectionClosed)
            assert (ours.by_peer, theirs.by_peer) == (False, True)
            assert (theirs.error_code, theirs.reason) == (42, "done here")
            link.client.close(1, "again")
            assert link.client.close_cause is ours

    run(scenario())


def test_silence_is_a_lost_link(run: Any, linked: Any) -> None:
    short = TransportOptions(idle_timeout_seconds=0.2)

    async def scenario() -> None:
        async with linked(client=short) as link:
            await link.client.wait_closed()
            assert isinstance(link.client.close_cause, LinkLost)

    run(scenario())


def test_a_server_that_vanished_is_noticed_by_the_next_message(
    run: Any, identity: Identity
) -> None:
    async def scenario() -> None:
        arrived: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

        async def handler(connection: Connection) -> None:
            arrived.set_result(connection)
            await connection.wait_closed()

        listener = await listen("127.0.0.1", 0, identity, handler)
        connection = await connect("127.0.0.1", listener.port, PinnedKey(identity.fingerprint))
        # As when the server's process is killed: its socket is gone and nothing is said.
        server = await arrived
        server.abandon(LinkLost("killed"))
        await listener.close()
        control = await connection.open_control()
        with pytest.raises(LinkLost, match="gone"):
            await control.writer.write(b"anybody?")
            await control.reader.read(1)
        await connection.wait_closed()

    run(scenario())


def test_the_path_on_loopback_grows_to_large_datagrams(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            near = await link.client.open_control()
            near.writer.write_nowait(b"x")
            far = await link.server.accept_control()
            while min(link.client.path.datagram_bytes, link.server.path.datagram_bytes) < 16_000:
                far.writer.write_nowait(b"y")
                await near.reader.read(100)
            path = link.client.path
            assert path.address == f"127.0.0.1:{link.listener.port}"
            assert path.engine == "aioquic"
            assert path.rtt_seconds.minimum is not None
            assert path.rtt_seconds.smoothed is not None
            assert 0 < path.rtt_seconds.minimum <= path.rtt_seconds.smoothed
            assert path.bytes_sent > 0
            assert path.bytes_received > 0

    run(scenario())


def test_waits_can_be_cancelled(run: Any, linked: Any) -> None:
    async def scenario() -> None:
        async with linked() as link:
            near = await link.client.open_control()
            for wait in (
                link.client.accept_bulk(),
                link.client.accept_control(),
                near.reader.read(1),
                link.client.wait_closed(),
            ):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0):
                        await wait
            bulk = link.server.open_bulk()
            bulk.write_nowait(b"after")
            assert await (await link.client.accept_bulk()).read(10) == b"after"

    run(scenario())
