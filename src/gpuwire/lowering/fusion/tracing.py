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
from gpuwire.kernels.rows import Instruction, RowReduction
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
        key = (ref, chain)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._trace(ref, chain)
        return found

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

    def _trace(self, ref: ValueRef, chain: Chain) -> Symbol:
        if isinstance(ref, NodeRef):
            number = ref.index
            if number in self._given:
                return Symbol(True, list(self._given).index(number))
            if number in self._members:
                return self._trace_member(self._flow.nodes[number], number, chain)
        operand = ref if isinstance(ref, ScalarRef) else self._locate(ref, chain)
        found = self._loads.get(operand)
        if found is None:
            found = self._loads[operand] = Symbol(True, len(self.operands))
            self.operands.append(operand)
        return found

    def _trace_member(self, node: Node, number: int, chain: Chain) -> Symbol:
        flow = self._flow
        if node.definition.name in VIEWS:
            return self.value(node.operands[0], (View.of(node), *chain))
        if node.definition.op_class is OpClass.REDUCTION:
            if chain:  # One for each row, however it is seen.
                return self.value(NodeRef(number), ())
            source = self.value(node.operands[0], ())
            dtype = flow.type_of(node.operands[0]).dtype
            name, result = node.definition.name, node.type.dtype
            accumulate = accumulator(name, dtype, result)
            return self._add(RowReduction(name, 0, dtype, accumulate, result), (source,))
        symbols = tuple(
            self.value(ref, broadcast_after(flow.type_of(ref).shape, node.type.shape, chain))
            for ref in node.operands
        )
        compute = compute_dtype(node, [flow.type_of(ref).dtype for ref in node.operands])
        return self._add(Step(node.definition.name, (), compute, node.type.dtype), symbols)

    def _add(self, instruction: Instruction, operands: tuple[Symbol, ...]) -> Symbol:
        self._instructions.append((instruction, operands))
        return Symbol(False, len(self._instructions) - 1)
