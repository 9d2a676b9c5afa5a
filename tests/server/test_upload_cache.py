"""Uploads kept by their content, in memory and on disk: verified, bounded, each to its owner."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from gpuwire.config import LoggerConfig
from gpuwire.server.upload_cache import UploadCache, UploadKey
from gpuwire.telemetry.logs import Logger, open_logger

CHUNK = 64 * 1024
SIZE = 4 * CHUNK


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> Logger:
    caplog.set_level(logging.INFO)
    return open_logger(LoggerConfig(log="info", level="basic"), "server")


def numbers(seed: int, size: int = SIZE) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def key_of(data: bytes, owner: str = "alice") -> UploadKey:
    return UploadKey(owner, len(data), blake3(data).digest())


async def receive(cache: UploadCache, key: UploadKey, data: bytes) -> None:
    receiving = cache.receive(key)
    assert receiving is not None
    for start in range(0, len(data), CHUNK):
        await receiving.add(memoryview(data[start : start + CHUNK]))
    receiving.finish()
    await cache.close()


async def found(cache: UploadCache, key: UploadKey) -> bytes | None:
    kept = await cache.find(key)
    if kept is None:
        return None
    data = b"".join([bytes(chunk) async for chunk in kept.chunks()])
    kept.release()
    return data


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.upload"))


def bytes_in(directory: Path) -> int:
    total = 0
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_what_was_received_is_found_by_its_owner_and_by_nobody_else(logger: Logger) -> None:
    async def scenario() -> None:
        cache = UploadCache(2 * SIZE, None, 0, logger)
        data = numbers(1)
        key = key_of(data)
        assert not cache.may_have(key) and await found(cache, key) is None
        await receive(cache, key, data)
        assert await found(cache, key) == data
        for other in (
            key_of(data, "bob"),
            UploadKey("alice", SIZE + 1, key.digest),
            UploadKey("alice", SIZE, bytes(32)),
        ):
            assert not cache.may_have(other) and await found(cache, other) is None
        facts = cache.facts
        assert (facts.hits, facts.misses, facts.bytes_not_sent) == (1, 4, SIZE)
        assert facts.memory_bytes == SIZE

    asyncio.run(scenario())


def test_what_is_not_what_it_was_announced_as_is_not_kept(
    logger: Logger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        cache = UploadCache(2 * SIZE, tmp_path, 2 * SIZE, logger)
        await cache.open()
        wanted = key_of(numbers(1))
        await receive(cache, wanted, numbers(2))
        assert not cache.may_have(wanted) and not cache.may_have(key_of(numbers(2)))
        assert cache.facts.memory_bytes == cache.facts.disk_bytes == 0

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []
    assert "was not what its hash had said" in caplog.text


def test_memory_and_disk_stay_within_their_bounds_while_many_come(
    logger: Logger, tmp_path: Path
) -> None:
    async def scenario() -> None:
        cache = UploadCache(3 * SIZE, tmp_path, 5 * SIZE, logger)
        await cache.open()
        datas = [numbers(seed) for seed in range(12)]

        async def one(data: bytes) -> None:
            receiving = cache.receive(key_of(data))
            assert receiving is not None
            for start in range(0, SIZE, CHUNK):
                await receiving.add(memoryview(data[start : start + CHUNK]))
                assert cache.facts.memory_bytes <= 3 * SIZE
                assert cache.facts.disk_bytes <= 5 * SIZE >= bytes_in(tmp_path)
            receiving.finish()

        await asyncio.gather(*map(one, datas))
        await cache.close()
        for data in datas[:5]:  # Which of them are there, and where, is chance.
            if cache.receive(key_of(data)) is not None:
                await receive(cache, key_of(data), data)
            await found(cache, key_of(data))
        for data in datas[:5]:
            assert await found(cache, key_of(data)) == data
        assert len(files(tmp_path)) == 5 and cache.facts.memory_bytes <= 3 * SIZE
        await receive(cache, key_of(datas[11]), datas[11])
        assert not cache.may_have(key_of(datas[0])), "the one used least lately"

    asyncio.run(scenario())


def test_what_is_too_long_and_what_is_given_up_takes_no_room(
    logger: Logger, tmp_path: Path
) -> None:
    async def scenario() -> None:
        cache = UploadCache(SIZE - 1, tmp_path, 2 * SIZE, logger)
        await cache.open()
        data, longer = numbers(1), numbers(2, 3 * SIZE)
        assert cache.receive(key_of(longer)) is None
        await receive(cache, key_of(data), data)
        assert (cache.facts.memory_bytes, cache.facts.disk_bytes) == (0, SIZE)
        assert await found(cache, key_of(data)) == data
        receiving = cache.receive(key_of(numbers(3)))
        assert receiving is not None
        await receiving.add(memoryview(numbers(3)[:CHUNK]))
        receiving.give_up()
        await cache.close()
        assert cache.facts.disk_bytes == SIZE
        assert bytes_in(tmp_path) == SIZE

    asyncio.run(scenario())


def test_the_disk_outlives_a_restart_and_others_files_are_left_alone(
    logger: Logger, tmp_path: Path
) -> None:
    directory = tmp_path / "made" / "here"
    datas = [numbers(seed) for seed in range(3)]

    async def first() -> None:
        cache = UploadCache(0, directory, 3 * SIZE, logger)
        await cache.open()
        for data in datas:
            await receive(cache, key_of(data), data)
        assert await found(cache, key_of(datas[0])) == datas[0]

    async def second() -> None:
        cache = UploadCache(0, directory, 2 * SIZE, logger)
        await cache.open()
        await cache.close()
        assert cache.facts.disk_bytes == 2 * SIZE
        assert [await found(cache, key_of(data)) for data in datas] == [datas[0], None, datas[2]]
        assert not cache.may_have(key_of(datas[0], "bob"))

    asyncio.run(first())
    assert directory.stat().st_mode & 0o777 == 0o700
    for path in files(directory):
        assert path.stat().st_mode & 0o777 == 0o600
        assert "alice" not in path.name and blake3(datas[0]).hexdigest() not in path.name
    others = [directory / name for name in ("notes.txt", "x.upload", f"{'0' * 64}.partial")]
    for other in others:
        other.write_bytes(b"not ours")
    unfinished = directory / f"{'0' * 64}.{'1' * 16}.partial"
    unfinished.write_bytes(bytes(SIZE))
    asyncio.run(second())
    assert all(other.read_bytes() == b"not ours" for other in others)
    assert not unfinished.exists()
    assert len(files(directory)) == 3, "two of ours and one that is called like them"


@pytest.mark.parametrize("damage", ["other bytes", "cut short", "longer", "gone", "a link"])
def test_a_damaged_file_is_a_miss_and_goes(
    damage: str, logger: Logger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        cache = UploadCache(0, tmp_path / "cache", 2 * SIZE, logger)
        await cache.open()
        data = numbers(1)
        await receive(cache, key_of(data), data)
        (path,) = files(tmp_path / "cache")
        content = bytearray(data)
        content[SIZE // 2] ^= 1
        match damage:
            case "other bytes":
                path.write_bytes(content)
            case "cut short":
                path.write_bytes(data[:-1])
            case "longer":
                path.write_bytes(data + b"x")
            case "gone":
                path.unlink()
            case "a link":
                path.rename(tmp_path / "elsewhere")
                path.symlink_to(tmp_path / "elsewhere")
        assert await found(cache, key_of(data)) is None
        await cache.close()
        assert files(tmp_path / "cache") == [] and cache.facts.disk_bytes == 0
        await receive(cache, key_of(data), data)
        assert await found(cache, key_of(data)) == data

    asyncio.run(scenario())
    assert "goes:" in caplog.text


def test_a_file_that_is_changed_after_it_was_found_ends_before_its_last_bytes(
    logger: Logger, tmp_path: Path
) -> None:
    async def scenario() -> None:
        cache = UploadCache(0, tmp_path, 4 << 20, logger)
        await cache.open()
        data = numbers(1, 3 << 20)
        await receive(cache, key_of(data), data)
        kept = await cache.find(key_of(data))
        assert kept is not None
        (path,) = files(tmp_path)
        with path.open("r+b") as file:
            file.write(b"something else")
        chunks = [bytes(chunk) async for chunk in kept.chunks()]
        assert len(b"".join(chunks)) < len(data)
        kept.release()

    asyncio.run(scenario())


def test_a_directory_that_cannot_be_used_is_a_line_in_the_log(
    logger: Logger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        (tmp_path / "file").write_text("")
        cache = UploadCache(2 * SIZE, tmp_path / "file" / "cache", 2 * SIZE, logger)
        await cache.open()
        data = numbers(1)
        await receive(cache, key_of(data), data)
        assert await found(cache, key_of(data)) == data

    asyncio.run(scenario())
    assert caplog.text.count("uploads are not kept in") == 1


def test_a_disk_that_takes_nothing_is_one_line_and_memory_goes_on(
    logger: Logger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        cache = UploadCache(4 * SIZE, tmp_path / "cache", 4 * SIZE, logger)
        await cache.open()
        (tmp_path / "cache").rmdir()
        for seed in range(3):
            data = numbers(seed)
            await receive(cache, key_of(data), data)
            assert await found(cache, key_of(data)) == data
        assert cache.facts.disk_bytes == 0

    asyncio.run(scenario())
    assert caplog.text.count("uploads are not kept in") == 1
