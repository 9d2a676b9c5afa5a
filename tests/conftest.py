"""What every part's tests share: a quiet graphics stack, and one real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def runtime_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Graphics drivers complain on stderr where there is no XDG_RUNTIME_DIR."""
    if os.environ.get("XDG_RUNTIME_DIR"):
        yield
        return
    directory = tmp_path_factory.mktemp("runtime")
    directory.chmod(0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(directory)
    yield
    del os.environ["XDG_RUNTIME_DIR"]


@pytest.fixture(scope="session")
def server_environment(runtime_directory: None) -> dict[str, str]:
    """The environment for a child process: none of the developer's own settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GPUWIRE_")}


@pytest.fixture(scope="session")
def server_ticket(
    tmp_path_factory: pytest.TempPathFactory, server_environment: dict[str, str]
) -> Iterator[str]:
    """The ticket of one `gpuwire serve` process that the whole run shares.

    It must end with exit code 0: a test that breaks the server fails the run, if not itself.
    """
    directory = tmp_path_factory.mktemp("server")
    ticket_file, log = directory / "ticket", directory / "log"
    command = [sys.executable, "-m", "gpuwire.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
    command += ["--ticket-file", str(ticket_file), "--state-dir", str(directory / "state")]
    with log.open("w") as log_stream:
        server = subprocess.Popen(
            command,
            cwd=directory,
            env=server_environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log_stream,
            text=True,
        )
        assert server.stdout is not None
        printed = server.stdout.readline().strip()  # comes when the server is ready, or died
        try:
            assert printed, f"the server did not start:\n{log.read_text()}"
            assert ticket_file.read_text().strip() == printed
            yield printed
        finally:
            _stop(server, log)


def _stop(server: subprocess.Popen[str], log: Path) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        code = server.wait(timeout=30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
        code = None
    assert server.stdout is not None
    server.stdout.close()
    assert code == 0, f"the server ended with {code}:\n{log.read_text()[-4000:]}"
