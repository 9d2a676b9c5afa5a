"""What a user's process lives through: Ctrl-C, the end of the program, a fork, a killed server.

The client is a child process; the server is the test's, so that it knows when the client waits.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from client.scripted_server import Running, ScriptedServer, running
from gpuwire.wire.messages import ReadTensor, RegisterTensor, Reply, RunOperation, Task

WAIT = 30.0

HEAD = """
import gc, os, sys, threading
import numpy as np
from gpuwire.client import connect
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.operations import OPERATIONS
ADD = OPERATIONS["add"]
VALUES = np.arange(6, dtype="<f4")
dev = connect(sys.argv[1])
"""


@contextmanager
def program(ticket: str, source: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", HEAD + source, ticket],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def say(child: subprocess.Popen[str]) -> None:
    """Lets the program go on."""
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def ended(child: subprocess.Popen[str]) -> str:
    """What the program printed, once it has ended well and without a complaint."""
    out, complaints = child.communicate(timeout=WAIT)
    assert complaints == ""
    assert child.returncode == 0
    return out


@pytest.fixture
def there() -> Iterator[Running]:
    with running() as server:
        yield server


def unanswered_once(server: ScriptedServer, kind: type[Task]) -> threading.Event:
    """The first task of that kind gets no answer; tells when it is there."""
    asked = threading.Event()

    def answer(task: Task) -> Reply | None:
        if isinstance(task, kind) and not asked.is_set():
            asked.set()
            return None
        return server.usual_answer(task)

    server.answer = answer
    return asked


def test_ctrl_c_ends_a_read_and_the_device_goes_on(there: Running) -> None:
    asked = unanswered_once(there.server, ReadTensor)
    source = """
x = dev.upload(VALUES)
try:
    dev.read(x)
except KeyboardInterrupt:
    print("interrupted")
print(dev.read(x).tolist())
"""
    with program(there.ticket, source) as child:
        assert asked.wait(WAIT)
        child.send_signal(signal.SIGINT)
        assert ended(child) == "interrupted\n[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]\n"


def test_ctrl_c_ends_a_long_upload_and_the_device_goes_on(there: Running) -> None:
    registered = unanswered_once(there.server, RegisterTensor)

    async def stop_reading() -> None:
        there.server.reads_bulk.clear()

    async def read_on() -> None:
        there.server.reads_bulk.set()

    there.loop.run(stop_reading())
    source = """
try:
    dev.upload(np.zeros(10_000_000, dtype="<f4"))
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
print(dev.read(dev.upload(VALUES)).tolist())
"""
    with program(there.ticket, source) as child:
        assert registered.wait(WAIT)
        child.send_signal(signal.SIGINT)
        assert child.stdout is not None
        assert child.stdout.readline() == "interrupted\n"
        there.loop.run(read_on())
        say(child)
        assert ended(child) == "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]\n"


def test_ctrl_c_ends_a_wait_for_a_slow_link_and_no_task_is_lost(there: Running) -> None:
    registered = unanswered_once(there.server, RegisterTensor)
    source = """
values = np.zeros(4000, dtype="<f4")
kept = [dev.upload(values)]
def watch():
    while dev._session.room.is_set():
        threading.Event().wait(0.001)
    print("waiting", flush=True)
sys.stdin.readline()
threading.Thread(target=watch).start()
try:
    while True:
        kept.append(dev.upload(values))
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
dev.sync()
print(max(tensor.id for tensor in kept))
"""

    async def stop_reading() -> None:
        there.server.reads.clear()

    async def read_on() -> None:
        there.server.reads.set()

    with program(there.ticket, source) as child:
        assert child.stdout is not None
        assert registered.wait(WAIT)
        there.loop.run(stop_reading())
        say(child)
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        there.loop.run(read_on())
        say(child)
        highest = int(ended(child))
    ids = [task.tensor for task in there.server.tasks if isinstance(task, RegisterTensor)]
    assert ids == sorted(set(ids))
    assert ids[-1] - highest in (0, 1)


def test_a_program_that_just_ends_sends_what_it_recorded_and_says_goodbye(there: Running) -> None:
    source = """
x = dev.upload(VALUES)
y = dev.record(ADD, (x, x), NO_ATTRIBUTES)
"""
    with program(there.ticket, source) as child:
        assert ended(child) == ""

    async def told() -> None:
        await there.server.closed_by_client.wait()

    there.loop.run(told())
    assert any(isinstance(task, RunOperation) for task in there.server.tasks)


def test_a_program_that_fails_ends_with_its_own_error(there: Running) -> None:
    source = """
x = dev.upload(VALUES)
raise SystemExit(7)
"""
    with program(there.ticket, source) as child:
        out, complaints = child.communicate(timeout=WAIT)
    assert (child.returncode, out, complaints) == (7, "", "")


def test_tensors_in_cycles_and_globals_may_outlive_the_device(there: Running) -> None:
    source = """
class Holder: pass
holder = Holder()
holder.me, holder.x = holder, dev.upload(VALUES)
sys.kept = [dev.upload(VALUES) for _ in range(1000)]
dev.close()
"""
    with program(there.ticket, source) as child:
        assert ended(child) == ""


def test_a_forked_child_is_told_to_connect_itself_and_harms_nothing(there: Running) -> None:
    source = """
x = dev.upload(VALUES)
dev.sync()
child = os.fork()
if child == 0:
    for use in (lambda: dev.read(x), lambda: dev.upload(VALUES), dev.sync, dev.ping,
                lambda: dev.record(ADD, (x, x), NO_ATTRIBUTES)):
        try:
            use()
        except Exception as error:
            print(type(error).__name__, "connect in this process" in str(error))
    print(dev.closed)
    del x
    gc.collect()
    dev.close()
    mine = connect(sys.argv[1])
    print(mine.read(mine.upload(VALUES)).sum())
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(dev.read(x).sum())
"""
    with program(there.ticket, source) as child:
        lines = ended(child).splitlines()
    assert lines == ["DeviceClosed True"] * 5 + ["True", "15.0", "0", "15.0"]


def test_threads_that_still_record_at_the_end_do_not_hold_it_up(there: Running) -> None:
    source = """
x = dev.upload(VALUES)
def work():
    while True:
        dev.record(ADD, (x, x), NO_ATTRIBUTES)
threading.Thread(target=work, daemon=True).start()
dev.sync()
"""
    with program(there.ticket, source) as child:
        child.communicate(timeout=WAIT)
    assert child.returncode == 0
