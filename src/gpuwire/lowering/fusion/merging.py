"""Kernels that become one.

Groups stand in an order in which they can run. Two may merge if the later one can move up to the
earlier one or the earlier one down to the later one, past groups that do not need it to stay; then
no group ever waits for itself. What a merged group hands on inside it must be read there element
for element, or row for row: registers cannot be indexed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from gpuwire.ir.graphs import NodeRef, ValueRef
from gpuwire.ir.operations import OpClass
from gpuwire.ir.tensors import Shape
from gpuwire.lowering.facts import DeviceFacts
from gpuwire.lowering.fusion.grouping import MAX_WEIGHT
from gpuwire.lowering.fusion.groups import (
    Group,
    GroupKind,
    node_reads,
    tensor_reads,
    weight_of,
)
from gpuwire.lowering.fusion.rewriting import Flow
from gpuwire.lowering.fusion.row_limits import rows_fit
from gpuwire.lowering.fusion.views import (
    VIEWS,
    Chain,
    View,
    broadcast_after,
    is_each_element,
    is_each_row,
    per_row,
)

MAX_SIBLINGS = 4
"""Groups that read the same, tried for each group."""


def merged(flow: Flow, groups: tuple[Group, ...], facts: DeviceFacts) -> tuple[Group, ...]:
    """The groups after all merging, in order, each knowing what it stores."""
    merger = _Merger(flow, groups, facts)
    for group in groups:
        merger.grow(group.position)
    return merger.finished()


class _Merger:
    def __init__(self, flow: Flow, groups: tuple[Group, ...], facts: DeviceFacts) -> None:
        self._flow = flow
        self._facts = facts
        self._groups = {group.position: group for group in groups}
        self._made_at = {root: group.position for group in groups for root in group.roots}
        self._read_by: dict[ValueRef, set[int]] = defaultdict(set)
        for group in groups:
            for ref in group.reads:
                self._read_by[ref].add(group.position)
        self._outputs = _stored_for_outputs(flow)
        self._chains: dict[Group, dict[int, set[Chain]]] = {}

    def grow(self, position: int) -> None:
        """Merge a group with others as long as any will."""
        group = self._groups.get(position)
        while group is not None:
            current, group = group, None
            for earlier in self._candidates(current):
                group = self._merge(earlier, current)
                if group is not None:
                    break

    def finished(self) -> tuple[Group, ...]:
        """What is left, in order."""
        return tuple(
            replace(group, stored=self._needed(group)) for _, group in sorted(self._groups.items())
        )

    # --- Who may be tried, and whether the order allows it ---

    def _candidates(self, group: Group) -> list[Group]:
        """The groups that make what it reads, the latest first; then those that read the same."""
        if group.kind in (GroupKind.SINGLE, GroupKind.PRODUCT):
            return []
        makers = {self._made_at[node] for node in node_reads(group)}
        siblings = {
            reader
            for ref in tensor_reads(self._flow, group, group.size)
            for reader in self._read_by[ref]
            if reader < group.position
        } - makers
        nearest = sorted(siblings, reverse=True)[:MAX_SIBLINGS]
        return [self._groups[place] for place in (*sorted(makers, reverse=True), *nearest)]

    def _place(self, earlier: Group, later: Group) -> int | None:
        """Where the two could stand as one."""
        needed = {self._made_at[node] for node in node_reads(later)} - {earlier.position}
        if all(place < earlier.position for place in needed):
            return earlier.position
        needing = {reader for root in earlier.roots for reader in self._read_by[NodeRef(root)]} - {
            later.position
        }
        if all(place > later.position for place in needing):
            return later.position
        return None

    def _needed(self, group: Group, other: Group | None = None) -> tuple[int, ...]:
        """The roots of a group, or of two together, that something else reads."""
        own = {group.position} | ({other.position} if other else set())
        roots = group.roots + (other.roots if other else ())
        return tuple(
            root for root in roots if root in self._outputs or self._read_by[NodeRef(root)] - own
        )

    def _merge(self, earlier: Group, later: Group) -> Group | None:
        """The two as one group, which takes their place; None if they stay two."""
        place = self._place(earlier, later)
        if place is None:
            return None
        kind = self._kind(earlier, later)
        if kind is None:
            return None
        shape, axes = earlier.shape, earlier.axes or later.axes
        rows = earlier.rows | later.rows
        if earlier.axes and later.kind is GroupKind.MAP and later.shape != earlier.shape:
            rows |= frozenset(later.roots)
        made = frozenset(map(NodeRef, earlier.roots + later.roots))
        group = Group(
            place,
            kind,
            shape,
            axes,
            earlier.members | later.members,
            earlier.roots + later.roots,
            rows,
            (earlier.reads | later.reads) - made,
            self._needed(earlier, later),
        )
        if kind is GroupKind.REDUCE and len(group.stored) > 1:  # Its kernel has one result.
            group = replace(group, kind=GroupKind.ROWS)
        if not self._allowed(group):
            return None
        self._replace(earlier, later, group)
        return group

    def _replace(self, earlier: Group, later: Group, group: Group) -> None:
        for old in (earlier, later):
            del self._groups[old.position]
            for ref in old.reads:
                self._read_by[ref].discard(old.position)
        self._groups[group.position] = group
        for ref in group.reads:
            self._read_by[ref].add(group.position)
        for root in group.roots:
            self._made_at[root] = group.position

    # --- Whether one kernel can do both ---

    def _kind(self, earlier: Group, later: Group) -> GroupKind | None:
        """What the two would be as one; None where no kernel is both, or where one would read what
        the other has at another place."""
        read = [root for root in earlier.roots if NodeRef(root) in later.reads]
        if not all(self._in_step(earlier, later, root) for root in read):
            return None
        reads = bool(read)
        match earlier.kind, later.kind:
            case GroupKind.MAP, GroupKind.MAP if earlier.shape == later.shape:
                return GroupKind.MAP
            case GroupKind.PRODUCT, GroupKind.MAP if earlier.shape == later.shape and reads:
                return GroupKind.PRODUCT
            case ((GroupKind.REDUCE | GroupKind.ROWS), GroupKind.MAP) if reads:
                if later.shape == earlier.shape:
                    return GroupKind.ROWS
                return earlier.kind if self._on_rows(earlier, later) else None
            case GroupKind.MAP, (GroupKind.REDUCE | GroupKind.ROWS):
                return GroupKind.ROWS if earlier.shape == later.shape and reads else None
            case ((GroupKind.REDUCE | GroupKind.ROWS), (GroupKind.REDUCE | GroupKind.ROWS)):
                same = earlier.shape == later.shape and earlier.axes == later.axes
                return GroupKind.ROWS if same else None
        return None

    def _on_rows(self, earlier: Group, later: Group) -> bool:
        """Whether an elementwise group works on results of a reduction, one for each row."""
        return later.shape in kept_shapes(earlier.shape, earlier.axes)

    def _in_step(self, earlier: Group, later: Group, root: int) -> bool:
        """Whether the later group reads a root of the earlier one, if at all, where it has it."""
        chains = self._chains_of(earlier, later).get(root, ())
        type_ = self._flow.nodes[root].type
        if root in earlier.rows:
            return all(
                is_each_row(type_.shape, chain, earlier.shape, earlier.axes) for chain in chains
            )
        return all(is_each_element(type_.shape, chain) for chain in chains)

    def _chains_of(self, earlier: Group, later: Group) -> dict[int, set[Chain]]:
        """Through which views the later group reads nodes, from the elements of the two."""
        if later.kind is GroupKind.MAP and later.shape != earlier.shape and earlier.axes:
            if not self._on_rows(earlier, later):
                return {}
            start = per_row(later.shape, earlier.shape, earlier.axes)
            return reading_chains(self._flow, later, start)
        if later not in self._chains:
            self._chains[later] = reading_chains(self._flow, later, ())
        return self._chains[later]

    def _allowed(self, group: Group) -> bool:
        """Whether the kernel would not be too large, and worth it."""
        flow = self._flow
        if len(group.reads) + len(group.stored) > self._facts.max_buffers:
            return False
        if weight_of(flow, group.members) > MAX_WEIGHT:
            return False
        sizes = [flow.nodes[root].type.dtype.itemsize for root in group.stored]
        match group.kind:
            case GroupKind.PRODUCT:  # Its lanes store element by element.
                sizes += [
                    flow.nodes[root].type.dtype.itemsize
                    for root in group.roots
                    if flow.nodes[root].definition.op_class is OpClass.MATMUL
                ]
                return min(sizes) >= 4
            case GroupKind.ROWS:
                return rows_fit(flow, group, self._facts)
        return True


def _stored_for_outputs(flow: Flow) -> set[int]:
    """The nodes whose memory outputs lie in."""
    found = set()
    for ref in flow.outputs:
        while isinstance(ref, NodeRef) and flow.nodes[ref.index].definition.name in VIEWS:
            found.add(ref.index)
            ref = flow.nodes[ref.index].operands[0]
        if isinstance(ref, NodeRef):
            found.add(ref.index)
    return found


def kept_shapes(shape: Shape, axes: tuple[int, ...]) -> tuple[Shape, Shape]:
    """The shapes of a reduction's result: with the reduced axes, and without."""
    return (
        tuple(1 if axis in axes else length for axis, length in enumerate(shape)),
        tuple(length for axis, length in enumerate(shape) if axis not in axes),
    )


