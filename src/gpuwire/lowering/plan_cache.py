"""Plans that were made before, by graph and input layouts; the least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from gpuwire.ir.graphs import OpGraph
from gpuwire.lowering.planner import Layout
from gpuwire.lowering.steps import Plan

Layouts = tuple[Layout, ...]


@dataclass(slots=True)
class _Known:
    graph: OpGraph
    plans: OrderedDict[Layouts, Plan]


class PlanCache:
    """A bounded number of graphs, each with a bounded number of plans.

    Hashing a graph costs a microsecond for each of its nodes; the graph object that was asked for
    last is therefore also found by its identity.
    """

    def __init__(self, max_graphs: int, max_plans: int) -> None:
        self._max_graphs = max_graphs
        self._max_plans = max_plans
        self._by_identity: dict[int, _Known] = {}
        self._graphs: OrderedDict[OpGraph, _Known] = OrderedDict()

    def find(self, graph: OpGraph, layouts: Layouts) -> Plan | None:
        """The plan, if it is known."""
        known = self._by_identity.get(id(graph))
        if known is None:
            known = self._graphs.get(graph)
            if known is None:
                return None
            self._name(known, graph)
        self._graphs.move_to_end(known.graph)
        plan = known.plans.get(layouts)
        if plan is not None:
            known.plans.move_to_end(layouts)
        return plan

    def add(self, graph: OpGraph, layouts: Layouts, plan: Plan) -> None:
        """Keep a plan; the oldest go."""
        known = self._graphs.get(graph)
        if known is None:
            known = self._graphs[graph] = _Known(graph, OrderedDict())
            self._by_identity[id(graph)] = known
        known.plans[layouts] = plan
        if len(known.plans) > self._max_plans:
            known.plans.popitem(last=False)
        if len(self._graphs) > self._max_graphs:
            _, oldest = self._graphs.popitem(last=False)
            del self._by_identity[id(oldest.graph)]

    def __len__(self) -> int:
        return len(self._graphs)

    def _name(self, known: _Known, graph: OpGraph) -> None:
        """Find `known` by this graph object from now on, which it keeps alive: an identity is
        only an identity while the object lives."""
        del self._by_identity[id(known.graph)]
        plans = self._graphs.pop(known.graph)
        known.graph = graph
        self._graphs[graph] = plans
        self._by_identity[id(graph)] = known
