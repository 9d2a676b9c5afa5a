"""Sequences: launches over numbered slots of memory that run together, again and again.

What can be decided before there is memory is decided when a sequence is made; what can be decided
by where the memory lies is kept for each set of places that it lay at (`sequence_launcher`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuwire.compute.memory.pages import Page
from gpuwire.compute.native import Pointer, lib
from gpuwire.compute.programs import Program
from gpuwire.compute.uniforms import Uniform
from gpuwire.kernels.kernel import Access, Kernel


@dataclass(frozen=True, slots=True)
class BufferRange:
    """A part of a slot's memory, in bytes."""

    slot: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class SequenceLaunch:
    """One launch. Its parameters are `params`, and behind them `more` bytes that each run brings;
    if those are none, it takes no part in what a run brings."""

    kernel: Kernel
    workgroups: int
    buffers: tuple[BufferRange, ...]
    params: bytes
    more: int = 0


BoundStep = tuple[
    Pointer | None,
    Pointer | None,
    int,
    Pointer,
    Pointer | None,
    bytes,
    bytes,
    int,
    int,
    int,
    int,
]
"""Pipeline and bind group, each None if it is set already; number of offsets, and these;
parameters that are the same in each run, in C memory, or what stands before and after those that a
run brings; their size, 0 where none are to be set; the grid."""

Places = tuple[int, ...]
"""Where the slots begin (`Block.place`): those that were given, then those that were made."""


class BoundSequence:
    """A sequence over memory at certain places: everything that the library is to be told. It
    holds bind groups and uniforms by references of its own, and no memory: when a page goes, what
    binds it goes first."""

    __slots__ = (
        "groups",
        "last_run",
        "names",
        "owned",
        "pages",
        "programs",
        "runs",
        "steps",
        "uniforms",
    )

    def __init__(self) -> None:
        self.steps: list[BoundStep] = []
        self.programs: list[Program] = []
        """Of each launch."""
        self.names: tuple[str, ...] = ()
        """Of its kernels, in order of first launch."""
        self.groups: list[Pointer] = []
        self.uniforms: list[Uniform] = []
        self.pages: set[Page] = set()
        self.owned: list[Pointer] = []
        """C memory that the steps point to."""
        self.runs = 0
        """Not yet counted as launches of the programs."""
        self.last_run = 0
        """When it ran last, counted in runs of all sequences."""

    def hold(self, program: Program, group: Pointer, uniform: Uniform | None) -> None:
        """Keep what a launch uses, whatever becomes of the caches it is from."""
        self.programs.append(program)
        program.held += 1
        lib.wgpuBindGroupAddRef(group)
        self.groups.append(group)
        if uniform is not None:
            uniform.pins += 1
            self.uniforms.append(uniform)

    def count_launches(self) -> None:
        """Count the runs so far as launches of their programs."""
        runs, self.runs = self.runs, 0
        if runs:
            for program in self.programs:
                program.launches += runs

    def __del__(self) -> None:
        for program in self.programs:
            program.held -= 1
        for group in self.groups:
            lib.wgpuBindGroupRelease(group)
        for uniform in self.uniforms:
            uniform.pins -= 1


class LaunchSequence:
    """Launches that run one after the other, over slots that a run is given and slots that it
    makes. `made`: slot and size in bytes, in the order of allocation."""

    __slots__ = ("bound", "given", "launches", "made", "written")

    def __init__(
        self,
        launches: tuple[SequenceLaunch, ...],
        given: tuple[tuple[int, int], ...],
        made: tuple[tuple[int, int], ...],
        written: tuple[int, ...],
    ) -> None:
        self.launches = launches
        self.given = given
        """Slots that exist, all of their bytes, and how many bytes each has at least."""
        self.made = made
        self.written = written
        """Which are written, numbered as the given ones and then the made ones stand. Of those that
        are made, every byte is."""
        self.bound: dict[Places, BoundSequence] = {}

    @classmethod
    def of(
        cls, launches: Sequence[SequenceLaunch], made: Sequence[tuple[int, int]]
    ) -> LaunchSequence | None:
        """The sequence; None if its launches cannot be answered for together: because one reads of
        a slot that is made what none before has written, or because some byte of one stays
        unwritten. Such launches run one by one, where each is looked at by itself."""
        sizes = dict(made)
        given: dict[int, int] = {}
        rewritten: set[int] = set()
        filled: dict[int, _Filled] = {}
        for launch in launches:
            parts = tuple(zip(launch.buffers, launch.kernel.access, strict=True))
            for part, access in parts:
                end = part.offset + part.size
                if part.slot in sizes:
                    written = filled.setdefault(part.slot, _Filled(sizes[part.slot]))
                    if access is Access.READ and not written.holds(part.offset, end):
                        return None
                else:
                    given[part.slot] = max(given.get(part.slot, 0), end)
            for part, access in parts:
                if access is Access.READ:
                    continue
                if part.slot in sizes:
                    filled[part.slot].add(part.offset, part.offset + part.size)
                else:
                    rewritten.add(part.slot)
        if not launches or not all(one.holds(0, one.size) for one in filled.values()):
            return None
        slots = [*given, *sizes]
        written_slots = [n for n, slot in enumerate(slots) if slot in filled or slot in rewritten]
        return cls(tuple(launches), tuple(given.items()), tuple(made), tuple(written_slots))

    def oldest(self) -> Places:
        """Where the one lies that has not run for longest."""
        return min(self.bound, key=lambda places: self.bound[places].last_run)

    def forget(self, places: Places) -> None:
        """Let go of what is bound at these places, and of the notes of it at their pages."""
        bound = self.bound.pop(places)
        bound.count_launches()
        for page in bound.pages:
            page.groups.discard((self, places))


class _Filled:
    """Which bytes of a slot have been written so far."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._ranges: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        """These too."""
        kept: list[tuple[int, int]] = []
        for first, last in self._ranges:
            if last < start or first > end:
                kept.append((first, last))
            else:
                start, end = min(first, start), max(last, end)
        self._ranges = [*kept, (start, end)]

    def holds(self, start: int, end: int) -> bool:
        """Whether all of these have. The padding behind a slot's size counts as written."""
        end = min(end, self.size)
        return any(first <= start and last >= end for first, last in self._ranges)


def all_bound(sequences: Iterable[LaunchSequence]) -> Iterable[BoundSequence]:
    """Everything that is bound of these."""
    return (bound for sequence in sequences for bound in sequence.bound.values())