def reading_chains(flow: Flow, group: Group, start: Chain) -> dict[int, set[Chain]]:
    """Through which views a group reads each node that is not its own. `start`: from the roots of
    an elementwise group to the elements that are gone through."""
    found: dict[int, set[Chain]] = defaultdict(set)
    seen: set[tuple[int, Chain]] = set()
    open_: list[tuple[ValueRef, Chain]] = []
    for root in group.roots:
        chain = start
        if root in group.rows:
            kept = flow.nodes[root].type.shape
            chain = per_row(kept, group.shape, group.axes)
        open_.append((NodeRef(root), chain))
    while open_:
        ref, chain = open_.pop()
        if not isinstance(ref, NodeRef):
            continue
        if ref.index not in group.members:
            found[ref.index].add(chain)
            continue
        if (ref.index, chain) in seen:
            continue
        seen.add((ref.index, chain))
        node = flow.nodes[ref.index]
        if node.definition.op_class is OpClass.REDUCTION:
            open_.append((node.operands[0], ()))
        elif node.definition.name in VIEWS:
            open_.append((node.operands[0], (View.of(node), *chain)))
        else:
            shape = node.type.shape
            for operand in node.operands:
                own = flow.type_of(operand).shape
                open_.append((operand, broadcast_after(own, shape, chain)))
    return found
