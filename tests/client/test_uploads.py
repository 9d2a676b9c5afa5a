"""Uploads from the client's side: announced, sent or not, and compressed where that pays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from blake3 import blake3

import gpuwire as gw
from client.scripted_server import Running, running
from gpuwire import Device, connect
from gpuwire.config import Config, RemoteConfig
from gpuwire.config.models import Compression
from gpuwire.errors import LinkLost, SessionError, UnexpectedMessage
from gpuwire.ids import RequestId
from gpuwire.transport import Ticket
from gpuwire.wire.messages import AnnounceUpload, UploadFound
from relay import LinkProfile, Relay

MIB = 1024 * 1024
CACHED = Config(remote=RemoteConfig(upload_cache=True, resume_grace_seconds=0.0))


def numbers(seed: int, size: int = 2 * MIB) -> np.ndarray:
    return np.random.default_rng(seed).random(size // 4, np.float32)


@pytest.fixture
def there() -> Iterator[Running]:
    with running() as server:
        yield server


def answer(found: bool) -> object:
    return lambda message: [UploadFound(message.request, found)]


def test_what_the_server_has_is_not_sent(there: Running) -> None:
    there.server.judge = answer(True)  # type: ignore[assignment]
    values = numbers(1).reshape(2, -1)
    values.flags.writeable = False
    with connect(there.ticket, config=CACHED) as dev:
        dev.upload(values)
        stats = dev.stats()
    (announced,) = there.server.announced
    assert announced.length == values.nbytes
    assert announced.digest == blake3(values.tobytes()).digest()
    assert there.server.uploads == {}
    assert (stats.upload_hits, stats.upload_misses) == (1, 0)
    assert stats.upload_bytes_not_sent == values.nbytes > stats.bytes_sent


def test_what_the_server_has_not_is_sent(there: Running) -> None:
    values = numbers(2)
    with connect(there.ticket, config=CACHED) as dev:
        dev.upload(values)
        dev.sync()
        stats = dev.stats()
    assert there.server.uploads[there.server.announced[0].request] == values.tobytes()
    assert (stats.upload_hits, stats.upload_misses, stats.upload_bytes_not_sent) == (0, 1, 0)


@pytest.mark.parametrize(
    ("config", "size"), [(CACHED, MIB - 4), (Config(), 2 * MIB)], ids=["short", "not told to"]
)
def test_what_is_not_worth_asking_is_sent_at_once(
    there: Running, config: Config, size: int
) -> None:
    with connect(there.ticket, config=config) as dev:
        dev.upload(numbers(3, size))
        dev.sync()
    assert there.server.announced == []
    assert [len(data) for data in there.server.uploads.values()] == [size]


def test_many_announcements_wait_for_one_answer_together(there: Running) -> None:
    """The server says nothing before it has heard of all."""
    count = 6

    def judge(_: AnnounceUpload) -> list[UploadFound]:
        heard = there.server.announced
        return [UploadFound(one.request, True) for one in heard] if len(heard) == count else []

    there.server.judge = judge
    with connect(there.ticket, config=CACHED) as dev, ThreadPoolExecutor(count) as threads:
        list(threads.map(dev.upload, [numbers(seed) for seed in range(count)]))
        assert dev.stats().upload_hits == count


def test_the_asyncio_face_announces_too(there: Running) -> None:
    there.server.judge = answer(True)  # type: ignore[assignment]

    async def scenario() -> int:
        async with gw.aio.connect(there.ticket, config=CACHED) as dev:
            await asyncio.gather(*(dev.upload_in_place(numbers(seed)) for seed in range(3)))
            await dev.sync()
            return dev.stats().upload_hits

    assert asyncio.run(scenario()) == 3


def test_an_answer_to_nothing_ends_the_session(there: Running) -> None:
    with connect(there.ticket, config=CACHED) as dev:
        there.server.judge = lambda message: [UploadFound(RequestId(999), True)]
        with pytest.raises(UnexpectedMessage, match="999"):
            dev.upload(numbers(4))


def test_an_announcement_without_an_answer_ends_with_the_session(there: Running) -> None:
    def leave(_: AnnounceUpload) -> list[UploadFound]:
        assert there.server.connection is not None
        there.server.connection.close()
        return []

    there.server.judge = leave
    with connect(there.ticket, config=CACHED) as dev, pytest.raises(SessionError) as caught:
        dev.upload(numbers(5))
    assert isinstance(caught.value, LinkLost)


# --- Compressed --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "on", "off"])
def test_values_come_through_whatever_they_are(server_ticket: str, mode: Compression) -> None:
    rng = np.random.default_rng(6)
    with connect(server_ticket, config=Config(remote=RemoteConfig(compression=mode))) as dev:
        for dtype in ("bool", "int8", "float16", "float32", "int64", "complex64"):
            if dtype not in dev.info.dtypes:
                continue
            values = (rng.integers(0, 100, MIB // np.dtype(dtype).itemsize + 7) % 7).astype(dtype)
            before = dev.stats().compression_saved_bytes
            np.testing.assert_array_equal(dev.read(dev.upload(values)), values)
            saved = dev.stats().compression_saved_bytes - before
            assert mode == "auto" or (saved > values.nbytes // 4) == (mode == "on")


def on_a_line(
    server: Running, bytes_per_second: float, values: np.ndarray, **remote: object
) -> Device:
    """Uploads over a line of that rate; the device, closed."""
    ticket = Ticket.parse(server.ticket)
    profile = LinkProfile(delay_seconds=0.005, bytes_per_second=bytes_per_second)
    with Relay((ticket.host, ticket.port), profile) as relay:
        slow = server.ticket.replace(f":{ticket.port}", f":{relay.port}")
        with connect(slow, config=Config(remote=RemoteConfig(**remote))) as dev:  # type: ignore[arg-type]
            dev.upload(values)
            dev.sync()
    (data,) = server.server.uploads.values()
    assert data == values.tobytes()
    return dev


def test_a_slow_line_makes_it_compress_what_gets_smaller(there: Running) -> None:
    values = np.random.default_rng(7).integers(0, 1000, 3 * MIB // 4, np.int32)
    stats = on_a_line(there, 2.5e6, values).stats()
    assert stats.compression_saved_bytes > MIB // 2
    assert stats.bytes_sent < values.nbytes


def test_a_slow_line_does_not_make_it_compress_what_does_not(there: Running) -> None:
    values = np.random.default_rng(8).integers(0, 256, 2 * MIB, np.uint8)
    assert on_a_line(there, 4e6, values).stats().compression_saved_bytes == 0


def test_off_is_off_on_the_slowest_line(there: Running) -> None:
    values = np.zeros(MIB + 1, np.uint8)
    stats = on_a_line(there, 4e6, values, compression="off").stats()
    assert stats.compression_saved_bytes == 0 and stats.bytes_sent > values.nbytes
