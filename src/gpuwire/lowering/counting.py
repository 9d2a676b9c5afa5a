"""How many operations shared a kernel with others, and how many had one to themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuwire.ir.graphs import Node
from gpuwire.ir.operations import OpClass

_CLASSES = tuple(OpClass)
_PLACES = {op_class: place for place, op_class in enumerate(_CLASSES)}


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """Of one execution, each a number for every `OpClass`, in the order of the enum. `fused`:
    computed together with others, or not at all, because the result is a view or is not needed.
    `unfused`: in a kernel, or on the host, alone."""

    fused: tuple[int, ...]
    unfused: tuple[int, ...]


def counted(nodes: Sequence[Node], alone: Iterable[int]) -> OperationCounts:
    """The counts of a plan in which the nodes numbered `alone` share no kernel."""
    single = set(alone)
    fused, unfused = [0] * len(_CLASSES), [0] * len(_CLASSES)
    for number, node in enumerate(nodes):
        counts = unfused if number in single else fused
        counts[_PLACES[node.definition.op_class]] += 1
    return OperationCounts(tuple(fused), tuple(unfused))


MAX_UNADDED = 256
"""Plans whose executions are counted and not yet added up."""


class Tally:
    """Counts over executions; adding one costs 0.2 µs."""

    __slots__ = ("_fused", "_runs", "_unfused")

    def __init__(self) -> None:
        self._fused = self._unfused = (0,) * len(_CLASSES)
        self._runs: dict[int, _Runs] = {}

    def add(self, counts: OperationCounts) -> None:
        """One execution more."""
        runs = self._runs.get(id(counts))
        if runs is None:
            if len(self._runs) >= MAX_UNADDED:
                self._add_up()
            runs = self._runs[id(counts)] = _Runs(counts)
        runs.number += 1

    @property
    def counts(self) -> OperationCounts:
        """The sum so far."""
        self._add_up()
        return OperationCounts(self._fused, self._unfused)

    def fused(self) -> dict[OpClass, int]:
        """Operations so far that shared a kernel or needed none, without the classes that had
        none."""
        return _by_class(self.counts.fused)

    def unfused(self) -> dict[OpClass, int]:
        """Operations so far that had a kernel, or a host step, to themselves; as `fused`."""
        return _by_class(self.counts.unfused)

    def _add_up(self) -> None:
        for runs in self._runs.values():
            number = runs.number
            self._fused = _with(self._fused, runs.counts.fused, number)
            self._unfused = _with(self._unfused, runs.counts.unfused, number)
        self._runs.clear()


@dataclass(slots=True, eq=False)
class _Runs:
    """Executions of one plan; its counts are kept, so that they stay the ones of that identity."""

    counts: OperationCounts
    number: int = 0


def _with(sums: tuple[int, ...], counts: tuple[int, ...], number: int) -> tuple[int, ...]:
    return tuple([total + number * count for total, count in zip(sums, counts, strict=True)])


def _by_class(counts: tuple[int, ...]) -> dict[OpClass, int]:
    return {op_class: count for op_class, count in zip(_CLASSES, counts, strict=True) if count}
