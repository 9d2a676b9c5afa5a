"""Which kernel computes which node: a first assignment, node by node, readers first.

A view costs nothing and goes along with its readers. An elementwise node goes into the kernel of
its one reader. With several it is computed again in each if that costs less than storing it: it is
light, and reads no more than it would be read. Otherwise it becomes a kernel of its own, and
`merging` may find that its readers can join it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gpuwire.ir.graphs import NodeRef, ValueRef
from gpuwire.ir.tensors import Shape
from gpuwire.lowering.facts import DeviceFacts
from gpuwire.lowering.fusion.groups import Group, GroupKind, Role, is_value, role_of, weight
from gpuwire.lowering.fusion.rewriting import Flow
from gpuwire.lowering.plan_reduction import reduced_axes

MAX_WEIGHT = 128
"""Of one kernel: it bounds the source's size and the time to compile it (llvmpipe: 25 ms for ten
light steps, 57 ms for a hundred)."""
MAX_AGAIN = 6
"""Weight up to which a row of nodes is computed in each of several kernels."""
MAX_SPREAD = 1 << 26
"""Instructions that may be spent on computing a small operand again for each element of a larger
result: the time of a launch, on a GPU."""
MAX_SPREAD_SOFTWARE = 1 << 17


@dataclass(slots=True)
class _Draft:
    """A group in the making."""

    kind: GroupKind
    shape: Shape
    axes: tuple[int, ...] = ()
    members: set[int] = field(default_factory=set)
    reads: set[ValueRef] = field(default_factory=set)
    undecided: set[int] = field(default_factory=set)
    """Nodes that it reads, of which it is not known yet who computes them."""
    weight: int = 0


def grouped(flow: Flow, facts: DeviceFacts) -> tuple[Group, ...]:
    """The groups, in the order of their roots, one root each."""
    return _Grouping(flow, facts).run()


class _Grouping:
    def __init__(self, flow: Flow, facts: DeviceFacts) -> None:
        self._flow = flow
        self._spread = MAX_SPREAD_SOFTWARE if facts.is_software else MAX_SPREAD
        self._max_reads = facts.max_buffers - 2
        self._drafts: dict[int, _Draft] = {}
        self._inside: list[set[int]] = [set() for _ in flow.nodes]
        """Of each node: the groups that would compute it themselves."""
        self._in_memory: list[set[int]] = [set() for _ in flow.nodes]
        """Of each node: the groups that want it in memory; -1 for an output."""
        self._again = [0] * len(flow.nodes)
        """Of each node that is computed in several kernels: the weight of it and its readers."""

    def run(self) -> tuple[Group, ...]:
        flow = self._flow
        for output in flow.outputs:
            if isinstance(output, NodeRef):
                self._in_memory[output.index].add(-1)
        for number in reversed(range(len(flow.nodes))):
            match role_of(flow, flow.nodes[number]):
                case Role.VIEW:
                    self._pass_on(number)
                case Role.MAP:
                    self._place(number)
                case Role.REDUCTION:
                    node = flow.nodes[number]
                    shape = flow.type_of(node.operands[0]).shape
                    self._store(number, GroupKind.REDUCE, shape, reduced_axes(node))
                case Role.PRODUCT:
                    self._store(number, GroupKind.PRODUCT, flow.nodes[number].type.shape)
                case Role.SINGLE:
                    self._store(number, GroupKind.SINGLE, flow.nodes[number].type.shape)
        return tuple(self._finished(number) for number in sorted(self._drafts))

    def _finished(self, root: int) -> Group:
        draft = self._drafts[root]
        return Group(
            root,
            draft.kind,
            draft.shape,
            draft.axes,
            frozenset(draft.members),
            (root,),
            frozenset({root}) if draft.kind is GroupKind.REDUCE else frozenset(),
            frozenset(draft.reads),
        )

    def _pass_on(self, view: int) -> None:
        """A view's readers read what it is a view of."""
        for group in self._inside[view]:
            self._join(view, group)
        (operand,) = self._flow.nodes[view].operands
        if isinstance(operand, NodeRef):
            self._in_memory[operand.index] |= self._in_memory[view]
        elif is_value(operand):
            for group in self._in_memory[view] - {-1}:
                self._drafts[group].reads.add(operand)

    def _place(self, number: int) -> None:
        """Decide who computes an elementwise node."""
        readers = self._inside[number]
        inside = bool(readers) and not self._in_memory[number] and self._fits(number, readers)
        if inside and (len(readers) == 1 or self._is_cheap(number)):
            for group in readers:
                self._join(number, group)
            return
        self._store(number, GroupKind.MAP, self._flow.nodes[number].type.shape)

    def _fits(self, number: int, readers: set[int]) -> bool:
        node = self._flow.nodes[number]
        own, size = weight(node), node.type.size
        operands = {ref.index for ref in node.operands if isinstance(ref, NodeRef)}
        inputs = {ref for ref in node.operands if is_value(ref)} - {NodeRef(i) for i in operands}
        for reader in readers:
            draft = self._drafts[reader]
            elements = math.prod(draft.shape)
            count = len(draft.reads | inputs) + len((draft.undecided - {number}) | operands)
            if count > self._max_reads or draft.weight + own > MAX_WEIGHT:
                return False
            if own > 1 and elements > size and (elements - size) * own > self._spread:
                return False
        return True

    def _is_cheap(self, number: int) -> bool:
        """Whether to compute a node in each of several kernels: it weighs little with what reads
        it there, and what it reads is no more than itself."""
        flow = self._flow
        node = flow.nodes[number]
        full = [ref for ref in set(node.operands) if flow.type_of(ref).size == node.type.size > 1]
        again = weight(node) + max(
            (self._again[reader] for reader in self._readers(number)), default=0
        )
        if len(full) > 1 or again > MAX_AGAIN:
            return False
        self._again[number] = again
        return True

    def _readers(self, number: int) -> list[int]:
        ref = NodeRef(number)
        groups = self._inside[number]
        return [
            member
            for group in groups
            for member in self._drafts[group].members
            if ref in self._flow.nodes[member].operands
        ]

    def _join(self, number: int, group: int) -> None:
        """Compute a node in a group."""
        draft = self._drafts[group]
        draft.members.add(number)
        draft.undecided.discard(number)
        draft.weight += weight(self._flow.nodes[number])
        for ref in self._flow.nodes[number].operands:
            if isinstance(ref, NodeRef):
                self._inside[ref.index].add(group)
                draft.undecided.add(ref.index)
            elif is_value(ref):
                draft.reads.add(ref)

    def _store(
        self, number: int, kind: GroupKind, shape: Shape, axes: tuple[int, ...] = ()
    ) -> None:
        """Make a node the root of a group, which those who would have it inside read."""
        for group in self._inside[number] | (self._in_memory[number] - {-1}):
            self._drafts[group].reads.add(NodeRef(number))
            self._drafts[group].undecided.discard(number)
        draft = self._drafts[number] = _Draft(kind, shape, axes)
        if kind in (GroupKind.MAP, GroupKind.REDUCE):
            self._join(number, number)
            return
        draft.members.add(number)
        for ref in self._flow.nodes[number].operands:
            if isinstance(ref, NodeRef):
                self._in_memory[ref.index].add(number)
            elif is_value(ref):
                draft.reads.add(ref)
