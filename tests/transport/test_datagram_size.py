"""Finding the datagram size: the search by itself, and sizes on the wire."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpuwire.transport import (
    Connection,
    Identity,
    PinnedKey,
    TransportOptions,
    connect,
)
from gpuwire.transport.datagram_size import PROBES_OF_A_SIZE, RAISE_SECONDS, DatagramSizeSearch
from relay import LinkProfile, Relay

MIB = 1 << 20
DEFAULT_OPTIONS = TransportOptions()


def search_on(limit: int, most: int, *, now: float = 0.0) -> tuple[DatagramSizeSearch, list[int]]:
    """A finished search on a path that takes `limit` bytes, and the sizes that it probed."""
    search = DatagramSizeSearch(most=most)
    return search, go_on(search, limit, now)


def go_on(search: DatagramSizeSearch, limit: int, now: float) -> list[int]:
    probed = []
    while (size := search.next_probe(now)) is not None:
        probed.append(size)
        search.probe_sent(size)
        assert search.next_probe(now) is None, "one probe at a time"
        if size <= limit:
            search.probe_acknowledged(size, now)
        else:
            search.probe_lost(size, now)
    return probed


@pytest.mark.parametrize("limit", [1_200, 1_452, 1_472, 8_952, 16_000, 64_000])
def test_usual_sizes_are_found_by_the_ladder(limit: int) -> None:
    search, probed = search_on(limit, limit)
    assert search.size == limit
    assert len(probed) <= 6


@pytest.mark.parametrize("limit", [1_200, 1_280, 1_400, 4_000, 9_000, 30_001])
def test_unusual_sizes_are_found_closely(limit: int) -> None:
    search, probed = search_on(limit, 64_000)
    assert limit - max(32, limit // 50) <= search.size <= limit
    assert len(probed) <= 40


def test_one_lost_probe_proves_nothing() -> None:
    search = DatagramSizeSearch(most=1_452)
    for _ in range(PROBES_OF_A_SIZE - 1):
        size = search.next_probe(0.0)
        assert size == 1_452
        search.probe_sent(size)
        search.probe_lost(size, 0.0)
    search.probe_sent(1_452)
    search.probe_acknowledged(1_452, 0.0)
    assert search.size == 1_452


def test_a_refusal_of_the_system_counts_at_once() -> None:
    search, _ = search_on(8_952, 8_952)
    search.refused(8_952, 0.0)
    assert search.size == 1_200
    assert go_on(search, 1_472, 0.0)
    assert search.size == 1_472


def test_a_black_hole_is_left_and_what_it_took_before_is_tried_later() -> None:
    search, _ = search_on(8_952, 8_952)
    assert not search.large_lost([0.0] * 100, 0.05, 0.1), "one burst may be lost to a full queue"
    search.large_acknowledged()
    assert not search.large_lost([0.2] * 4, 0.05, 0.3)
    assert search.large_lost([0.4] * 4, 0.05, 0.5)
    assert search.size == 1_200
    go_on(search, 1_472, 0.5)
    assert search.size == 1_472
    go_on(search, 8_952, 0.5 + RAISE_SECONDS)
    assert search.size == 8_952


def test_ordinary_loss_is_no_black_hole() -> None:
    search, _ = search_on(8_952, 8_952)
    for tick in range(1_000):
        assert not search.large_lost([tick * 0.1, tick * 0.1 + 0.05], 0.05, tick * 0.1)
        search.large_acknowledged()
    assert search.size == 8_952


def test_without_a_reason_it_is_probed_again_after_ten_minutes() -> None:
    search, _ = search_on(1_472, 8_952)
    assert search.next_probe(RAISE_SECONDS / 2) is None
    go_on(search, 8_952, RAISE_SECONDS + 1)
    assert search.size == 8_952


# --- On the wire ------------------------------------------------------------------------------


async def serve_digests(connection: Connection) -> None:
    """Answers each bulk stream with the digest of what it brought."""
    control = await connection.accept_control()
    while True:
        stream = await connection.accept_bulk()
        digest = hashlib.sha256()
        while data := await stream.read(MIB):
            digest.update(data)
        await control.writer.write(digest.digest())


class Uploading:
    """A client behind a relay."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def open(self) -> None:
        self.control = await self.connection.open_control()
        await self.control.writer.write(b"open")

    async def upload(self, payload: bytes) -> None:
        stream = self.connection.open_bulk()
        await stream.write(payload)
        stream.finish()
        assert await self.control.reader.readexactly(32) == hashlib.sha256(payload).digest()


def through_a_relay(
    identity: Identity,
    serve: Any,
    profile: LinkProfile,
    scenario: Callable[..., Any],
    options: TransportOptions = DEFAULT_OPTIONS,
) -> Any:
    async def run_it() -> None:
        async with serve(identity, serve_digests, options) as listener:
            with Relay(("127.0.0.1", listener.port), profile) as relay:
                trust = PinnedKey(identity.fingerprint)
                client = Uploading(await connect("127.0.0.1", relay.port, trust, options))
                await client.open()
                await scenario(client, relay)
                client.connection.close()

    return run_it()


NARROW = LinkProfile(delay_seconds=0.002, max_datagram_bytes=1_500)


def test_the_largest_size_that_passes_is_on_the_wire(
    run: Any, identity: Identity, serve: Any
) -> None:
    async def scenario(client: Uploading, relay: Relay) -> None:
        payload = bytes(200_000)
        while client.connection.path.datagram_bytes < 1_472:
            await client.upload(payload)
        before = relay.up.counters.passed
        await client.upload(payload)
        packets = relay.up.counters.passed - before
        assert packets < 1.2 * len(payload) / 1_400
        assert "1,472" in client.connection.path.datagram_search

    run(through_a_relay(identity, serve, NARROW, scenario))


def test_a_path_that_narrows_in_the_middle_of_a_transfer_is_survived(
    run: Any, identity: Identity, serve: Any
) -> None:
    wide = replace(NARROW, max_datagram_bytes=9_000, bytes_per_second=20e6)

    async def scenario(client: Uploading, relay: Relay) -> None:
        while client.connection.path.datagram_bytes < 8_952:
            await client.upload(bytes(100_000))
        relay.up.counters.passed = 0
        upload = asyncio.ensure_future(client.upload(bytes(4 * MIB)))
        while relay.up.counters.passed < 50:
            await asyncio.wait({upload}, timeout=0.001)
        assert not upload.done()
        relay.set_profile(replace(wide, max_datagram_bytes=1_400), wide)
        await upload
        assert client.connection.path.datagram_bytes <= 1_400
        relay.up.counters.largest = 0

    run(through_a_relay(identity, serve, wide, scenario))


@pytest.mark.parametrize("engine", ["aioquic", "qh3"])
def test_loss_reordering_and_duplication_change_nothing_but_the_time(
    run: Any, identity: Identity, serve: Any, engine: Any
) -> None:
    rough = LinkProfile(
        delay_seconds=0.005,
        loss=0.02,
        reordering=0.05,
        duplication=0.05,
        max_datagram_bytes=1_500,
    )
    options = TransportOptions(engine=engine, datagram_bytes=1_472)

    async def scenario(client: Uploading, relay: Relay) -> None:
        await client.upload(bytes(i * 17 % 251 for i in range(MIB)))
        assert relay.up.counters.lost > 0
        assert relay.up.counters.duplicated > 0
        assert client.connection.path.datagram_bytes > 1_200, "ordinary loss is no black hole"

    run(through_a_relay(identity, serve, rough, scenario, options))
