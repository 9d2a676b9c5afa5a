"""Links that are cut while a program works: it waits, goes on, and gets what it would have got."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.client.session import HELD_BYTES_HIGH
from gpuwire.config import Config, load_config
from gpuwire.errors import LinkLost, RequestTimeout, SessionLost
from gpuwire.transport.ticket import Ticket
from relay import LinkProfile, Relay
from servers import ServerProcess, clean_environment

WAIT = 30.0
MIB = 1024 * 1024
HEARTBEAT = 0.15
QUICK = f"[remote]\nheartbeat_seconds = {HEARTBEAT}\nresume_grace_seconds = 60.0\n"


class LogLines(logging.Handler):
    """What this process's sessions log; a test waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self._lines.append(record.getMessage())
            self._changed.notify_all()

    def wait_for(self, text: str, times: int = 1) -> None:
        def is_there() -> bool:
            return sum(text in line for line in self._lines) >= times

        with self._changed:
            assert self._changed.wait_for(is_there, WAIT), (text, self._lines)


@pytest.fixture
def log() -> Iterator[LogLines]:
    lines, logger = LogLines(), logging.getLogger("gpuwire.client")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    yield lines
    logger.removeHandler(lines)
    logger.setLevel(before)


@pytest.fixture(scope="module")
def quick_server(
    tmp_path_factory: pytest.TempPathFactory, runtime_directory: None
) -> Iterator[ServerProcess]:
    """A server that soon notices silence."""
    with ServerProcess(tmp_path_factory.mktemp("quick"), config=QUICK) as server:
        yield server


def configuration(**remote: object) -> Config:
    logger = {"log": "info", "level": "basic"}
    return load_config(remote={"heartbeat_seconds": HEARTBEAT, "logger": logger, **remote})


@contextmanager
def relayed(
    server: ServerProcess, profile: LinkProfile | None = None, **remote: object
) -> Iterator[tuple[gw.Device, Relay]]:
    """A device over a link that can be cut."""
    ticket = Ticket.parse(server.ticket)
    with Relay((ticket.host, ticket.port), profile) as relay:
        there = replace(ticket, port=relay.port).format()
        with gw.connect(there, config=configuration(**remote)) as dev:
            yield dev, relay


def cut_and_mend(relay: Relay, log: LogLines, times: int = 1) -> None:
    """Cuts the link, once it is there again, for as long as the client takes to notice."""
    log.wait_for("goes on over another link", times - 1)
    relay.cut()
    log.wait_for("lost its link", times)
    relay.mend()


def cut_when(condition: Callable[[], bool], relay: Relay, log: LogLines) -> threading.Thread:
    def work() -> None:
        while not condition():
            os.sched_yield()
        cut_and_mend(relay, log)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


# --- Cuts ------------------------------------------------------------------------------------


def test_a_cut_while_nothing_happens(quick_server: ServerProcess, log: LogLines) -> None:
    with relayed(quick_server) as (dev, relay):
        x = gw.ones((3,), device=dev)
        np.testing.assert_array_equal(np.asarray(x), 1)
        cut_and_mend(relay, log)
        log.wait_for("goes on over another link")
        np.testing.assert_array_equal(np.asarray(x + 1), 2)
        assert dev.stats().resumptions >= 1
        assert f"resumptions: {dev.link.resumptions}" in str(dev.link)


def test_a_read_waits_for_the_link_and_its_timeout_holds(
    quick_server: ServerProcess, log: LogLines
) -> None:
    with relayed(quick_server, request_timeout_seconds=20.0) as (dev, relay):
        x = gw.ones((3,), device=dev)
        np.asarray(x)
        mending = cut_when(lambda: True, relay, log)
        np.testing.assert_array_equal(np.asarray(x + 1), 2)
        mending.join()
    with relayed(quick_server, request_timeout_seconds=0.6) as (dev, relay):
        x = gw.ones((3,), device=dev)
        np.asarray(x)
        relay.cut()
        with pytest.raises(RequestTimeout, match="the session"):
            np.asarray(x + 1)
        relay.mend()
        log.wait_for("goes on over another link", 2)
        np.testing.assert_array_equal(np.asarray(x + 1), 2)


def test_a_ping_waits_for_the_link(quick_server: ServerProcess, log: LogLines) -> None:
    with relayed(quick_server) as (dev, relay):
        dev.ping()
        relay.cut()
        mending = cut_when(lambda: True, relay, log)
        assert dev.ping() > 0
        mending.join()


