"""A loop is cut at its head, wherever the repetition is noticed."""

from __future__ import annotations

import pytest

from gpuwire.client.graph_cache.boundaries import loop_head
from gpuwire.client.graph_cache.ops import StreamOps
from gpuwire.client.signatures import Signature
from gpuwire.ids import LocationId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import TensorType

VECTOR = TensorType(dt.float32, (2,))
ADD = Signature(1, OPERATIONS["add"], NO_ATTRIBUTES, (VECTOR, VECTOR), VECTOR)


class Recorded:
    """Ops of a loop; a tensor is its id, ids below 100 are made elsewhere."""

    def __init__(self) -> None:
        self.ops = StreamOps()

    def add(self, left: int, right: int, line: int) -> int:
        made = 100 + len(self.ops)
        operands = (TensorId(left), TensorId(right))
        self.ops.append(ADD, operands, TensorId(made), LocationId(line))
        return made


def training_loop(steps: int, more: int) -> tuple[StreamOps, int]:
    """Two weights, a forward and a backward pass; `more` ops of another step. The ops of a step."""
    recorded = Recorded()
    w1, w2 = 1, 2
    length = 8
    for step in range(steps + 1):
        if step == steps and not more:
            break
        a = recorded.add(9, w1, 11)
        b = recorded.add(a, w2, 12)
        c = recorded.add(b, 8, 13)
        g2 = recorded.add(c, a, 14)
        g1 = recorded.add(c, w2, 15)
        g1 = recorded.add(g1, 9, 16)
        w2 = recorded.add(w2, g2, 17)
        w1 = recorded.add(w1, g1, 18)
    surplus = length - more if more else 0
    for column in (
        recorded.ops.tokens,
        recorded.ops.operands,
        recorded.ops.outputs,
        recorded.ops.signatures,
    ):
        del column[len(column) - surplus :]
    return recorded.ops, length


@pytest.mark.parametrize("more", range(8))
def test_the_head_of_a_training_loop_is_where_fewest_values_are_under_way(more: int) -> None:
    ops, length = training_loop(4, more)
    assert loop_head(ops, length) % length == 0


@pytest.mark.parametrize("more", range(3))
def test_where_all_places_are_alike_the_lines_wrap_at_the_head(more: int) -> None:
    recorded = Recorded()
    h = 1
    for _ in range(5):
        for line in (21, 22, 23):
            h = recorded.add(h, 2, line)
    for line in (21, 22, 23)[:more]:
        h = recorded.add(h, 2, line)
    assert loop_head(recorded.ops, 3) % 3 == 0
    assert loop_head(recorded.ops, 3) > len(recorded.ops) - 3


@pytest.mark.parametrize("older", range(3))
def test_a_value_that_stays_is_under_way_everywhere(older: int) -> None:
    """A weight made by an op some time ago counts at no place."""
    recorded = Recorded()
    weight = recorded.add(1, 2, 5)
    for _ in range(older):
        recorded.add(1, 2, 6)
    h = 3
    for _ in range(5):
        for line in (21, 22, 23):
            h = recorded.add(h, weight if line == 22 else 4, line)
    assert (loop_head(recorded.ops, 3) - 1 - older) % 3 == 0
