"""Things that break under way: the broken side gets a typed error, the other lives."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.config import load_config
from gpuwire.errors import (
    DeviceClosed,
    DeviceLost,
    DeviceMismatch,
    ExecutionError,
    ServerStopped,
    SessionError,
    ShapeError,
    UploadTooLarge,
)
from gpuwire.transport.ticket import Ticket
from servers import ServerProcess, clean_environment


def test_shapes_that_do_not_broadcast_fail_at_their_line(server_ticket: str) -> None:
    with gw.connect(server_ticket) as dev:
        before = dev.stats().tasks_sent
        x = gw.ones((3,), device=dev)
        y = gw.ones((4,), device=dev)
        with pytest.raises(ShapeError, match=r"\(3,\).*\(4,\)"):
            x + y
        dev.flush()
        assert dev.stats().tasks_sent == before + 1, "one graph makes both, and no more is sent"


def test_arrays_of_two_devices_do_not_mix(server_ticket: str) -> None:
    with gw.connect(server_ticket) as one, gw.connect(server_ticket) as other:
        x, y = gw.ones((3,), device=one), gw.ones((3,), device=other)
        with pytest.raises(DeviceMismatch):
            x + y
        np.testing.assert_array_equal(np.asarray(x + gw.asarray(np.asarray(y), device=one)), 2)


def test_an_array_used_after_its_device_closed(server_ticket: str) -> None:
    with gw.connect(server_ticket) as dev:
        x = gw.ones((3,), device=dev)
    for use in (lambda: x + 1, lambda: np.asarray(x), lambda: float(x[0])):
        with pytest.raises(DeviceClosed):
            use()
    assert "closed" in repr(x)


def test_an_upload_over_the_servers_limit(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path, config="[server]\nmax_upload_bytes = 65536\n") as server,
        gw.connect(server.ticket) as dev,
    ):
        with pytest.raises(UploadTooLarge) as caught:
            np.asarray(gw.asarray(np.zeros(20_000, np.float32), device=dev))
        assert caught.value.limit == 65536
        np.testing.assert_array_equal(np.asarray(gw.ones((3,), device=dev)), 1)


def test_a_failure_names_the_operation_and_the_line_and_spares_the_rest(tmp_path: Path) -> None:
    limit = "[server]\nmax_memory_bytes = 1048576\n"
    with ServerProcess(tmp_path, config=limit) as server, gw.connect(server.ticket) as dev:
        small = gw.ones((16,), device=dev)
        large = gw.zeros((1024, 1024), device=dev)  # the line that the error names
        line = _line_of("gw.zeros((1024, 1024)")
        downstream = large * 2.0
        with pytest.raises(ExecutionError) as caught:
            np.asarray(downstream)
        assert caught.value.operation == "full"
        assert caught.value.location == f"{__file__}:{line}"
        assert isinstance(caught.value.__cause__, MemoryError)
        np.testing.assert_array_equal(np.asarray(small + 1), 2)


def test_a_graph_of_sizes_that_no_device_has_fails_at_their_line(server_ticket: str) -> None:
    with gw.connect(server_ticket) as dev:
        wide = gw.broadcast_to(gw.ones((1,), device=dev), (2**42,))
        large = gw.abs(wide) * 2.0  # the line of 2^42 elements
        small = gw.ones((16,), device=dev) + 1
        with pytest.raises(ExecutionError, match="17592186044416 bytes") as caught:
            np.asarray(large[0])
        assert caught.value.operation == "abs"
        assert caught.value.location == f"{__file__}:{_line_of('the line of 2^42')}"
        assert isinstance(caught.value.__cause__, MemoryError)
        np.testing.assert_array_equal(np.asarray(small), 2)


def _line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_garbage_datagrams_at_the_port_disturb_nobody(server_ticket: str) -> None:
    ticket = Ticket.parse(server_ticket)
    noise = np.random.default_rng(5)
    with gw.connect(server_ticket) as dev, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for size in (0, 1, 7, 20, 21, 1200, 1452, 9000, 60_000):
            for first in (0x00, 0x40, 0xC0, 0xFF):
                body = bytes([first])[:size] + noise.bytes(max(size - 1, 0))
                out.sendto(body, ("127.0.0.1", ticket.port))
        np.testing.assert_array_equal(np.asarray(gw.ones((3,), device=dev) + 1), 2)
        with gw.connect(server_ticket) as second:
            assert float(gw.ones((), device=second)) == 1.0


UPLOADER = """
import os, signal, sys, threading
import numpy as np
import gpuwire as gw
from gpuwire.config import load_config

dev = gw.connect(sys.argv[1])

def die_under_way():
    while dev.stats().bytes_sent < 2**20:
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=die_under_way, daemon=True).start()
gw.asarray(np.ones(2**26, np.float32), device=dev)
dev.sync()
"""


def test_a_client_killed_in_the_middle_of_an_upload(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, gw.connect(server.ticket) as other:
        killed = subprocess.run(
            [sys.executable, "-c", UPLOADER, server.ticket],
            env=clean_environment(),
            timeout=60,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL
        x = gw.asarray(np.arange(100_000, dtype=np.float32), device=other)
        assert float(gw.max(x)) == 99_999


def test_a_server_killed_in_the_middle_of_a_read(tmp_path: Path) -> None:
    config = load_config(remote={"heartbeat_seconds": 0.5})
    short_grace = "[remote]\nresume_grace_seconds = 0.5\n"
    with (
        ServerProcess(tmp_path, config=short_grace) as server,
        gw.connect(server.ticket, config=config) as dev,
    ):
        x = gw.zeros((4096, 4096), device=dev)
        dev.sync()

        def kill_under_way() -> None:
            while dev.stats().bytes_received < 2**20:
                os.sched_yield()
            server.kill()

        killer = threading.Thread(target=kill_under_way)
        killer.start()
        with pytest.raises(SessionError):
            np.asarray(x)
        killer.join()
        with pytest.raises(SessionError):
            dev.sync()


def test_a_stopped_server_tells_its_clients(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, gw.connect(server.ticket) as dev:
        x = gw.ones((3,), device=dev)
        dev.sync()
        assert server.stop() == 0
        with pytest.raises(ServerStopped):
            np.asarray(x)


def test_a_killed_device_host_is_replaced_and_its_sessions_are_told(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, gw.connect(server.ticket) as dev:
        x = gw.ones((3,), device=dev)
        dev.sync()
        (host,) = server.host_pids()
        os.kill(host, signal.SIGKILL)
        with pytest.raises(DeviceLost):
            np.asarray(x)
        with gw.connect(server.ticket) as again:
            assert float(gw.sum(gw.ones((3,), device=again))) == 3.0
        assert server.host_pids() != [host]
