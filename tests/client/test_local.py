"""The server that a program without a ticket starts: there when needed, gone with the program."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpuwire.client import connect
from gpuwire.config import Config, MemoryConfig, ServerConfig
from gpuwire.errors import ServerStartError
from servers import clean_environment

WAIT = 60.0
VALUES = np.arange(6, dtype="<f4")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own ticket would be used instead."""
    for name in os.environ:
        if name.startswith("GPUWIRE_"):
            monkeypatch.delenv(name)


def gone(pid: int) -> bool:
    """Waits until the process has ended."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], WAIT)[0])
    finally:
        os.close(watched)


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """A program that connects to nowhere in particular, survives Ctrl-C and goes on reading."""
    source = """
import sys
import numpy as np
from gpuwire.client import connect
dev = connect()
x = dev.upload(np.arange(6, dtype="<f4"))
try:
    print(dev._local._child.pid, flush=True)
    sys.stdin.readline()
except KeyboardInterrupt:
    print(dev.read(x).sum(), flush=True)
sys.stdin.readline()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        start_new_session=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def test_without_a_ticket_there_is_a_server_and_it_ends_with_the_device() -> None:
    config = Config(memory=MemoryConfig(persistent_memory="size-match"))
    with connect(config=config) as dev:
        assert np.array_equal(dev.read(dev.upload(VALUES)), VALUES)
        local = dev._local
        assert local is not None
        pid = local._child.pid
        assert Path(local._state).is_dir()
    assert local._child.returncode == 0
    assert gone(pid)
    assert not Path(local._state).exists()
    local.stop()  # Once more does nothing.


def test_ctrl_c_is_for_the_program_alone_and_its_death_is_the_servers_too(
    program: subprocess.Popen[str],
) -> None:
    assert program.stdout is not None
    server = int(program.stdout.readline())
    os.killpg(program.pid, signal.SIGINT)  # As a terminal does.
    assert program.stdout.readline() == "15.0\n"
    program.kill()
    assert gone(server)


def test_a_server_that_cannot_start_is_quoted() -> None:
    config = Config(server=ServerConfig(devices=(99,)))
    with pytest.raises(ServerStartError, match=r"(?s)exit code [1-9].*last words:.*99") as caught:
        connect(config=config)
    assert caught.value.reason is not None
