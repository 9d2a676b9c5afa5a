"""What calling known graphs by id has saved, counted and told."""

from __future__ import annotations

from gpuwire.ids import GraphId
from gpuwire.telemetry.logs import Logger

_MIB = 1024 * 1024


class Savings:
    """Counts of one session. Baseline is every graph's definition and bindings each time that it
    ran; actual is what was sent: the definition once, and what changed each time."""

    def __init__(self, logger: Logger) -> None:
        self.registered = 0
        self.executions = 0
        self.misses = 0
        self.evictions = 0
        """Graphs that were given up here."""
        self.baseline_bytes = 0
        self.actual_bytes = 0
        self._logger = logger
        self._told_mib = 0

    @property
    def saved_bytes(self) -> int:
        return self.baseline_bytes - self.actual_bytes

    def ran(self, graph: GraphId, ops: int, full: int, sent: int, *, is_new: bool) -> None:
        """A graph of so many ops was run by a task of `sent` bytes; definition and bindings are
        `full` bytes."""
        self.executions += 1
        self.registered += is_new
        self.baseline_bytes += full
        self.actual_bytes += sent
        if self._logger.wants_full:
            what = "registered and run" if is_new else "run again"
            self._logger.full(f"graph {graph} of {ops} ops {what}: {sent} bytes of {full} sent")
        if self._logger.wants_basic and self.saved_bytes >= (self._told_mib + 1) * _MIB:
            self._told_mib = self.saved_bytes // _MIB
            self._logger.basic(
                f"op-graph cache: {self._told_mib} MiB saved "
                f"({self.actual_bytes} bytes sent instead of {self.baseline_bytes}; "
                f"{self.executions} runs of {self.registered} graphs)"
            )

    def missed(self, graph: GraphId, definition: bytes | None) -> None:
        """The server asked for a graph, and was sent its definition again."""
        self.misses += 1
        self.actual_bytes += len(definition or b"")
        found = (
            "its definition goes again" if definition is not None else "it was given up here too"
        )
        self._logger.full(f"graph {graph} is missing on the server: {found}")
