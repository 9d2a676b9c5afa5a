"""A device that writes down what is done on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from gpuwire.array.devices import ArrayDevice, ArrayTensor, NamedDevice
from gpuwire.client.recorder import INPUTS_MAX
from gpuwire.errors import ArgumentError, TracingError
from gpuwire.ids import LocationId
from gpuwire.ir.attributes import Attributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import InputRef, Node, NodeRef, OpGraph, ScalarRef, ValueRef
from gpuwire.ir.operations import OpDef
from gpuwire.ir.tensors import Scalar, TensorType


class TracedTensor:
    """A tensor that there will be at each call: an argument's, or a result's."""

    __slots__ = ("device", "ref", "type")

    def __init__(self, type: TensorType, ref: InputRef | NodeRef, device: TracingDevice) -> None:
        self.type = type
        self.ref = ref
        self.device = device


@dataclass(frozen=True, slots=True)
class RecordedOps:
    """What a trace needs to run: a graph, what it is bound to, and where each value went.

    Inputs are those of the graph, in order: numbers of arguments, then tensors from outside.
    """

    graph: OpGraph
    locations: tuple[LocationId, ...]
    arguments: tuple[int, ...]
    captured: tuple[ArrayTensor, ...]
    scalars: tuple[tuple[Scalar, LocationId], ...]
    """In order, with the lines that use them; the value may be an expression."""
    places: dict[int, int]
    """By number of the node that makes it, the number of an output."""


class TracingDevice:
    """Stands in for `target` while a function is traced: its `record` writes a graph.

    Operations are typed as they are recorded, so that what cannot be right is raised at the line
    that wrote it. Tensors of the target may take part; they are inputs, bound once and for all.
    Nothing can be read.
    """

    def __init__(self, target: ArrayDevice, function: str, arguments: Sequence[TensorType]) -> None:
        self.target = target
        self.function = function
        self.arguments = [TracedTensor(t, InputRef(i), self) for i, t in enumerate(arguments)]
        self._captured: dict[int, tuple[InputRef, ArrayTensor]] = {}
        self._nodes: list[Node] = []
        self._locations: list[LocationId] = []
        self._scalars: list[Scalar] = []
        self._is_open = True

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.target

    def __hash__(self) -> int:
        return hash(self.target)

    def __repr__(self) -> str:
        return f"<{self.target!r}, tracing {self.function}>"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name!r} of a device cannot be had while {self.function} is traced; use it outside "
            "of the compiled function",
            name=name,
            obj=self,
        )

    @property
    def info(self) -> NamedDevice:
        return self.target.info

    @property
    def ended(self) -> Exception | None:
        return self.target.ended

    @property
    def default_float(self) -> DType:
        return self.target.default_float

    @property
    def default_int(self) -> DType:
        return self.target.default_int

    def supports(self, dtype: DType) -> bool:
        return self.target.supports(dtype)

    def require(self, dtype: DType, operation: str) -> None:
        self.target.require(dtype, operation)

    def record(
        self, definition: OpDef, inputs: Sequence[Any], attributes: Attributes
    ) -> TracedTensor:
        """Adds a node. Raises what the operation's rule raises, `UnsupportedDType`, and
        `TracingError` once the function has been traced."""
        self._refuse_if_closed()
        if len(inputs) > INPUTS_MAX:
            raise ArgumentError(
                f"{definition.name} over {len(inputs)} arrays; the most at once is {INPUTS_MAX}"
            )
        types = tuple([operand.type for operand in inputs])
        result = definition.result_type(types, attributes)
        for dtype in {result.dtype, *(operand.dtype for operand in types)}:
            self.target.require(dtype, definition.name)
        operands = tuple([self._operand(operand) for operand in inputs])
        self._nodes.append(Node(definition, operands, attributes, result))
        self._locations.append(self.target.location())
        return TracedTensor(result, NodeRef(len(self._nodes) - 1), self)

    def upload(self, array: np.ndarray[Any, Any]) -> ArrayTensor:
        """The array is sent now, once; it is an input of the graph."""
        self._refuse_if_closed()
        return self.target.upload(array)

    def read(self, tensor: Any) -> NoReturn:
        """`TracingError`: there is nothing to be read yet."""
        self._refuse_if_closed()
        raise TracingError(
            f"the value of an array is wanted inside the compiled {self.function}, by np.asarray, "
            "float, int, bool, item, a condition or a mask. There is none while the function is "
            "traced: return the array and read it outside; choose with gpuwire.where instead of "
            "if; give what is known before the call as a static argument",
            function=self.function,
        )

    def copy_to_host_async(self, tensor: Any) -> None:
        """Nothing: who reads the result asks for it."""

    def location(self) -> LocationId:
        return self.target.location()

    def line(self, location: LocationId) -> str | None:
        return self.target.line(location)

    def recorded_graph(self, graph: OpGraph, locations: tuple[LocationId, ...]) -> NoReturn:
        self._refuse_if_closed()
        raise self._nested()

    def describe_graph(self, graph: Any) -> NoReturn:
        self._refuse_if_closed()
        raise self._nested()

    def run_graph(self, graph: Any, inputs: Any, scalars: Any) -> NoReturn:
        self._refuse_if_closed()
        raise self._nested()

    def recorded(self, wanted: Sequence[int]) -> RecordedOps:
        """The graph of all that the nodes of those numbers need, which are its outputs."""
        outputs = tuple(dict.fromkeys(wanted))
        return _pruned(
            self._nodes,
            self._locations,
            self._scalars,
            [tensor.type for tensor in self.arguments],
            [tensor for _, tensor in self._captured.values()],
            outputs,
        )

    def close(self) -> None:
        """Nothing more can be recorded."""
        self._is_open = False

    def _operand(self, operand: Any) -> ValueRef:
        if isinstance(operand, Scalar):
            self._scalars.append(operand)
            return ScalarRef(len(self._scalars) - 1, operand.dtype)
        if not isinstance(operand, TracedTensor):
            return self._capture(operand)
        if operand.device is not self:
            operand.device._refuse_if_closed()
            raise self._nested()
        ref: ValueRef = operand.ref
        return ref

    def _capture(self, tensor: ArrayTensor) -> InputRef:
        found = self._captured.get(id(tensor))
        if found is None:
            ref = InputRef(len(self.arguments) + len(self._captured))
            # The tensor is kept, so that no other one gets its id().
            found = self._captured[id(tensor)] = ref, tensor
        return found[0]

    def _refuse_if_closed(self) -> None:
        if not self._is_open:
            raise TracingError(
                f"an array of the compiled {self.function} was kept beyond the call that traced "
                "it, in a global or an attribute, and has no value; return it instead",
                function=self.function,
            )

    def _nested(self) -> TracingError:
        return TracingError(
            f"{self.function} is being traced on another thread, and its arrays cannot be used "
            "here",
            function=self.function,
        )


def _pruned(
    nodes: list[Node],
    locations: list[LocationId],
    scalars: list[Scalar],
    arguments: list[TensorType],
    captured: list[ArrayTensor],
    outputs: tuple[int, ...],
) -> RecordedOps:
    """The graph without what no output needs; operands, scalars and inputs are numbered anew."""
    needed = [False] * len(nodes)
    for output in outputs:
        needed[output] = True
    for number in range(len(nodes) - 1, -1, -1):
        if needed[number]:
            for operand in nodes[number].operands:
                if isinstance(operand, NodeRef):
                    needed[operand.index] = True
    kept = [number for number in range(len(nodes)) if needed[number]]
    new_nodes = {old: new for new, old in enumerate(kept)}
    used = sorted(
        {
            operand.index
            for number in kept
            for operand in nodes[number].operands
            if isinstance(operand, InputRef)
        }
    )
    new_inputs = {old: new for new, old in enumerate(used)}
    bound: list[tuple[Scalar, LocationId]] = []

    def renumbered(operand: ValueRef, location: LocationId) -> ValueRef:
        match operand:
            case NodeRef(index):
                return NodeRef(new_nodes[index])
            case InputRef(index):
                return InputRef(new_inputs[index])
            case ScalarRef(index, dtype):
                bound.append((scalars[index], location))
                return ScalarRef(len(bound) - 1, dtype)

    graph_nodes = []
    for number in kept:
        node, location = nodes[number], locations[number]
        operands = tuple([renumbered(operand, location) for operand in node.operands])
        graph_nodes.append(Node(node.definition, operands, node.attributes, node.type))
    outside = [captured[number - len(arguments)] for number in used if number >= len(arguments)]
    inside = [number for number in used if number < len(arguments)]
    types = [arguments[number] for number in inside] + [tensor.type for tensor in outside]
    return RecordedOps(
        OpGraph(
            tuple(types),
            tuple(graph_nodes),
            tuple([NodeRef(new_nodes[output]) for output in outputs]),
        ),
        tuple([locations[number] for number in kept]),
        tuple(inside),
        tuple(outside),
        tuple(bound),
        {output: place for place, output in enumerate(outputs)},
    )
