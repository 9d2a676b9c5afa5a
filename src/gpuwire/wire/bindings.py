"""What changes between two runs of a graph, and how little of it needs to be said.

A run binds tensor ids to the graph's inputs and outputs, numbers to its scalars, and names the
tensors that die with it. In a loop nearly all of that follows from the run before: a weight keeps
its id, a value carried along is as far behind the run's own tensors as it was the last time. So
both sides keep each graph's last run, and a run says only what is otherwise:

- `base`: the id that the other ids are told against, as a rule the first output of the run. Left
  out, it is as far from the last one as that was from the one before.
- `inputs`, `dropped`: one code for each tensor. An even code is twice an id; an odd one is twice
  the distance back from `base`, plus one. Left out, the codes are those of the run before.
- `outputs`: each output's distance from `base`. Left out, they are those of the run before.
- `scalars`: number and value of those that changed; one value of many is told once.

A step of a settled loop is then four bytes, however many tensors it takes (`RunGraph`, encoded).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from operator import add
from typing import cast

from gpuwire.errors import MalformedMessage
from gpuwire.ids import GraphId, StreamId, TensorId
from gpuwire.ir.tensors import Scalar
from gpuwire.wire.fields import I64_HIGHEST
from gpuwire.wire.messages import Buffer, RunGraph


@dataclass(frozen=True, slots=True)
class Bindings:
    """What one run binds, spelled out."""

    base: TensorId
    inputs: tuple[TensorId, ...]
    outputs: tuple[TensorId, ...]
    dropped: tuple[TensorId, ...]
    """Tensors that nothing uses after this run."""
    scalars: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class LastRun:
    """What both sides keep of a graph's last run."""

    base: TensorId
    stride: int
    """How far `base` was from the one before."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dropped: tuple[int, ...]
    scalars: tuple[Scalar, ...]

    def binds_as(self, before: LastRun | None) -> bool:
        """Whether nothing but `base` was told: codes and scalars are the very ones of `before`."""
        return (
            before is not None
            and self.inputs is before.inputs
            and self.outputs is before.outputs
            and self.dropped is before.dropped
            and self.scalars is before.scalars
        )


DROPS_MAX = 1024
"""Tensors that a run drops along; more go in a task of their own."""


def most_run_bytes(inputs: int, outputs: int, scalars: int) -> int:
    """The most that a run of a graph takes on the wire, whatever it binds, besides a definition:
    ten bytes an id, nineteen a scalar."""
    return 64 + 10 * (inputs + outputs + DROPS_MAX) + 19 * scalars


def run_of(
    stream: StreamId,
    graph: GraphId,
    bindings: Bindings,
    last: LastRun | None,
    definition: Buffer | None = None,
) -> tuple[RunGraph, LastRun]:
    """The task that runs a graph with these bindings after its run `last`, and what to keep."""
    base = bindings.base
    if last is None:
        # A value made just before is likely to be one step behind the next time too.
        inputs = _distances(bindings.inputs, base)
        dropped = _distances(bindings.dropped, base)
        outputs = tuple([tensor - base for tensor in bindings.outputs])
        run = RunGraph(
            stream,
            graph,
            tuple(enumerate(bindings.scalars)),
            base,
            dropped or None,
            inputs,
            outputs,
            definition,
        )
        return run, LastRun(base, 0, inputs, outputs, dropped, bindings.scalars)
    inputs = _codes(bindings.inputs, base, last.inputs, last.base)
    dropped = _codes(bindings.dropped, base, last.dropped, last.base)
    outputs = tuple([tensor - base for tensor in bindings.outputs])
    scalars = last.scalars
    changed: tuple[tuple[int, Scalar], ...] = ()
    if not all(map(_is_same, bindings.scalars, scalars)):
        scalars = bindings.scalars
        pairs = enumerate(zip(scalars, last.scalars, strict=True))
        changed = tuple([(n, new) for n, (new, old) in pairs if not _is_same(new, old)])
    run = RunGraph(
        stream,
        graph,
        changed,
        None if base == last.base + last.stride else base,
        None if dropped == last.dropped else dropped,
        None if inputs == last.inputs else inputs,
        None if outputs == last.outputs else outputs,
        definition,
    )
    return run, LastRun(base, base - last.base, inputs, outputs, dropped, scalars)


def bindings_of(run: RunGraph, last: LastRun | None) -> tuple[Bindings, LastRun]:
    """What a task binds after the graph's run `last`, and what to keep. `MalformedMessage` for a
    run that leaves out what is not known, and for ids that are none."""
    if last is None:
        if run.base is None or run.inputs is None or run.outputs is None:
            raise MalformedMessage(
                f"graph {run.graph}: its first run must bind everything", what="RunGraph"
            )
        last = LastRun(run.base, 0, (), (), (), ())
        stride = 0
        base = run.base
    else:
        base = TensorId(last.base + last.stride) if run.base is None else run.base
        stride = base - last.base
    inputs = last.inputs if run.inputs is None else run.inputs
    outputs = last.outputs if run.outputs is None else run.outputs
    dropped = last.dropped if run.dropped is None else run.dropped
    scalars = _patched(last.scalars, run)
    bindings = Bindings(
        base,
        _tensors(inputs, base),
        cast("tuple[TensorId, ...]", tuple(map(add, outputs, repeat(base)))),
        _tensors(dropped, base),
        scalars,
    )
    for ids in (bindings.inputs, bindings.outputs, bindings.dropped, (base,)):
        if ids and not (min(ids) >= 1 and max(ids) <= I64_HIGHEST):
            raise MalformedMessage(f"graph {run.graph}: wanted tensor ids", what="RunGraph")
    return bindings, LastRun(base, stride, inputs, outputs, dropped, scalars)


def _distances(tensors: tuple[TensorId, ...], base: int) -> tuple[int, ...]:
    return tuple([2 * (base - tensor) + 1 for tensor in tensors])


def _codes(
    tensors: tuple[TensorId, ...], base: int, last: tuple[int, ...], last_base: int
) -> tuple[int, ...]:
    """Codes for tensors, those of the last run wherever they still say it."""
    codes = []
    for tensor, code in zip(tensors, last, strict=False):
        if (code >> 1 if not code & 1 else base - (code >> 1)) == tensor:
            codes.append(code)
        elif code & 1 and last_base - (code >> 1) == tensor:
            codes.append(2 * tensor)  # It stands still.
        else:
            codes.append(2 * (base - tensor) + 1)
    if len(tensors) > len(last):
        codes.extend(_distances(tensors[len(last) :], base))
    return tuple(codes)


def _tensors(codes: tuple[int, ...], base: int) -> tuple[TensorId, ...]:
    ids = tuple([base - (code >> 1) if code & 1 else code >> 1 for code in codes])
    return cast("tuple[TensorId, ...]", ids)


def _patched(scalars: tuple[Scalar, ...], run: RunGraph) -> tuple[Scalar, ...]:
    if not run.scalars:
        return scalars
    patched = list(scalars)
    for number, scalar in run.scalars:
        if number < len(patched):
            patched[number] = scalar
        elif number == len(patched) and run.definition is not None:
            patched.append(scalar)
        else:
            raise MalformedMessage(
                f"graph {run.graph}: it has {len(patched)} scalars, and number {number} is bound",
                what="RunGraph",
            )
    return tuple(patched)


def _is_same(new: Scalar, old: Scalar) -> bool:
    """Whether two scalars are the same to the bit, as far as Python can tell: 0.0 is not -0.0."""
    if new is old:
        return True
    value = new.value
    if value != old.value or new.dtype is not old.dtype:
        return False
    if value.__class__ is complex:
        return repr(value) == repr(old.value)
    return bool(value) or repr(value) == repr(old.value)
