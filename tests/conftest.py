"""What every part's tests share: a quiet graphics stack, and one real server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from servers import ServerProcess, clean_environment


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Programs that tests start answer to Ctrl-C, also in a run that was started in the background:
    a shell lets those ignore it, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
    """The environment for a server's process: none of the developer's own settings."""
    return clean_environment()


@pytest.fixture(scope="session")
def server_ticket(
    tmp_path_factory: pytest.TempPathFactory, runtime_directory: None
) -> Iterator[str]:
    """The ticket of one `gpuwire serve` process that the whole run shares.

    It must end with exit code 0: a test that breaks the server fails the run, if not itself.
    """
    with ServerProcess(tmp_path_factory.mktemp("server")) as server:
        yield server.ticket
