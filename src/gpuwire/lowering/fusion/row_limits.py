"""When rows are worth a kernel of their own.

One workgroup (an invocation, where rows are short or the device is a CPU) goes through a row as
often as there are reductions in it, and once more. That saves passes over memory if there are rows
enough to keep the device busy, or if all is so small that launches are what costs.
"""

from __future__ import annotations

import math

from gpuwire.ir.attributes import ArgReduceAttributes
from gpuwire.lowering.facts import DeviceFacts
from gpuwire.lowering.fusion.groups import Group
from gpuwire.lowering.fusion.rewriting import Flow

SMALL = 1 << 14
"""Elements below which one launch less is worth more than filling the device."""
FEWEST_ROWS = 64
"""Rows for workgroups to be enough, on a GPU and on a CPU's cores."""
FEWEST_LANES = 1 << 15
"""Rows for invocations to be enough, where rows are not contiguous and each has its own."""
LONGEST_ROW = 1 << 15
"""Elements; an invocation by itself may not loop longer."""


def rows_fit(flow: Flow, group: Group, facts: DeviceFacts) -> bool:
    """Whether a group's rows go into one kernel."""
    shape, axes = group.shape, group.axes
    length = math.prod(shape[axis] for axis in axes)
    rows = group.size // length
    if length == 1 or length > LONGEST_ROW:
        return False
    for member in group.members:
        if isinstance(flow.nodes[member].attributes, ArgReduceAttributes):
            return False
    trailing = axes == tuple(range(len(shape) - len(axes), len(shape)))
    for root in group.stored:
        narrow = flow.nodes[root].type.dtype.itemsize < 4
        if narrow and (root in group.rows or not trailing or length % 4):
            return False
    if group.size <= SMALL:
        return True
    if facts.is_software:
        return rows >= FEWEST_ROWS
    return rows >= (FEWEST_ROWS if trailing else FEWEST_LANES)
