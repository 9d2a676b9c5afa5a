"""Savings, counted and told: a line for each further MiB at `basic`, one for each run at `full`."""

from __future__ import annotations

import pytest

from gpuwire.ids import GraphId
from gpuwire.ir.operations import OpClass
from gpuwire.telemetry.logs import Logger
from gpuwire.telemetry.savings import Savings, op_classes

MIB = 1024 * 1024
GRAPH = GraphId(7)


class Lines:
    """A sink."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, line: str, text: str) -> None:
        self.texts.append(text)


def test_basic_tells_each_further_mib_once() -> None:
    lines = Lines()
    savings = Savings(Logger("client", "basic", (lines,)))
    savings.ran(GRAPH, 60, 10_000, 10_000, is_new=True)
    for _ in range(400):
        savings.ran(GRAPH, 60, 10_000, 10, is_new=False)
    assert savings.saved_bytes == 400 * 9_990
    found = [text.split(" (")[0] for text in lines.texts]
    assert found == [f"op-graph cache: {mib} MiB saved" for mib in (1, 2, 3)]
    runs = 1 + -(-MIB // 9_990)
    sent = 10_000 + 10 * (runs - 1)
    assert lines.texts[0].endswith(
        f"({sent} bytes sent instead of {runs * 10_000}; {runs} runs of 1 graphs)"
    )


def test_what_is_told_again_is_no_saving() -> None:
    lines = Lines()
    savings = Savings(Logger("client", "basic", (lines,)))
    for number in range(200):
        savings.ran(GRAPH, 60, 10_000, 10, is_new=number == 0)
        savings.missed(GRAPH, "its definition goes again")
        savings.told_again(bytes(9_990))
    assert savings.saved_bytes == 0
    assert savings.misses == 200
    assert not lines.texts


@pytest.mark.parametrize("is_new", [True, False])
def test_full_tells_each_run_with_its_sizes_and_classes(is_new: bool) -> None:
    lines = Lines()
    savings = Savings(Logger("server", "full", (lines,)))
    counts = [0] * len(OpClass)
    counts[list(OpClass).index(OpClass.MATMUL)] = 2
    classes = op_classes([40, *counts[1:]], [0, 1, 0, 0, 0, 0])
    savings.ran(GRAPH, 43, 900, 60, is_new=is_new, classes=classes)
    what = "registered and run" if is_new else "run again"
    ran = "fused elementwise 40, matmul 2; alone reduction 1"
    assert lines.texts == [f"graph 7 of 43 ops {what}: 60 bytes of 900 sent; {ran}"]


def test_a_disabled_log_still_counts() -> None:
    savings = Savings(Logger("client", "disabled", ()))
    savings.ran(GRAPH, 60, 10_000, 10, is_new=False)
    assert (savings.executions, savings.saved_bytes) == (1, 9_990)
