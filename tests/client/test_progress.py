"""Long waits made visible, and short ones left alone."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from gpuwire.client.progress import AsyncWaits, Waits, find_bar
from gpuwire.client.progress_bars import NotebookBar, TerminalBar, how_far
from gpuwire.client.transfers import Transfer
from gpuwire.client.waiting import ThreadReply
from servers import clean_environment

MIB = 1024 * 1024


class Screen:
    """A bar that keeps what it was told to show, and completes the reply after so many looks."""

    def __init__(self, reply: ThreadReply, looks: int) -> None:
        self.shown: list[tuple[str, int, int]] = []
        self.is_open = False
        self._reply = reply
        self._looks = looks

    def show(self, text: str, done: int, total: int, seconds: float) -> None:
        assert self.is_open
        self.shown.append((text, done, total))
        if len(self.shown) == self._looks:
            self._reply.set_result("answer")

    def __enter__(self) -> Screen:
        self.is_open = True
        return self

    def __exit__(self, *error: Any) -> None:
        self.is_open = False


def waits(screen: Screen | None, graphs: int = 0) -> Waits:
    return Waits("box:4433", lambda: graphs, lambda: screen)


def test_a_short_wait_opens_nothing() -> None:
    reply = ThreadReply()
    threading.Timer(0.05, lambda: reply.set_result(7)).start()

    def never() -> None:
        raise AssertionError("a bar was wanted")

    assert Waits("box:4433", lambda: 0, never).wait(reply, "read from") == 7


def test_a_long_wait_is_shown_until_the_answer_comes() -> None:
    reply = ThreadReply()
    screen = Screen(reply, looks=3)
    assert waits(screen).wait(reply, "sync") == "answer"
    assert len(screen.shown) == 3
    assert not screen.is_open
    assert screen.shown[0][0].startswith("waiting for box:4433")


def test_bytes_are_shown_as_they_move() -> None:
    reply, transfer = ThreadReply(), Transfer(8 * MIB)
    transfer.moved(2 * MIB)
    screen = Screen(reply, looks=2)
    waits(screen).wait(reply, "upload to", None, transfer)
    assert screen.shown[-1] == ("upload to box:4433", 2 * MIB, 8 * MIB)


def test_what_was_handed_over_has_arrived_when_it_is_acknowledged() -> None:
    transfer = Transfer(8 * MIB)
    under_way = [4 * MIB]
    transfer.begins(lambda: under_way[0])
    transfer.moved(4 * MIB)
    assert transfer.done == 0
    under_way[0] = MIB
    assert transfer.done == 3 * MIB


def test_new_op_graphs_are_named_as_what_may_take_long() -> None:
    reply = ThreadReply()
    screen = Screen(reply, looks=1)
    shown = waits(screen, graphs=2)
    shown.wait(reply, "sync")
    assert "2 new op-graphs" in screen.shown[0][0]
    again = ThreadReply()
    screen._reply, screen.shown = again, []
    shown.wait(again, "sync")
    assert "op-graph" not in screen.shown[0][0], "they are not new any more"


def test_a_time_limit_holds_with_and_without_a_bar() -> None:
    for screen in (None, Screen(ThreadReply(), looks=99)):
        reply = ThreadReply()
        with pytest.raises(TimeoutError):
            waits(screen).wait(reply, "read from", 0.7)
        assert reply.done(), "nobody waits for it any more"


def test_an_error_is_raised_and_the_bar_is_gone() -> None:
    reply = ThreadReply()

    class Failing(Screen):
        def show(self, text: str, done: int, total: int, seconds: float) -> None:
            reply.set_exception(ValueError("no"))

    screen = Failing(reply, looks=1)
    with pytest.raises(ValueError, match="no"):
        waits(screen).wait(reply, "sync")
    assert not screen.is_open


def test_only_the_main_thread_shows_its_waits() -> None:
    reply = ThreadReply()
    screen = Screen(reply, looks=1)
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(waits(screen).wait(reply, "sync", 1.0)))
    threading.Timer(0.7, lambda: reply.set_result(1)).start()
    thread.start()
    thread.join()
    assert answers == [1]
    assert screen.shown == []


class AsyncScreen(Screen):
    """The same for what an asyncio program awaits."""

    def __init__(self, reply: asyncio.Future[Any], looks: int) -> None:
        super().__init__(reply, looks)  # type: ignore[arg-type]


def test_an_asyncio_program_sees_its_long_awaits_and_goes_on_meanwhile() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[str] = loop.create_future()
        transfer = Transfer(8 * MIB)
        transfer.moved(2 * MIB)
        screen = AsyncScreen(reply, looks=3)
        shows = AsyncWaits("box:4433", lambda: 0, lambda: screen)

        async def other() -> None:
            with shows.shown("read from"):
                await reply

        another = asyncio.create_task(other())
        with shows.shown("upload to", transfer):
            assert await reply == "answer"
        await another
        assert screen.shown == [("upload to box:4433", 2 * MIB, 8 * MIB)] * 3, "one at a time"
        assert not screen.is_open
        for _ in range(2):
            with shows.shown("sync"):
                await asyncio.sleep(0)
        assert len(screen.shown) == 3, "a short one is not shown"

    asyncio.run(check())


def test_an_await_that_is_given_up_leaves_no_bar() -> None:
    async def check() -> None:
        reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        screen = AsyncScreen(reply, looks=99)
        shows = AsyncWaits("box:4433", lambda: 1, lambda: screen)
        with pytest.raises(TimeoutError), shows.shown("sync"):
            await asyncio.wait_for(reply, 0.8)
        assert "1 new op-graph" in screen.shown[0][0]
        assert not screen.is_open

    asyncio.run(check())


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (0, 0, 3.0, ""),
        (128 * MIB, 512 * MIB, 2.0, "128 MiB of 512 MiB, 64 MiB/s, 0:06 left"),
        (512 * MIB, 512 * MIB, 2.0, "512 MiB of 512 MiB, 256 MiB/s, 0:00 left"),
        (0, 512 * MIB, 0.0, "0 B of 512 MiB"),
        (MIB, 601 * MIB, 1.0, "1 MiB of 601 MiB, 1 MiB/s, 10:00 left"),
    ],
)
def test_how_far_it_is(done: int, total: int, seconds: float, text: str) -> None:
    assert how_far(done, total, seconds) == text


class Display:
    """IPython's `display`, as far as we use it."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, str]] = []

    def __call__(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Display:
        assert raw and display_id
        return self.update(data, raw=raw)

    def update(self, data: dict[str, str], *, raw: bool) -> Display:
        self.outputs.append(data)
        return self


def test_a_notebook_gets_one_output_that_is_empty_afterwards() -> None:
    display = Display()
    with NotebookBar(display) as bar:
        bar.show("read from <box>", 0, 0, 0.0)
        bar.show("read from <box>", MIB, 4 * MIB, 1.0)
    first, second, last = (output["text/html"] for output in display.outputs)
    assert "<progress></progress>" in first
    assert 'value="1048576" max="4194304"' in second and "0:03 left" in second
    assert "&lt;box&gt;" in second
    assert last == ""


def test_a_notebook_bar_that_never_showed_leaves_nothing() -> None:
    display = Display()
    with NotebookBar(display):
        pass
    assert display.outputs == []


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert find_bar() is None
    monkeypatch.setattr(sys, "stderr", None)
    assert find_bar() is None


def on_terminal(program: str, *arguments: str, term: str = "xterm") -> str:
    """What a program leaves on a terminal of 100 columns."""
    leader, follower = pty.openpty()
    environment = clean_environment(TERM=term, COLUMNS="100")
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    output = b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:  # EIO: the other side is closed (Linux)
            break
        if not data:
            break
        output += data
    os.close(leader)
    assert process.wait(timeout=60) == 0, output.decode()
    return output.decode()


READING = """
import sys
import numpy as np
from gpuwire.client import connect
from gpuwire.client import progress
from gpuwire.config import Config, RemoteConfig
progress.PATIENCE_SECONDS = 0.0  # However fast the machine is, this upload is not there at once.
progress.REFRESH_SECONDS = 0.01
config = Config(remote=RemoteConfig(progress=sys.argv[2]))
with connect(sys.argv[1], config=config) as dev:
    dev.upload(np.zeros(64 * 1024 * 1024, np.uint8))
print("done")
"""


def test_a_long_upload_is_seen_on_a_terminal_and_gone_afterwards(server_ticket: str) -> None:
    seen = on_terminal(READING, server_ticket, "auto")
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)
    assert "upload to 127.0.0.1:" in plain
    assert "of 64 MiB" in plain
    assert plain.split()[-1] == "done"
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") > 0, "the cursor is back"


