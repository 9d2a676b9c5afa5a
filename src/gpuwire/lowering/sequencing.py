"""Which steps of a plan are queued in one call: those between two operations on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuwire.compute.sequences import LaunchSequence, SequenceLaunch
from gpuwire.lowering.steps import (
    AllocateStep,
    HostStep,
    KernelStep,
    ReleaseStep,
    ScalarWords,
    SequenceStep,
    Step,
)

MAX_LAUNCHES = 64
"""Of one sequence: the compute server submits about so many at once."""
MAX_HELD_BYTES = 16 * 1024 * 1024
"""A sequence holds all its memory until its end. What it could let go of before, for others of its
tensors to lie in, is no more than this."""


def sequenced(steps: Sequence[Step], max_immediate_bytes: int) -> tuple[Step, ...]:
    """The steps with those on the device in sequences, in the same order. Launches whose parameters
    are otherwise in each run and too long for immediates stand by themselves: the compute server
    looks for a place for them each time."""
    return tuple(_parts(steps, max_immediate_bytes))


def _parts(steps: Sequence[Step], max_immediate_bytes: int) -> Iterator[Step]:
    together: list[Step] = []
    sizes: dict[int, int] = {}
    held = launches = 0
    for step in steps:
        # A sequence makes what it writes: so the next one begins with its first allocation.
        full = launches == MAX_LAUNCHES and isinstance(step, AllocateStep | KernelStep)
        heavy = isinstance(step, AllocateStep) and held > MAX_HELD_BYTES
        alone = isinstance(step, HostStep) or (
            isinstance(step, KernelStep)
            and bool(step.scalars)
            and -(-step.kernel.params_words // 4) * 16 > max_immediate_bytes
        )
        if together and (full or heavy or alone):
            yield _sequence(together)
            together = []
            held = launches = 0
            sizes.clear()
        if alone:
            yield step
            continue
        match step:
            case KernelStep():
                launches += 1
            case AllocateStep(slot, size):
                sizes[slot] = size
            case ReleaseStep(slots):
                held += sum(sizes.get(slot, 0) for slot in slots)
        together.append(step)
    if together:
        yield _sequence(together)


def _sequence(steps: Sequence[Step]) -> SequenceStep:
    launches: list[SequenceLaunch] = []
    made: list[tuple[int, int]] = []
    scalars: list[tuple[ScalarWords, ...]] = []
    released: list[int] = []
    for step in steps:
        match step:
            case KernelStep(kernel, workgroups, buffers, words, makers):
                more = 4 * kernel.params_words - len(words) if makers else 0
                launches.append(SequenceLaunch(kernel, workgroups, buffers, words, more))
                if makers:
                    scalars.append(makers)
            case AllocateStep(slot, size):
                made.append((slot, size))
            case ReleaseStep(slots):
                released += slots
    sequence = LaunchSequence.of(launches, made)
    return SequenceStep(tuple(steps), sequence, tuple(scalars), tuple(released))
