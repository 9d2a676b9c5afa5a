"""Where a repeating sequence is best cut: at the head of the loop.

Nobody says where a loop begins; but at its head fewest values are under way from what was computed
before to what comes after, and each value under way is one that the server must keep and the client
must bind. Among places alike, the one where the lines of the program wrap back is the head.
"""

from __future__ import annotations

from gpuwire.client.graph_cache.ops import StreamOps
from gpuwire.ir.tensors import Scalar


def loop_head(ops: StreamOps, period: int) -> int:
    """The best of the last `period` places to cut, from behind the first of these ops to behind the
    last. The ops before them must be of the same sequence for another period."""
    count = len(ops)
    crossings = _crossings(ops, period)

    def worth(place: int) -> tuple[int, int, int]:
        # The op that is to come has the line of the one a period before.
        after = place if place < count else place - period
        wrap = ops.location(place - 1) - ops.location(after)
        return -crossings[place % period], wrap, place

    return max(range(count - period + 1, count + 1), key=worth)


def _crossings(ops: StreamOps, period: int) -> list[int]:
    """By place modulo the period: how many values are made before it and used after it, not
    counting those that are alike at all places."""
    count = len(ops)
    last_uses: dict[int, int] = {}
    for place in range(count - period, count):
        before = ops.operands[place - period]
        for number, operand in enumerate(ops.operands[place]):
            # A weight that stays is under way everywhere.
            if isinstance(operand, Scalar) or operand == before[number]:
                continue
            maker = ops.find(operand)
            if maker >= 0:
                phase = maker % period
                last_uses[phase] = max(last_uses.get(phase, 0), place - maker)
    changes = [0] * (period + 1)
    for phase, distance in last_uses.items():
        first, length = (phase + 1) % period, distance % period
        changes[first] += 1
        if first + length <= period:
            changes[first + length] -= 1
        else:
            changes[0] += 1
            changes[first + length - period] -= 1
    crossings = []
    total = 0
    for change in changes[:period]:
        total += change
        crossings.append(total)
    return crossings
