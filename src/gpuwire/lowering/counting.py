"""How many operations shared a kernel with others, and how many had one to themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuwire.ir.graphs import Node
from gpuwire.ir.operations import OpClass


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """Of one execution, by class. `fused`: computed together with others, or not at all, because
    the result is a view or is not needed. `unfused`: in a kernel, or on the host, alone."""

    fused: tuple[tuple[OpClass, int], ...]
    unfused: tuple[tuple[OpClass, int], ...]


def counted(nodes: Sequence[Node], alone: Iterable[int]) -> OperationCounts:
    """The counts of a plan in which the nodes numbered `alone` share no kernel."""
    single = set(alone)
    fused = Counter(n.definition.op_class for i, n in enumerate(nodes) if i not in single)
    unfused = Counter(n.definition.op_class for i, n in enumerate(nodes) if i in single)
    return OperationCounts(tuple(fused.items()), tuple(unfused.items()))


class Tally:
    """Counts over executions; adding one costs about a microsecond."""

    def __init__(self) -> None:
        self._fused: Counter[OpClass] = Counter()
        self._unfused: Counter[OpClass] = Counter()

    def add(self, counts: OperationCounts) -> None:
        """One execution more."""
        for op_class, number in counts.fused:
            self._fused[op_class] += number
        for op_class, number in counts.unfused:
            self._unfused[op_class] += number

    def fused(self) -> dict[OpClass, int]:
        """Operations so far that shared a kernel or needed none."""
        return dict(self._fused)

    def unfused(self) -> dict[OpClass, int]:
        """Operations so far that had a kernel, or a host step, to themselves."""
        return dict(self._unfused)
