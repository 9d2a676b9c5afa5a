"""By which plan a graph runs for the first time, when it may never run again.

A program's beginning, and what is cut off where it was idle, are graphs that run once. Fusing such
a graph may mean to compile kernels for it alone (5 to 50 ms each on a GPU, up to 600 ms on a
software adapter), while the kernels of its operations one by one serve every other graph too. Which
graphs will run again nobody knows, so what is compiled is kept small whichever way it goes: a graph
is fused at its first run unless compiling the kernels that its single operations lack costs less
than compiling those that fusing lacks, and what fusing has compiled in vain so far. The length of a
kernel's source stands for that cost.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from gpuwire.errors import LaunchError, OutOfMemory
from gpuwire.kernels.kernel import Kernel
from gpuwire.lowering.steps import KernelStep, Plan

MAX_MOVED_BYTES = 1 << 30
"""What single operations may read and write in place of one compilation: a few milliseconds of a
GPU's time …"""
MAX_MOVED_BYTES_SOFTWARE = 1 << 26
"""… and of a CPU's that plays one."""
MAX_BETS = 1024
"""Graphs fused at their first run of which it is not known yet whether there is a second."""


class FirstRuns:
    """The choices of one device."""

    def __init__(self, is_compiled: Callable[[Kernel], bool], *, is_software: bool) -> None:
        self._is_compiled = is_compiled
        self._most_moved = MAX_MOVED_BYTES_SOFTWARE if is_software else MAX_MOVED_BYTES
        self._bets: OrderedDict[int, tuple[Plan, int]] = OrderedDict()
        """By identity of the plan: it, and what was compiled for it."""
        self._in_vain = 0
        """Source that was compiled for fused graphs that have not run a second time."""

    def chosen(self, fused: Plan, plan_single: Callable[[], Plan]) -> Plan:
        """The plan for a first run: `fused`, or the one of single operations."""
        missing = self._missing(fused)
        if not missing or fused.waits:
            return fused
        try:
            single = plan_single()
        except (LaunchError, OutOfMemory):
            return fused
        if self._missing(single) < missing + self._in_vain and _moved(single) <= self._most_moved:
            return single
        self._bets[id(fused)] = (fused, missing)
        self._in_vain += missing
        if len(self._bets) > MAX_BETS:
            self._bets.popitem(last=False)
        return fused

    def ran_again(self, plan: Plan) -> None:
        """A graph runs a second time: what was compiled for it was not in vain."""
        _, missing = self._bets.pop(id(plan), (plan, 0))
        self._in_vain -= missing

    def _missing(self, plan: Plan) -> int:
        """Characters of source that are to be compiled for a plan."""
        kernels = {step.kernel for step in plan.steps if isinstance(step, KernelStep)}
        return sum(len(kernel.source) for kernel in kernels if not self._is_compiled(kernel))


def _moved(plan: Plan) -> int:
    """Bytes that a plan's launches bind: they read or write no more."""
    launches = [step for step in plan.steps if isinstance(step, KernelStep)]
    return sum(part.size for step in launches for part in step.buffers)
