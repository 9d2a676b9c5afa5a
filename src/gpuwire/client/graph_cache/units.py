"""Units: runs of ops that came again and again, and following one as it comes once more."""

from __future__ import annotations

from gpuwire.client.graph_cache.ops import StreamOps
from gpuwire.client.graph_cache.relative import SCALAR, Content, RelativeOps
from gpuwire.ids import TensorId
from gpuwire.ir.operations import Operand
from gpuwire.ir.tensors import Scalar

_MISSES_MAX = 3


class Unit:
    """A run of ops in relative form, as it is expected to come again."""

    __slots__ = ("completions", "content", "inputs", "misses", "scalars", "seconds", "steps")

    def __init__(self, relative: RelativeOps, ops: StreamOps, start: int) -> None:
        """`relative` is that of the ops from `start` on."""
        self.content: Content = relative.content
        self.inputs = len(relative.inputs)
        self.steps: list[tuple[int, tuple[int, ...]]] = []
        """For each op its token and the references of its operands."""
        self.scalars: list[tuple[int, int]] = []
        """Where the scalars are: number of the op, number of the operand."""
        self.completions = 0
        self.misses = 0
        """How often it came almost, since it came the last time."""
        self.seconds: float | None = None
        """How long it took the program to record it the last time."""
        tokens, refs = relative.content
        place = 0
        for number, token in enumerate(tokens):
            arity = len(ops.operands[start + number])
            own = refs[place : place + arity]
            place += arity
            self.steps.append((token, own))
            self.scalars.extend([(number, k) for k, ref in enumerate(own) if ref == SCALAR])

    def __len__(self) -> int:
        return len(self.steps)

    def missed(self, length: int) -> bool:
        """It came up to its op number `length` and then otherwise. True if that has happened so
        often that it is not worth looking for."""
        if length >= len(self.steps) // 4:
            self.misses += 1
        return self.misses >= _MISSES_MAX

    def scalars_of(self, ops: StreamOps, start: int) -> tuple[Scalar, ...]:
        """The scalars of its run that begins at `start`."""
        return tuple([ops.operands[start + n][k] for n, k in self.scalars])  # type: ignore[misc]


class Match:
    """A unit that is coming again, from an op on."""

    __slots__ = ("length", "slots", "start", "unit")

    def __init__(self, unit: Unit, start: int) -> None:
        self.unit = unit
        self.start = start
        self.length = 0
        """Ops that have come."""
        self.slots: list[int] = [0] * unit.inputs
        """The tensor of each input; 0 while it has not come."""

    @property
    def is_complete(self) -> bool:
        return self.length == len(self.unit.steps)

    def take(self, ops: StreamOps, token: int, operands: tuple[Operand, ...]) -> bool:
        """Takes the next op, which lies in `ops` already; False if it is another than expected."""
        number = self.length
        expected, refs = self.unit.steps[number]
        if token != expected:
            return False
        start = self.start
        slots = self.slots
        outputs = ops.outputs
        for ref, operand in zip(refs, operands, strict=True):
            if ref >= 0:
                if ref != SCALAR and operand != outputs[start + ref]:
                    return False
                continue
            bound = slots[ref]  # ~0 is the last one, ~1 the one before: the row lies backwards.
            if bound != operand:
                assert not isinstance(operand, Scalar)
                if bound or self._makes(ops, operand):
                    return False
                slots[ref] = operand
        self.length = number + 1
        return True

    @property
    def inputs(self) -> tuple[TensorId, ...]:
        """The tensors bound, in order of the unit's inputs."""
        return tuple([TensorId(tensor) for tensor in reversed(self.slots)])

    def _makes(self, ops: StreamOps, tensor: TensorId) -> bool:
        return tensor >= ops.outputs[self.start] and ops.find(tensor, self.start) >= 0
