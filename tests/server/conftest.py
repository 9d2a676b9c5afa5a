"""Real servers in this process's event loop, each with a real device host."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuwire.config import Config, LoggerConfig, RemoteConfig, ServerConfig
from gpuwire.server import Server

Serve = Callable[..., AbstractAsyncContextManager[Server]]


class LogWatch(logging.Handler):
    """Lets a test wait until a server has said something."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._waiting: list[tuple[str, asyncio.Future[str]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        self.lines.append(line)
        for text, waiting in self._waiting:
            if text in line and not waiting.done():
                waiting.set_result(line)

    async def line(self, text: str) -> str:
        """The first line with that text, said already or to come."""
        for line in self.lines:
            if text in line:
                return line
        waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((text, waiting))
        return await waiting


@pytest.fixture
def log() -> Iterator[LogWatch]:
    """What the servers of this test log."""
    watch = LogWatch()
    logger = logging.getLogger("gpuwire.server")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(watch)
    yield watch
    logger.removeHandler(watch)
    logger.setLevel(before)


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all tests, so that they can share a server."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def serve(tmp_path: Path, runtime_directory: None) -> Serve:
    """Starts a server of a test's own: `async with serve(max_sessions=1) as server`."""
    numbers = itertools.count()

    @asynccontextmanager
    async def started(
        *, remote: dict[str, Any] | None = None, authorizer: Any = None, **options: Any
    ) -> AsyncIterator[Server]:
        server = Server(
            configuration(remote or {}, options),
            host="127.0.0.1",
            port=0,
            state_dir=tmp_path / f"state{next(numbers)}",
            authorizer=authorizer,
        )
        await server.start()
        try:
            yield server
        finally:
            await server.stop()

    return started


def configuration(remote: dict[str, Any], server: dict[str, Any]) -> Config:
    logger = LoggerConfig(log="info", level="basic")
    return Config(remote=RemoteConfig(**remote), server=ServerConfig(logger=logger, **server))


@pytest.fixture(scope="session")
def shared_server(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory, runtime_directory: None
) -> Iterator[Server]:
    """A server that tests share which leave it as it was. It waits for no client that has lost its
    link."""
    config = configuration({"resume_grace_seconds": 0.0}, {})
    yield from running(runner, config, tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def strict_server(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory, runtime_directory: None
) -> Iterator[Server]:
    """The same with tight limits: two sessions, uploads of 6 MiB, silence of 1.5 s, and 0.3 s for a
    client that lost its link."""
    limits = {"max_sessions": 2, "max_upload_bytes": 6 * 1024 * 1024}
    config = configuration({"heartbeat_seconds": 0.5, "resume_grace_seconds": 0.3}, limits)
    yield from running(runner, config, tmp_path_factory.mktemp("state"))


def running(runner: asyncio.Runner, config: Config, state: Path) -> Iterator[Server]:
    server = Server(config, host="127.0.0.1", port=0, state_dir=state)
    runner.run(server.start())
    yield server
    runner.run(server.stop())
