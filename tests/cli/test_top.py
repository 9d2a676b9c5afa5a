"""`gpuwire top`: for programs, for a pipe, and in a terminal of its own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import pytest

from gpuwire.cli.top_screen import bar, sparkline
from gpuwire.telemetry.plain import from_plain
from gpuwire.telemetry.snapshots import ServerSnapshot
from gpuwire.transport import Ticket
from servers import clean_environment


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuwire.cli", "top", *arguments],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=60,
    )


def test_a_program_gets_one_moment_as_json(server_ticket: str) -> None:
    result = run(server_ticket, "--json")
    assert result.returncode == 0, result.stderr
    snapshot = from_plain(ServerSnapshot, json.loads(result.stdout))
    assert snapshot.whole
    assert [device.index for device in snapshot.devices] == list(range(len(snapshot.devices)))
    assert snapshot.viewers >= 1


def test_a_pipe_gets_one_moment_as_text(server_ticket: str) -> None:
    result = run(server_ticket)
    assert result.returncode == 0, result.stderr
    for text in ("device 0:", "reserved", "op-graphs:", "given up", "operations: ", "operations/s"):
        assert text in result.stdout
    assert "\x1b" not in result.stdout
    assert Ticket.parse(server_ticket).token not in result.stdout


def test_a_wrong_token_is_one_line(server_ticket: str) -> None:
    ticket = Ticket.parse(server_ticket)
    wrong = Ticket(ticket.host, ticket.port, ticket.fingerprint, "wrong").format()
    result = run(wrong, "--once")
    assert (result.returncode, result.stdout) == (1, "")
    assert "does not know this token" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("ending", ["q", "ctrl-c"])
def test_in_a_terminal_it_lives_until_it_is_told_to_end(server_ticket: str, ending: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 130, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuwire.cli", "top", server_ticket],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=clean_environment(TERM="xterm-256color"),
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    moments = 0
    while moments < 3:
        seen += os.read(ours, 65536)
        moments = seen.count(b"device 0:")
    if ending == "q":
        os.write(ours, b"q")
    else:
        process.send_signal(signal.SIGINT)
    try:
        while data := os.read(ours, 65536):
            seen += data
    except OSError:  # the terminal's other end is gone: the program has ended
        pass
    assert process.wait(timeout=30) == 0
    os.close(ours)
    assert b"Traceback" not in seen
    assert b"\x1b[?1049l" in seen, "the terminal is left as it was"


def test_bars_and_sparklines() -> None:
    assert sparkline([0, 1, 2, 4]) == " ▂▄█"
    assert sparkline([0, 0]) == "  "
    assert bar(0, 0, 0, 0) == "·" * 24
    assert bar(6, 12, 24, 24) == "█" * 6 + "▒" * 6 + "·" * 11 + "|"
