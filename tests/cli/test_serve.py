"""`gpuwire serve` as a process: what it prints and writes, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwire.transport import Ticket
from servers import clean_environment


class Serving:
    """Starts servers in one directory and sees to it that none is left behind."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *options: str) -> subprocess.Popen[str]:
        server = subprocess.Popen(
            [sys.executable, "-m", "gpuwire.cli", "serve", "--state-dir", "state", *options],
            cwd=self._directory,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(server)
        return server

    def first_line(self, server: subprocess.Popen[str]) -> str:
        assert server.stdout is not None
        return server.stdout.readline().strip()

    def stop(self, server: subprocess.Popen[str], number: signal.Signals) -> tuple[str, str]:
        """What it still had to say on stdout and stderr; its exit code must be 0."""
        server.send_signal(number)
        output, log = server.communicate(timeout=30)
        assert server.returncode == 0, log
        return output, log

    def close(self) -> None:
        for server in self._started:
            if server.poll() is None:
                server.kill()
            server.communicate()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path)
    yield serving
    serving.close()


def test_a_server_says_once_where_it_is_and_stays_the_same_from_start_to_start(
    serving: Serving, tmp_path: Path
) -> None:
    server = serving.start("--port", "0", "--ticket-file", "ticket", "--json")
    facts = json.loads(serving.first_line(server))
    ticket = Ticket.parse(facts["ticket"])
    assert ticket.port == facts["port"] != 0
    assert ticket.host not in ("0.0.0.0", "::", ""), "no other machine can use that"
    written = tmp_path / "ticket"
    assert written.read_text().strip() == facts["ticket"]
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    output, log = serving.stop(server, signal.SIGINT)
    assert output == "", "one line was promised"
    assert "Traceback" not in log

    again = serving.start("--host", "127.0.0.1", "--port", "0", "--advertise", "gpu-box.example")
    second = Ticket.parse(serving.first_line(again))
    serving.stop(again, signal.SIGTERM)
    assert second.host == "gpu-box.example"
    assert (second.fingerprint, second.token) == (ticket.fingerprint, ticket.token)


def test_a_port_that_is_taken_is_named(serving: Serving) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        server = serving.start("--host", "127.0.0.1", "--port", str(port))
        output, log = server.communicate(timeout=60)
    assert server.returncode == 1
    assert output == ""
    error = log.splitlines()[-1]
    assert error.startswith("gpuwire: ")
    assert str(port) in error


def test_a_device_that_is_not_there_is_named(serving: Serving) -> None:
    server = serving.start("--host", "127.0.0.1", "--port", "0", "--device", "99")
    output, log = server.communicate(timeout=60)
    assert server.returncode == 1
    assert output == ""
    error = log.splitlines()[-1]
    assert error.startswith("gpuwire: ")
    assert "99" in error


def test_a_cuda_allocator_is_taken_and_said_to_be_ignored(serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "gpuwire.toml").write_text(
        '[memory.cuda]\nallocator = "async"\n[memory.logger]\nfile = "memory.log"\nlevel = "full"\n'
    )
    server = serving.start("--host", "127.0.0.1", "--port", "0")
    assert serving.first_line(server)
    serving.stop(server, signal.SIGTERM)
    assert "memory.cuda.allocator 'async' is ignored" in (tmp_path / "memory.log").read_text()


def test_a_dashboards_port_that_is_taken_is_named_before_anything_starts(
    serving: Serving,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = serving.start("--port", "0", "--dashboard", str(port))
        output, log = server.communicate(timeout=60)
    assert server.returncode == 1
    assert output == ""
    (error,) = log.splitlines()
    assert error.startswith(f"gpuwire: the dashboard cannot listen on 127.0.0.1:{port}: ")
    assert "another port" in error


def test_a_dashboard_without_its_libraries_says_what_to_install(
    serving: Serving, tmp_path: Path
) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ImportError('no uvicorn', name='uvicorn')\n")
    program = "import sys; sys.path.insert(0, '.'); from gpuwire.cli.main import main; "
    program += "raise SystemExit(main(['serve', '--dashboard', '0']))"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "gpuwire: the dashboard needs uvicorn, which is not installed: "
        "pip install 'gpuwire[dashboard]'"
    ]
