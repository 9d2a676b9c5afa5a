"""Which tensors of a plan share memory: the last pass of planning.

A tensor that nothing reads any longer leaves its memory to one that is made later. Whole pieces of
memory are handed on, never parts: the compute server keeps books of failures by piece, and asks
nothing more of a piece that was written whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from gpuwire.compute.sequences import BufferRange
from gpuwire.lowering.layouts import Placed
from gpuwire.lowering.steps import (
    AllocateStep,
    HostStep,
    KernelStep,
    ReleaseStep,
    Step,
)

MAX_WASTE = 4
"""A tensor takes over memory of up to so many times its size."""


@dataclass(slots=True)
class _Piece:
    """Memory in the making."""

    slot: int
    size: int
    is_free: bool = False


def with_shared_memory(
    steps: Sequence[Step], outputs: Collection[int], inputs: int
) -> tuple[tuple[Step, ...], dict[int, int]]:
    """The steps with as few allocations as lifetimes allow, and the slot in which each slot of
    before now lies. `outputs`: slots that outlive the plan; they may take over memory of just their
    size, and leave it to nobody. The first `inputs` slots are not the plan's own."""
    last_use: dict[int, int] = {}
    for number, step in enumerate(steps):
        for slot in slots_of(step):
            last_use[slot] = number
    ends: dict[int, list[int]] = {}
    for slot, number in last_use.items():
        if slot >= inputs and slot not in outputs:
            ends.setdefault(number, []).append(slot)
    pieces: dict[int, _Piece] = {}
    kept: list[Step] = []
    for number, step in enumerate(steps):
        if isinstance(step, AllocateStep):
            piece = _taken_over(pieces, step, is_output=step.slot in outputs)
            if piece is None:
                piece = _Piece(step.slot, step.size)
                kept.append(step)
            piece.is_free = False
            pieces[step.slot] = piece
        else:
            kept.append(step)
        for slot in ends.get(number, ()):
            pieces[slot].is_free = True
    sizes = {piece.slot: piece.size for piece in pieces.values()}
    places = {slot: piece.slot for slot, piece in pieces.items()}
    return tuple(_moved(step, places, sizes) for step in kept), places


def with_releases(steps: Sequence[Step], outputs: Collection[int]) -> tuple[Step, ...]:
    """The steps, and after each the letting go of memory that no later step and no output needs."""
    last_use: dict[int, int] = {}
    for number, step in enumerate(steps):
        for slot in slots_of(step):
            last_use[slot] = number
    ends: dict[int, list[int]] = {}
    for slot, number in last_use.items():
        if slot not in outputs and number + 1 < len(steps):
            ends.setdefault(number, []).append(slot)
    released: list[Step] = []
    for number, step in enumerate(steps):
        released.append(step)
        if number in ends:
            released.append(ReleaseStep(tuple(ends[number])))
    return tuple(released)


def _taken_over(pieces: dict[int, _Piece], step: AllocateStep, *, is_output: bool) -> _Piece | None:
    """The free piece that fits a tensor best. One that is somewhat too small is made larger."""
    free = {piece.slot: piece for piece in pieces.values() if piece.is_free}.values()
    if is_output:
        return next((piece for piece in free if piece.size == step.size), None)
    enough = [p for p in free if step.size <= p.size <= MAX_WASTE * step.size]
    if enough:
        return min(enough, key=lambda piece: piece.size)
    nearly = [p for p in free if p.size < step.size <= MAX_WASTE * p.size]
    if not nearly:
        return None
    piece = max(nearly, key=lambda piece: piece.size)
    piece.size = step.size
    return piece


def slots_of(step: Step) -> list[int]:
    """The slots that a step touches."""
    match step:
        case AllocateStep():
            return [step.slot]
        case KernelStep():
            return [part.slot for part in step.buffers]
        case HostStep():
            read = [operand.slot for operand in step.operands if isinstance(operand, Placed)]
            return [*read, step.result.slot]
    return []


def _moved(step: Step, places: dict[int, int], sizes: dict[int, int]) -> Step:
    match step:
        case AllocateStep():
            return replace(step, size=sizes[step.slot])
        case KernelStep():
            buffers = tuple(
                BufferRange(places.get(part.slot, part.slot), part.offset, part.size)
                for part in step.buffers
            )
            return replace(step, buffers=buffers)
        case HostStep():
            return replace(
                step,
                operands=tuple(
                    moved(operand, places) if isinstance(operand, Placed) else operand
                    for operand in step.operands
                ),
                result=moved(step.result, places),
            )
    return step


def moved(placed: Placed, places: dict[int, int]) -> Placed:
    """A tensor where its slot now lies."""
    slot = places.get(placed.slot, placed.slot)
    return placed if slot == placed.slot else replace(placed, slot=slot)
