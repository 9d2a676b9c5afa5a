"""Real servers with dashboards: one in this process, one as `gpuwire serve` starts it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwire.config import Config, LoggerConfig, ServerConfig
from gpuwire.dashboard.address import Address
from gpuwire.dashboard.serving import Dashboard
from gpuwire.server import Server
from servers import ServerProcess


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def server(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory, runtime_directory: None
) -> Iterator[Server]:
    """A server without a dashboard; tests give it theirs."""
    config = Config(server=ServerConfig(logger=LoggerConfig(log="info", level="basic")))
    state = tmp_path_factory.mktemp("state")
    server = Server(config, host="127.0.0.1", port=0, state_dir=state)
    runner.run(server.start())
    yield server
    runner.run(server.stop())


@pytest.fixture
def local() -> Dashboard:
    """For this machine only; gives viewers up that do not read for a fifth of a second."""
    return Dashboard(Address("127.0.0.1", 0), stall_seconds=0.2)


@pytest.fixture
def public() -> Dashboard:
    """On an address that others could reach."""
    return Dashboard(Address("0.0.0.0", 0))


@pytest.fixture
def served(tmp_path: Path, runtime_directory: None) -> Iterator[tuple[ServerProcess, str]]:
    """`gpuwire serve --dashboard`, and where its page is."""
    with ServerProcess(tmp_path / "server", "--dashboard", "0") as server:
        lines = server.log.read_text().splitlines()
        line = next(line for line in lines if "the dashboard is at" in line)
        yield server, line.rpartition(" at ")[2]
