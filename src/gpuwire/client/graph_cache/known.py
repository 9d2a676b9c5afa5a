"""The graphs of one session that the server was told of."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from gpuwire.client.graph_cache.relative import Content
from gpuwire.ids import GraphId
from gpuwire.wire.bindings import LastRun

GRAPHS_MAX = 1024
GRAPHS_BYTES = 5 * 1024 * 1024 // 2
"""Of definitions. These are a server's bounds too (`[server]` max_graphs, max_graph_bytes, which
counts memory, 50 times as much); one that keeps fewer asks again."""
_GIVEN_UP_MAX = 4096
_GIVEN_UP_BYTES = 32 * 1024 * 1024
_VARIANTS_MAX = 8


@dataclass(slots=True, eq=False)
class KnownGraph:
    """A registered graph. Two graphs of one content differ in their outputs."""

    id: GraphId
    content: Content
    mask: int
    """Bit k: op k is an output."""
    outputs: tuple[int, ...]
    definition: bytes
    bound_bytes: int = 0
    """What a run takes on the wire with everything bound anew."""
    last: LastRun | None = None


@dataclass(slots=True, eq=False)
class _GivenUp:
    """Definitions that may still be asked for: runs of them are under way, or were."""

    definitions: OrderedDict[GraphId, bytes] = field(default_factory=OrderedDict)
    size: int = 0

    def add(self, graph: KnownGraph) -> None:
        self.definitions[graph.id] = graph.definition
        self.size += len(graph.definition)
        while len(self.definitions) > _GIVEN_UP_MAX or self.size > _GIVEN_UP_BYTES:
            _, definition = self.definitions.popitem(last=False)
            self.size -= len(definition)


class KnownGraphs:
    """A bounded number of graphs, of bounded size; the one not run for longest goes first.

    The server's table is kept in the same order, by the same runs. A graph that went here is never
    run again under its id.
    """

    def __init__(self, max_graphs: int = GRAPHS_MAX, max_bytes: int = GRAPHS_BYTES) -> None:
        self._max_graphs = max_graphs
        self._max_bytes = max_bytes
        self._graphs: OrderedDict[GraphId, KnownGraph] = OrderedDict()
        self._variants: dict[Content, list[KnownGraph]] = {}
        self._given_up = _GivenUp()
        self._bytes = 0
        self._next_id = 1
        self.evictions = 0
        """Graphs given up so far."""

    def __len__(self) -> int:
        return len(self._graphs)

    def find(self, content: Content, mask: int) -> KnownGraph | None:
        """A graph of that content with at least those outputs, and few more: a value dropped a
        little later than the last time is no reason for another graph."""
        best, least = None, 0
        variants = self._variants.get(content, ())
        spare = mask.bit_count() + 4 if len(variants) < _VARIANTS_MAX else len(content[0])
        for graph in variants:
            if graph.mask == mask:
                return graph
            surplus = (graph.mask & ~mask).bit_count()
            if not mask & ~graph.mask and surplus <= spare and (best is None or surplus < least):
                best, least = graph, surplus
        return best

    def mask_to_register(self, content: Content, mask: int) -> int:
        """With which outputs to register a graph that `find` did not find: where they come out
        different again and again, with all that they ever were."""
        variants = self._variants.get(content, ())
        if len(variants) >= _VARIANTS_MAX:
            for graph in variants:
                mask |= graph.mask
        return mask

    def new_id(self) -> GraphId:
        """An id that no graph had."""
        self._next_id += 1
        return GraphId(self._next_id - 1)

    def ran(self, graph: KnownGraph) -> None:
        """Takes note of a run, the first of which makes a graph known."""
        if graph.id in self._graphs:
            self._graphs.move_to_end(graph.id)
            return
        self._graphs[graph.id] = graph
        self._variants.setdefault(graph.content, []).append(graph)
        self._bytes += len(graph.definition)
        while len(self._graphs) > self._max_graphs or self._bytes > self._max_bytes:
            if len(self._graphs) == 1:
                break
            self._give_up(self._graphs.popitem(last=False)[1])

    def definition(self, graph: GraphId) -> bytes | None:
        """The definition of a graph, also of one given up not long ago."""
        known = self._graphs.get(graph)
        return known.definition if known is not None else self._given_up.definitions.get(graph)

    def _give_up(self, graph: KnownGraph) -> None:
        self._bytes -= len(graph.definition)
        self.evictions += 1
        self._given_up.add(graph)
        variants = self._variants[graph.content]
        variants.remove(graph)
        if not variants:
            del self._variants[graph.content]