def test_an_upload_goes_on_from_where_it_was(quick_server: ServerProcess, log: LogLines) -> None:
    values = np.random.default_rng(1).random(4 * MIB, np.float32)
    rate = LinkProfile(bytes_per_second=40 * MIB, queue_bytes=4 * MIB)
    with relayed(quick_server, rate) as (dev, relay):
        passed = relay.up.counters
        cutting = cut_when(lambda: passed.passed_bytes > 8 * MIB, relay, log)
        x = gw.asarray(values, device=dev)
        cutting.join()
        assert passed.passed_bytes < 1.5 * values.nbytes, "it began anew"
        y = np.asarray(x[::1024] + 0)
        np.testing.assert_array_equal(y, values[::1024])
        assert float(gw.max(gw.abs(x - gw.asarray(values, device=dev)))) == 0.0


def test_a_download_goes_on_from_where_it_was(quick_server: ServerProcess, log: LogLines) -> None:
    values = np.random.default_rng(2).random(4 * MIB, np.float32)
    with relayed(quick_server) as (dev, relay):
        x = gw.asarray(values, device=dev)
        dev.sync()
        relay.set_profile(LinkProfile(bytes_per_second=40 * MIB, queue_bytes=4 * MIB))
        passed = relay.down.counters
        before = passed.passed_bytes
        cutting = cut_when(lambda: passed.passed_bytes - before > 8 * MIB, relay, log)
        again = np.asarray(x)
        cutting.join()
        np.testing.assert_array_equal(again, values)
        assert passed.passed_bytes - before < 1.5 * values.nbytes, "it began anew"


@gw.compile
def counted(state: dict[str, gw.Array], step: float) -> gw.Array:
    state["x"] += 1
    state["y"] += state["x"] * step
    return gw.sum(state["x"])


