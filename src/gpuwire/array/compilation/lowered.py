"""What a compiled function runs, as text."""

from __future__ import annotations

from typing import Any

from gpuwire.array.compilation.programs import Program
from gpuwire.array.scalar_expressions import expression_of
from gpuwire.ir.attributes import Attributes, NoAttributes
from gpuwire.ir.graphs import InputRef, Node, NodeRef, OpGraph, ScalarRef, ValueRef


class Lowered:
    """One trace of a compiled function. `print` it."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @property
    def graph(self) -> OpGraph:
        """The op-graph itself."""
        return self._program.ops.graph

    @property
    def op_graph(self) -> str:
        """The op-graph as a table: for each node its operation, operands, type, and the line of the
        program that recorded it. `a0` is an array among the arguments, `c0` one from outside, `s0`
        a number that is given or computed at each call; `*` marks what the graph gives back. A
        graph too large for one task has parts, which are run one after the other."""
        program = self._program
        outputs = {output.index for output in self.graph.outputs}
        rows = [("node", "operation", "operands", "type", "line")]
        for number, node in enumerate(self.graph.nodes):
            line = program.device.line(program.ops.locations[number]) or ""
            mark = "*" if number in outputs else ""
            rows.append(
                (
                    f"{mark}%{number}",
                    node.definition.name,
                    self._operands(node),
                    str(node.type),
                    line,
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            "  ".join([*(text.ljust(w) for text, w in zip(row, widths, strict=False)), row[4]])
            for row in rows
        ]
        graph = program.graph
        if graph is not None and len(graph.parts) > 1:
            for number in range(len(graph.parts) - 1, -1, -1):
                lines.insert(graph.parts[number].start + 1, f"-- {graph.part_title(number)} --")
        return "\n".join([self._head(), *(line.rstrip() for line in lines)])

    def kernel_plan(self) -> Any:
        """What the device makes of it, as text: its kernels in order, each with its workgroups and
        the memory that it binds. Asks the server and waits; on an `aio.AsyncDevice` it is awaited.

        It is the plan for contiguous arguments. Arguments that are views, such as transposes, may
        have one of their own. Raises what planning raises.
        """
        graph = self._program.graph
        return self._program.device.describe_graph(graph) if graph is not None else "nothing"

    def __str__(self) -> str:
        return self.op_graph

    def __repr__(self) -> str:
        return f"<{self._program.name}, {len(self.graph.nodes)} operations>"

    def _head(self) -> str:
        inputs = ", ".join(
            f"{self._input(number)}: {type_}" for number, type_ in enumerate(self.graph.inputs)
        )
        return f"{self._program.name}({inputs})"

    def _input(self, number: int) -> str:
        given = self._program.ops.arguments
        return f"a{given[number]}" if number < len(given) else f"c{number - len(given)}"

    def _operands(self, node: Node) -> str:
        operands = [self._operand(operand) for operand in node.operands]
        return ", ".join([*operands, *_attributes(node.attributes)])

    def _operand(self, operand: ValueRef) -> str:
        match operand:
            case NodeRef(index):
                return f"%{index}"
            case InputRef(index):
                return self._input(index)
            case ScalarRef(index):
                value = self._program.constants[index].value
                expression = expression_of(value)
                return repr(value) if expression is None else f"s{expression.number}"


def _attributes(attributes: Attributes) -> list[str]:
    if isinstance(attributes, NoAttributes):
        return []
    return [f"{name}={getattr(attributes, name)}" for name in attributes.__slots__]