def test_progress_off_shows_nothing(server_ticket: str) -> None:
    assert on_terminal(READING, server_ticket, "off").split() == ["done"]


def test_a_terminal_without_cursor_moves_gets_no_bar() -> None:
    program = "import sys; from gpuwire.client.progress import find_bar; print(find_bar())"
    assert on_terminal(program, term="dumb").split() == ["None"]


def test_a_terminal_bar_needs_a_terminal() -> None:
    assert TerminalBar.on(io.StringIO()) is None


FIRST_RUN = """
import sys
import numpy as np
import rich.progress  # Else it is imported while the kernel is compiled, which is over by then.
import gpuwire as gw
from gpuwire.client import progress
progress.PATIENCE_SECONDS = 0.0
progress.REFRESH_SECONDS = 0.01
def function(x):
    for number in range(24):
        x = gw.tanh(x) * gw.cos(x + number) + gw.sqrt(gw.abs(x) + number)
    return gw.sum(x, axis=0)
with gw.connect(sys.argv[1]) as dev:
    step = gw.compile(function)
    np.asarray(step(gw.ones((5, 11), device=dev)))
print("done")
"""

AWAITED = """
import asyncio, sys
import numpy as np
import gpuwire as gw
from gpuwire.client import progress
progress.PATIENCE_SECONDS = 0.0
progress.REFRESH_SECONDS = 0.01
async def main():
    async with gw.aio.connect(sys.argv[1]) as dev:
        await dev.upload_in_place(np.zeros(64 * 1024 * 1024, np.uint8))
asyncio.run(main())
print("done")
"""


@pytest.mark.parametrize(
    ("program", "text"),
    [(FIRST_RUN, ", 1 new op-graph"), (AWAITED, "of 64 MiB")],
    ids=["first run", "asyncio"],
)
def test_first_runs_and_awaits_are_seen_on_a_terminal(
    server_ticket: str, program: str, text: str
) -> None:
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", on_terminal(program, server_ticket))
    assert text in plain
    assert plain.split()[-1] == "done"