def test_each_step_runs_once_whatever_is_cut(quick_server: ServerProcess, log: LogLines) -> None:
    steps, cuts = 120, 3
    with relayed(quick_server) as (dev, relay):
        state = {"x": gw.zeros((8,), device=dev), "y": gw.zeros((8,), device=dev)}
        rest = gw.zeros((8,), device=dev)
        sums = []
        for i in range(steps):
            sums.append(counted(state, 0.5 + i))
            sums[-1].copy_to_host_async()
            rest += 1  # Outside of the compiled function too.
            if i % (steps // cuts) == steps // cuts // 2:
                cut_and_mend(relay, log, i // (steps // cuts) + 1)
        assert [float(each) for each in sums] == [8.0 * (i + 1) for i in range(steps)]
        np.testing.assert_array_equal(np.asarray(state["x"]), steps)
        np.testing.assert_array_equal(np.asarray(rest), steps)
        y = np.float32(0)
        for i in range(steps):
            y = np.float32(y + np.float32(i + 1) * np.float32(0.5 + i))
        np.testing.assert_array_equal(np.asarray(state["y"]), y)
        assert dev.link.resumptions >= cuts


def test_recording_goes_on_without_a_link_and_is_bounded(
    quick_server: ServerProcess, log: LogLines
) -> None:
    values = np.ones(8192, np.float32)
    count = 3 * HELD_BYTES_HIGH // values.nbytes
    total: list[gw.Array] = []
    with relayed(quick_server) as (dev, relay):
        total.append(gw.zeros((8192,), device=dev))
        np.asarray(total[0])
        relay.cut()
        log.wait_for("lost its link")

        def record() -> None:
            for _ in range(count):
                total[0] = total[0] + gw.asarray(values, device=dev)

        recording = threading.Thread(target=record)
        recording.start()
        while dev._session.room.is_set():
            recording.join(0.01)
        assert recording.is_alive()
        assert dev._session.held_bytes < HELD_BYTES_HIGH + MIB
        relay.mend()
        recording.join(WAIT)
        np.testing.assert_array_equal(np.asarray(total[0]), count)


def test_the_asyncio_face_waits_as_well(quick_server: ServerProcess, log: LogLines) -> None:
    values = np.random.default_rng(3).random(MIB, np.float32)
    ticket = Ticket.parse(quick_server.ticket)

    async def program(relay: Relay) -> None:
        there = replace(ticket, port=relay.port).format()
        async with gw.aio.connect(there, config=configuration()) as dev:
            first = dev.upload(values)
            await dev.flush()
            relay.cut()
            await asyncio.to_thread(log.wait_for, "lost its link")
            sending = asyncio.create_task(dev.upload_in_place(values))
            second = dev.upload(values[:5000])
            flushing = asyncio.create_task(dev.flush())
            reading = asyncio.create_task(dev.read(first))
            await asyncio.sleep(0)
            relay.mend()
            await flushing
            np.testing.assert_array_equal(await reading, values)
            np.testing.assert_array_equal(await dev.read(await sending), values)
            np.testing.assert_array_equal(await dev.read(second), values[:5000])

    with Relay((ticket.host, ticket.port)) as relay:
        asyncio.run(program(relay))


def test_a_change_of_address_needs_no_other_link(
    quick_server: ServerProcess, log: LogLines
) -> None:
    with relayed(quick_server, heartbeat_seconds=5.0) as (dev, relay):
        x = gw.ones((3,), device=dev)
        np.asarray(x)
        relay.move_clients()
        np.testing.assert_array_equal(np.asarray(x + 1), 2)
        assert dev.link.resumptions == 0


# --- Ends ------------------------------------------------------------------------------------


def test_a_link_that_does_not_come_back_ends_the_session_on_both_sides(
    tmp_path: Path, log: LogLines
) -> None:
    short = f"[remote]\nheartbeat_seconds = {HEARTBEAT}\nresume_grace_seconds = 0.5\n"
    with ServerProcess(tmp_path, config=short) as server, relayed(server) as (dev, relay):
        x = gw.zeros((1000,), device=dev)
        np.asarray(x)
        relay.cut()
        with pytest.raises(LinkLost, match=r"not taken up again within the 0\.5 s"):
            np.asarray(x + 1)
        with pytest.raises(LinkLost):
            x + 1
        with gw.connect(server.ticket, config=configuration()) as other:
            while "SessionLost: the session waited 0.5 s" not in server.log.read_text():
                other.ping()
            assert "closed, 4000 bytes freed" in server.log.read_text()
            other.memory_cleanup()
            assert other.memory_report().session_bytes == 0


def test_a_server_that_was_started_anew_says_at_once_what_is_gone(
    tmp_path: Path, log: LogLines
) -> None:
    first = ServerProcess(tmp_path, config=QUICK)
    port = Ticket.parse(first.ticket).port
    with gw.connect(first.ticket, config=configuration(heartbeat_seconds=30.0)) as dev:
        kept = [gw.ones((3,), device=dev) + i for i in range(5)]
        np.asarray(kept[0])
        first.kill()
        with ServerProcess(tmp_path, "--port", str(port), config=QUICK) as second:
            assert second.ticket == first.ticket
            with pytest.raises(SessionLost, match="does not know this session") as caught:
                np.asarray(kept[1])
            assert caught.value.tensors == 5
            assert "5 arrays" in str(caught.value)
            with gw.connect(second.ticket) as again:
                assert float(gw.sum(gw.ones((3,), device=again))) == 3.0
    first.stop()


def test_a_link_is_taken_over_while_the_server_thinks_it_is_there(
    tmp_path: Path, log: LogLines
) -> None:
    """Only the client notices the cut: the server is the more patient one."""
    patient = "[remote]\nheartbeat_seconds = 30.0\n"
    with ServerProcess(tmp_path, config=patient) as server, relayed(server) as (dev, relay):
        x = gw.ones((3,), device=dev)
        np.asarray(x)
        cut_and_mend(relay, log)
        for _ in range(3):
            x += 1
        np.testing.assert_array_equal(np.asarray(x), 4)
        text = server.log.read_text()
        assert "resumed" in text
        assert "lost its link" not in text


def test_closing_without_a_link_does_not_wait_for_it(
    quick_server: ServerProcess, log: LogLines
) -> None:
    with relayed(quick_server) as (dev, relay):
        x = gw.ones((3,), device=dev)
        np.asarray(x)
        relay.cut()
        log.wait_for("lost its link")
        x += 1
        assert "link lost" in repr(dev)
        closing = threading.Thread(target=dev.close)
        closing.start()
        closing.join(WAIT)
        assert not closing.is_alive(), "it waits for the server's grace to be over"
        assert dev.closed


PROGRAM = """
import sys
import gpuwire as gw
from gpuwire.config import load_config

config = load_config(remote={"heartbeat_seconds": 0.1})
dev = gw.connect(sys.argv[1], config=config)
x = gw.ones((3,), device=dev)
print(float(gw.sum(x)), flush=True)
sys.stdin.readline()
x += 1
"""


def test_a_program_ends_without_a_link(quick_server: ServerProcess) -> None:
    ticket = Ticket.parse(quick_server.ticket)
    with Relay((ticket.host, ticket.port)) as relay:
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, replace(ticket, port=relay.port).format()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(),
            text=True,
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "3.0\n"
        relay.cut()
        program.communicate("end\n", timeout=WAIT)
        assert program.returncode == 0
