"""Groups become launches: the pass that knows where operands lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuwire.ir.graphs import InputRef, Node, NodeRef, ScalarRef, ValueRef
from gpuwire.ir.operations import OpClass
from gpuwire.ir.tensors import TensorType
from gpuwire.kernels.programs import Result
from gpuwire.lowering.builder import Operand, PlanBuilder
from gpuwire.lowering.fusion.groups import Group, GroupKind
from gpuwire.lowering.fusion.merging import kept_shapes
from gpuwire.lowering.fusion.rewriting import Flow
from gpuwire.lowering.fusion.tracing import Symbol, Tracer
from gpuwire.lowering.fusion.views import VIEWS, Chain, View, per_row
from gpuwire.lowering.layouts import Placed
from gpuwire.lowering.plan_elementwise import plan_copy, plan_program
from gpuwire.lowering.plan_matmul import plan_fused_matmul
from gpuwire.lowering.plan_reduction import Epilogue, Prologue, plan_fused_reduction
from gpuwire.lowering.plan_rows import plan_rows

PlanNode = Callable[[PlanBuilder, Node, list[Operand]], Placed]
"""Plans one node by itself."""


def plan_groups(
    builder: PlanBuilder,
    flow: Flow,
    groups: Sequence[Group],
    inputs: Sequence[Placed],
    plan_node: PlanNode,
) -> list[Placed]:
    """Launches for all groups; where the outputs lie."""
    return _Planning(builder, flow, inputs, plan_node).run(groups)


class _Planning:
    def __init__(
        self, builder: PlanBuilder, flow: Flow, inputs: Sequence[Placed], plan_node: PlanNode
    ) -> None:
        self._builder = builder
        self._flow = flow
        self._plan_node = plan_node
        self._made: dict[ValueRef, Placed] = {
            InputRef(number): placed for number, placed in enumerate(inputs)
        }

    def run(self, groups: Sequence[Group]) -> list[Placed]:
        flow = self._flow
        for group in groups:
            self._builder.nodes = tuple(sorted(flow.origins[m] for m in group.members))
            self._plan(group)
        self._builder.nodes = ()
        outputs = []
        for ref in flow.outputs:
            operand = self._in_memory(ref)
            if isinstance(operand, ScalarRef):
                operand = plan_copy(self._builder, operand, flow.type_of(ref))
            outputs.append(operand)
        return outputs

    def _plan(self, group: Group) -> None:
        match group.kind:
            case GroupKind.MAP:
                self._plan_map(group)
            case GroupKind.REDUCE:
                self._plan_reduce(group)
            case GroupKind.ROWS:
                self._plan_rows(group)
            case GroupKind.PRODUCT:
                self._plan_product(group)
            case GroupKind.SINGLE:
                (number,) = group.roots
                node = self._flow.nodes[number]
                operands = [self._in_memory(ref) for ref in node.operands]
                self._made[NodeRef(number)] = self._plan_node(self._builder, node, operands)

    # --- Where values lie ---

    def _in_memory(self, ref: ValueRef) -> Operand:
        """A value as an operand: memory, or the scalar that it is."""
        views: list[NodeRef] = []
        base = ref
        while base not in self._made and isinstance(base, NodeRef):
            node = self._flow.nodes[base.index]
            assert node.definition.name in VIEWS
            views.append(base)
            base = node.operands[0]
        found: Operand = base if isinstance(base, ScalarRef) else self._made[base]
        for view in reversed(views):
            node = self._flow.nodes[view.index]
            if isinstance(found, ScalarRef):
                found = plan_copy(self._builder, found, node.type)
            else:
                found = self._seen(found, (View.of(node),))
            self._made[view] = found
        return found

    def _locate(self, ref: ValueRef, chain: Chain) -> Placed:
        return self._seen(self._made[ref], chain)

    def _seen(self, placed: Placed, chain: Chain) -> Placed:
        """A tensor through views; copied on the way where strides cannot say it."""
        for view in chain:
            found = view.seen(placed)
            if found is None:
                found = view.seen(plan_copy(self._builder, placed, placed.type))
                assert found is not None
            placed = found
        return placed

    def _results(
        self, tracer: Tracer, stored: Sequence[int], symbols: Sequence[Symbol]
    ) -> tuple[Result, ...]:
        return tuple(
            Result(tracer.register(symbol), self._flow.nodes[root].type.dtype)
            for root, symbol in zip(stored, symbols, strict=True)
        )

    def _keep(self, stored: Sequence[int], made: Sequence[Placed]) -> None:
        for root, placed in zip(stored, made, strict=True):
            self._made[NodeRef(root)] = placed

    # --- The kinds of groups ---

    def _plan_map(self, group: Group) -> None:
        tracer = Tracer(self._flow, group.members, self._locate)
        symbols = [tracer.value(NodeRef(root), ()) for root in group.stored]
        results = self._results(tracer, group.stored, symbols)
        made = plan_program(self._builder, tracer.steps, tracer.operands, group.shape, results)
        self._keep(group.stored, made)

    def _plan_reduce(self, group: Group) -> None:
        flow = self._flow
        (root,) = group.stored
        (reduction,) = (
            member
            for member in group.members
            if flow.nodes[member].definition.op_class is OpClass.REDUCTION
        )
        node = flow.nodes[reduction]
        source = node.operands[0]
        before = Tracer(flow, group.members, self._locate)
        symbol = before.value(source, ())
        dtype = flow.type_of(source).dtype
        steps, operands = before.steps, before.operands
        if not steps and len(operands) == 1:
            operands = [self._as_tensor(operands[0], flow.type_of(source))]
        assert before.register(symbol) == len(operands) + len(steps) - 1
        epilogue = None
        if root != reduction:
            epilogue = self._epilogue(group, reduction, root)
        prologue = Prologue(tuple(operands), steps, dtype)
        made = plan_fused_reduction(self._builder, node, group.shape, prologue, epilogue)
        if epilogue is not None:
            type_ = flow.nodes[root].type
            viewed = View("reshape", type_.shape).seen(made)
            assert viewed is not None
            made = viewed
        self._made[NodeRef(root)] = made

    def _as_tensor(self, operand: Operand, type_: TensorType) -> Placed:
        """A scalar that is reduced is put into memory."""
        if isinstance(operand, Placed):
            return operand
        return plan_copy(self._builder, operand, type_)

    def _epilogue(self, group: Group, reduction: int, root: int) -> Epilogue:
        flow = self._flow
        _, kept = kept_shapes(group.shape, group.axes)
        reduced = ScalarRef(-1, flow.nodes[reduction].type.dtype)
        after = Tracer(flow, group.members, self._locate, {reduction: reduced})
        type_ = flow.nodes[root].type
        chain: Chain = () if type_.shape == kept else (View("reshape", kept),)
        symbol = after.value(NodeRef(root), chain)
        steps = after.steps
        assert after.register(symbol) == len(after.operands) + len(steps) - 1
        return Epilogue(tuple(after.operands[1:]), steps, TensorType(type_.dtype, kept))

    def _plan_product(self, group: Group) -> None:
        flow = self._flow
        (product,) = (
            member
            for member in group.members
            if flow.nodes[member].definition.op_class is OpClass.MATMUL
        )
        node = flow.nodes[product]
        sides = [self._in_memory(ref) for ref in node.operands]
        if group.stored == (product,) and len(group.members) == 1:
            self._made[NodeRef(product)] = self._plan_node(self._builder, node, sides)
            return
        left, right = sides
        assert isinstance(left, Placed) and isinstance(right, Placed)
        given: dict[int, Operand] = {product: ScalarRef(-1, node.type.dtype)}
        tracer = Tracer(flow, group.members, self._locate, given)
        symbols = [tracer.value(NodeRef(root), ()) for root in group.stored]
        results = self._results(tracer, group.stored, symbols)
        made = plan_fused_matmul(
            self._builder, left, right, node.type, tracer.operands[1:], tracer.steps, results
        )
        self._keep(group.stored, made)

    def _plan_rows(self, group: Group) -> None:
        flow = self._flow
        tracer = Tracer(flow, group.members, self._locate)
        symbols = []
        for root in group.stored:
            chain: Chain = ()
            if root in group.rows:
                chain = per_row(flow.nodes[root].type.shape, group.shape, group.axes)
            symbols.append(tracer.value(NodeRef(root), chain))
        made = plan_rows(
            self._builder,
            group.shape,
            group.axes,
            tracer.operands,
            tracer.instructions,
            self._results(tracer, group.stored, symbols),
            [flow.nodes[r].type.shape if r in group.rows else None for r in group.stored],
        )
        self._keep(group.stored, made)
