"""What calling known graphs by id has saved, counted and told, on either side of the wire."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.ids import GraphId
from gpuwire.ir.operations import OpClass
from gpuwire.telemetry.logs import Logger

_MIB = 1024 * 1024


class Savings:
    """Counts of one session. Baseline is every graph's definition and bindings each time that it
    ran; actual is what was sent: the definition once, and what changed each time.

    The log gets one line for each further MiB saved at `basic`, and one for each run at `full`.
    """

    def __init__(self, logger: Logger) -> None:
        self.registered = 0
        self.executions = 0
        self.misses = 0
        """How often the server had given a graph up and had to ask for it."""
        self.evictions = 0
        """Graphs that were given up here."""
        self.baseline_bytes = 0
        self.actual_bytes = 0
        self.logger = logger
        self._told_mib = 0

    @property
    def saved_bytes(self) -> int:
        """May be below zero, while few graphs have run again."""
        return self.baseline_bytes - self.actual_bytes

    def ran(
        self, graph: GraphId, ops: int, full: int, sent: int, *, is_new: bool, classes: str = ""
    ) -> None:
        """A graph of so many ops was run by a task of `sent` bytes; definition and bindings are
        `full` bytes. `classes` says how its operations ran, where that is known."""
        self.executions += 1
        self.registered += is_new
        self.baseline_bytes += full
        self.actual_bytes += sent
        logger = self.logger
        if logger.wants_full:
            what = "registered and run" if is_new else "run again"
            ran = f"; {classes}" if classes else ""
            logger.full(f"graph {graph} of {ops} ops {what}: {sent} bytes of {full} sent{ran}")
        if logger.wants_basic and self.saved_bytes >= (self._told_mib + 1) * _MIB:
            self._told_mib = self.saved_bytes // _MIB
            logger.basic(
                f"op-graph cache: {self._told_mib} MiB saved "
                f"({self.actual_bytes} bytes sent instead of {self.baseline_bytes}; "
                f"{self.executions} runs of {self.registered} graphs)"
            )

    def missed(self, graph: GraphId, what: str) -> None:
        """A graph that is to be run had been given up on the server; `what` becomes of that."""
        self.misses += 1
        self.logger.full(f"graph {graph} is missing on the server: {what}")

    def told_again(self, definition: bytes | memoryview) -> None:
        """A definition went over the wire once more."""
        self.actual_bytes += len(definition)


def op_classes(fused: Sequence[int], unfused: Sequence[int]) -> str:
    """`fused elementwise 40, matmul 2; alone reduction 1`, of numbers for each `OpClass` in the
    order of the enum; nothing if all are 0."""
    parts = []
    for what, counts in (("fused", fused), ("alone", unfused)):
        named = [f"{c.value} {count}" for c, count in zip(OpClass, counts, strict=True) if count]
        if named:
            parts.append(f"{what} {', '.join(named)}")
    return "; ".join(parts)
