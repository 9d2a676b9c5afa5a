"""Ctrl-C in the middle of recording, at any line: no op is lost, doubled or run over another."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from client.graph_cache.replaying import IntegerServer, Program
from gpuwire.client.tensor import Tensor

FILES = ("/graph_cache/", "/client/batch.py", "/wire/bindings.py")
LINES = 50_000


class InterruptAt:
    """Raises KeyboardInterrupt at the line of that number in the code under test, and once more
    `again` lines later."""

    def __init__(self, line: int, again: int) -> None:
        self._left = line
        self._next = again
        self.raised = 0

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if "/tests/" in file or not any(part in file for part in FILES):
            return None
        # Becoming whole is not interrupted: a second Ctrl-C within microseconds is no user's.
        return None if frame.f_code.co_name == "interrupted" else self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and self.raised < 2:
            self._left -= 1
            if self._left < 0:
                self._left = self._next
                self.raised += 1
                raise KeyboardInterrupt
        return self._line


def interrupted_program(line: int, again: int) -> int:
    """Runs a program interrupted at that line and later again, and looks at what it gives; how
    often it was interrupted."""
    program = Program(IntegerServer(graphs=2))
    weight, other, h = program.upload(), program.upload(), program.upload()

    def step(h: Tensor, count: int) -> Tensor:
        for number in range(35):
            w = weight if number % 2 else other
            h = program.op("add", h, w, line=100 + number)
        if count % 5 == 4:
            h = program.op("negative", h, line=300)
        return h

    interrupt = InterruptAt(line, again)
    for count in range(14):
        try:
            with interrupt:
                h = step(h, count)
                if count in (3, 11):
                    program.recorder.flush()
        except KeyboardInterrupt:
            program.op("multiply", h, weight, line=400)
        program.serve()
    program.read(h)
    program.flush()
    for tensor in (weight, other, h):
        assert program.server.values[tensor.id] == program.meant[tensor.id]
    for tensor, value in program.server.values.items():
        # The op that was interrupted may have been recorded: nobody has its tensor then.
        assert program.meant.get(tensor, value) == value
    assert len(program.server.values) <= 6
    return interrupt.raised


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, LINES), st.integers(0, 40) | st.integers(0, LINES))
def test_an_interruption_anywhere_leaves_everything_whole(line: int, again: int) -> None:
    interrupted_program(line, again)


def test_the_lines_interrupted_are_most_of_the_program() -> None:
    assert interrupted_program(LINES, 100) == 2
    assert interrupted_program(2 * LINES, 0) == 0
