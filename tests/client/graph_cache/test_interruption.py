"""Ctrl-C in the middle of recording, at any line: no op is lost, doubled or run over another."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from client.graph_cache.replaying import IntegerServer, Program
from gpuwire.client.recorded_graphs import recorded_graph
from gpuwire.client.tensor import Tensor
from gpuwire.ids import LocationId, StreamId
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.graphs import InputRef, NodeRef, NodeSource, typed_graph
from gpuwire.ir.operations import OPERATIONS
from gpuwire.wire.limits import DEFAULT_LIMITS

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


def parts_interrupted(line: int) -> int:
    """Runs a recorded graph of several parts, interrupted at that line; how often it was."""
    program = Program(IntegerServer(graphs=2))
    x = program.upload()
    add = OPERATIONS["add"]
    nodes = [NodeSource(add, (InputRef(0), InputRef(0)), NO_ATTRIBUTES)]
    nodes += [NodeSource(add, (NodeRef(n), NodeRef(n // 2)), NO_ATTRIBUTES) for n in range(11)]
    graph = typed_graph((x.type,), nodes, [11])
    within = replace(DEFAULT_LIMITS, max_graph_nodes=4)
    whole = recorded_graph(1, graph, (LocationId(1),) * 12, within)
    assert len(whole.parts) > 2
    program.recorder.run(StreamId(0), whole, [x], ())
    interrupt = InterruptAt(line, 1 << 30)
    with suppress(KeyboardInterrupt), interrupt:
        program.recorder.run(StreamId(0), whole, [x], ())
    (y,) = program.recorder.run(StreamId(0), whole, [x], ())
    program.flush()
    program.flush()
    # At the very end nothing is open that could be taken back, and nobody has the result.
    assert len(program.server.values) <= 3
    assert {x.id, y.id} <= program.server.values.keys()
    return interrupt.raised


def test_an_interrupted_run_of_parts_leaves_none_of_its_values() -> None:
    lines = 0
    while parts_interrupted(lines):
        lines += 1
    assert lines > 100
