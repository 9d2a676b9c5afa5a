"""From a group's nodes to a kernel's program: loads, and steps on registers.

Views are pushed out to the loads. A node that is seen through several chains of views is computed
for each; one that is seen twice through the same is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwire.ir.graphs import Node, NodeRef, ScalarRef, ValueRef
from gpuwire.ir.operations import OpClass
from gpuwire.kernels.programs import Step
from gpuwire.kernels.reduction_state import accumulator
from gpuwire.kernels.row_programs import Instruction, RowReduction
from gpuwire.lowering.builder import Operand
from gpuwire.lowering.fusion.rewriting import Flow
from gpuwire.lowering.fusion.views import VIEWS, Chain, View, broadcast_after
from gpuwire.lowering.plan_elementwise import compute_dtype

Locate = Callable[[ValueRef, Chain], Operand]
"""Where a value that is not the group's own lies, seen through a chain."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A register before all loads are known: the number of a load or of an instruction."""

    is_load: bool
    number: int


class Tracer:
    """Traces values of one group."""

    def __init__(
        self,
        flow: Flow,
        members: frozenset[int],
        locate: Locate,
        given: dict[int, Operand] | None = None,
    ) -> None:
        """`given`: nodes whose value the kernel has in registers, with what stands for each among
        the operands; their chains do not matter."""
        self._flow = flow
        self._members = members
        self._locate = locate
        self._given = given or {}
        self.operands: list[Operand] = list(self._given.values())
        self._instructions: list[tuple[Instruction, tuple[Symbol, ...]]] = []
        self._known: dict[tuple[ValueRef, Chain], Symbol] = {}
        self._loads: dict[Operand, Symbol] = {}

    def value(self, ref: ValueRef, chain: Chain) -> Symbol:
        """The register of a value seen through a chain."""
        open_ = [(ref, chain)]
        while open_:  # No recursion: graphs may be deeper than Python's stack.
            seen = open_[-1]
            if seen in self._known:
                open_.pop()
                continue
            needed = self._needs(*seen)
            missing = [other for other in needed if other not in self._known]
            if missing:
                open_ += reversed(missing)
                continue
            self._known[seen] = self._made(*seen, tuple(self._known[other] for other in needed))
        return self._known[ref, chain]

    def register(self, symbol: Symbol) -> int:
        """A register's number; final when everything is traced."""
        return symbol.number + (0 if symbol.is_load else len(self.operands))

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions; final when everything is traced."""
        finished: list[Instruction] = []
        for instruction, symbols in self._instructions:
            operands = tuple(self.register(symbol) for symbol in symbols)
            if isinstance(instruction, Step):
                finished.append(
                    Step(instruction.operation, operands, instruction.compute, instruction.result)
                )
            else:
                finished.append(
                    RowReduction(
                        instruction.operation,
                        operands[0],
                        instruction.source,
                        instruction.accumulate,
                        instruction.result,
                    )
                )
        return tuple(finished)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The instructions of a group without reductions of its own."""
        return tuple(step for step in self.instructions if isinstance(step, Step))

    def _member(self, ref: ValueRef) -> Node | None:
        """The node behind a reference, if it is traced and not loaded."""
        if isinstance(ref, NodeRef) and ref.index in self._members:
            return None if ref.index in self._given else self._flow.nodes[ref.index]
        return None

    def _needs(self, ref: ValueRef, chain: Chain) -> list[tuple[ValueRef, Chain]]:
        """What a value is made of."""
        node = self._member(ref)
        if node is None:
            return []
        if node.definition.name in VIEWS:
            return [(node.operands[0], (View.of(node), *chain))]
        if node.definition.op_class is OpClass.REDUCTION:  # One for each row, however it is seen.
            return [(ref, ())] if chain else [(node.operands[0], ())]
        shape = node.type.shape
        return [
            (operand, broadcast_after(self._flow.type_of(operand).shape, shape, chain))
            for operand in node.operands
        ]

    def _made(self, ref: ValueRef, chain: Chain, operands: tuple[Symbol, ...]) -> Symbol:
        """The register of a value whose operands have theirs."""
        flow, node = self._flow, self._member(ref)
        if node is None:
            return self._loaded(ref, chain)
        name, result = node.definition.name, node.type.dtype
        dtypes = [flow.type_of(operand).dtype for operand in node.operands]
        if name in VIEWS:
            return operands[0]
        if node.definition.op_class is OpClass.REDUCTION:
            if chain:
                return operands[0]
            accumulate = accumulator(name, dtypes[0], result)
            return self._add(RowReduction(name, 0, dtypes[0], accumulate, result), operands)
        return self._add(Step(name, (), compute_dtype(node, dtypes), result), operands)

    def _loaded(self, ref: ValueRef, chain: Chain) -> Symbol:
        if isinstance(ref, NodeRef) and ref.index in self._given:
            return Symbol(True, list(self._given).index(ref.index))
        operand = ref if isinstance(ref, ScalarRef) else self._locate(ref, chain)
        found = self._loads.get(operand)
        if found is None:
            found = self._loads[operand] = Symbol(True, len(self.operands))
            self.operands.append(operand)
        return found

    def _add(self, instruction: Instruction, operands: tuple[Symbol, ...]) -> Symbol:
        self._instructions.append((instruction, operands))
        return Symbol(False, len(self._instructions) - 1)
