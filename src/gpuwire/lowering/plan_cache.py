"""Plans that were made before, by graph and input layouts; the least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuwire.ir.graphs import OpGraph
from gpuwire.lowering.planner import Layout
from gpuwire.lowering.steps import Plan
from gpuwire.lowering.values import Lie

Layouts = tuple[Layout, ...]

MAX_STEPS = 1 << 18
"""Of all plans together, about a KiB each."""
MAX_TWINS = 8
"""Objects of one graph that are known by identity: of as many sessions that run it in turn."""


@dataclass(slots=True)
class _Known:
    plans: OrderedDict[Layouts, Plan] = field(default_factory=OrderedDict)
    twins: list[OpGraph] = field(default_factory=list)
    """Equal graphs, each an object of its own, which is kept alive: an identity is only an identity
    while the object lives."""
    last: Sequence[Lie] = ()
    """How the inputs lay the last time, and the plan for that."""
    last_plan: Plan | None = None


class PlanCache:
    """A bounded number of graphs, each with a bounded number of plans, and a bounded number of
    steps in all of them. The graph that is to run now stays whatever its size.

    Hashing a graph costs a microsecond for each of its nodes; a graph object that was asked for
    before is therefore also found by its identity, and inputs that lie as they did the last time
    are compared and not hashed.
    """

    def __init__(self, max_graphs: int, max_plans: int, max_steps: int = MAX_STEPS) -> None:
        self._max_graphs = max_graphs
        self._max_plans = max_plans
        self._max_steps = max_steps
        self._steps = 0
        self._twins: dict[int, _Known] = {}
        self._graphs: dict[OpGraph, _Known] = {}
        self._recent: OrderedDict[int, _Known] = OrderedDict()
        """By identity of the record, the one that was asked for last at the end."""

    def again(self, graph: OpGraph, inputs: Sequence[Lie]) -> Plan | None:
        """The plan by which this graph object ran the last time, if its inputs lie as they did
        then; their types are the graph's then."""
        known = self._twins.get(id(graph))
        if known is None or known.last_plan is None or known.last != inputs:
            return None
        known.last = inputs  # Compared by identity the next time, if they are the same objects.
        self._recent.move_to_end(id(known))
        return known.last_plan

    def find(self, graph: OpGraph, layouts: Layouts) -> Plan | None:
        """The plan, if it is known."""
        known = self._known(graph)
        if known is None:
            return None
        self._recent.move_to_end(id(known))
        plan = known.plans.get(layouts)
        if plan is not None:
            known.plans.move_to_end(layouts)
        return plan

    def add(self, graph: OpGraph, layouts: Layouts, plan: Plan) -> None:
        """Keep a plan, in the place of one for the same if there is one; the oldest go."""
        known = self._known(graph)
        if known is None:
            known = self._graphs[graph] = _Known()
            self._recent[id(known)] = known
            self._name(known, graph)
        replaced = known.plans.pop(layouts, None)
        if replaced is not None:
            self._steps -= len(replaced.steps)
        known.plans[layouts] = plan
        known.last_plan = None
        self._steps += len(plan.steps)
        if len(known.plans) > self._max_plans:
            _, unused = known.plans.popitem(last=False)
            self._steps -= len(unused.steps)
        self._recent.move_to_end(id(known))
        while len(self._recent) > 1 and (
            len(self._graphs) > self._max_graphs or self._steps > self._max_steps
        ):
            self._forget_oldest()

    def remember(self, graph: OpGraph, inputs: Sequence[Lie], plan: Plan) -> None:
        """That a graph which is known ran by this plan, with inputs that lie so."""
        known = self._twins[id(graph)]
        known.last, known.last_plan = inputs, plan

    def __len__(self) -> int:
        return len(self._graphs)

    def _forget_oldest(self) -> None:
        _, oldest = self._recent.popitem(last=False)
        self._steps -= sum(len(plan.steps) for plan in oldest.plans.values())
        del self._graphs[oldest.twins[0]]
        for twin in oldest.twins:
            del self._twins[id(twin)]

    def _known(self, graph: OpGraph) -> _Known | None:
        known = self._twins.get(id(graph))
        if known is None:
            known = self._graphs.get(graph)
            if known is not None:
                self._name(known, graph)
        return known

    def _name(self, known: _Known, graph: OpGraph) -> None:
        """Find `known` by this graph object too. The first twin stays: it is the table's key."""
        if len(known.twins) == MAX_TWINS:
            del self._twins[id(known.twins.pop(1))]
        known.twins.append(graph)
        self._twins[id(graph)] = known
