"""A device that computes in NumPy, in this process: arrays without a server, at once.

It is the oracle for what arrays and compiled functions record: every operation is evaluated by its
reference, and counts are kept of what was asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuwire.client.locations import LocationTable
from gpuwire.client.recorded_graphs import RecordedGraph, recorded_graph
from gpuwire.errors import UnsupportedDType
from gpuwire.ids import LocationId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import Attributes
from gpuwire.ir.dtypes import DType, dtype_of_numpy
from gpuwire.ir.graphs import InputRef, NodeRef, OpGraph
from gpuwire.ir.operations import OpDef
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.lowering.host_reference import evaluate

Values = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class NumpyTensor:
    values: Values

    @property
    def type(self) -> TensorType:
        return TensorType(dtype_of_numpy(self.values.dtype), self.values.shape)


@dataclass(frozen=True)
class _Info:
    name: str = "NumPy"


class NumpyDevice:
    """An `ArrayDevice`. `recorded` counts operations recorded one by one, `runs` graphs."""

    info = _Info()
    default_float = dt.float32
    default_int = dt.int64

    def __init__(self, lacking: tuple[DType, ...] = ()) -> None:
        self.ended: Exception | None = None
        self.recorded = 0
        self.runs = 0
        self.uploads = 0
        self._lacking = lacking
        self._locations = LocationTable()
        self._numbers = itertools.count(1)

    def supports(self, dtype: DType) -> bool:
        return dtype not in self._lacking

    def require(self, dtype: DType, operation: str) -> None:
        if dtype in self._lacking:
            raise UnsupportedDType(f"{operation}: no {dtype}", operation=operation)

    def record(
        self, definition: OpDef, inputs: Sequence[Any], attributes: Attributes
    ) -> NumpyTensor:
        self.recorded += 1
        types = tuple([operand.type for operand in inputs])
        result = definition.result_type(types, attributes)
        return NumpyTensor(evaluate(definition, list(map(_values, inputs)), attributes, result))

    def recorded_graph(self, graph: OpGraph, locations: tuple[LocationId, ...]) -> RecordedGraph:
        return recorded_graph(next(self._numbers), graph, locations)

    def run_graph(
        self, graph: RecordedGraph, inputs: Sequence[Any], scalars: tuple[Scalar, ...]
    ) -> list[NumpyTensor]:
        self.runs += 1
        assert tuple([tensor.type for tensor in inputs]) == graph.graph.inputs
        made: list[Values] = []
        for node in graph.graph.nodes:
            operands = []
            for ref in node.operands:
                match ref:
                    case NodeRef(index):
                        operands.append(made[index])
                    case InputRef(index):
                        operands.append(inputs[index].values)
                    case _:
                        assert scalars[ref.index].dtype is ref.dtype
                        operands.append(_values(scalars[ref.index]))
            made.append(evaluate(node.definition, operands, node.attributes, node.type))
        return [NumpyTensor(made[output.index]) for output in graph.graph.outputs]

    def describe_graph(self, graph: RecordedGraph) -> str:
        return "NumPy"

    def upload(self, array: Values) -> NumpyTensor:
        self.uploads += 1
        return NumpyTensor(array.copy())

    def read(self, tensor: NumpyTensor) -> Values:
        return tensor.values.copy()

    def copy_to_host_async(self, tensor: NumpyTensor) -> None:
        """Everything is here already."""

    def location(self) -> LocationId:
        return self._locations.here(2)

    def line(self, location: LocationId) -> str | None:
        return self._locations.text(location)


def _values(operand: Any) -> Values:
    if isinstance(operand, Scalar):
        return np.asarray(operand.value, operand.dtype.numpy)
    values: Values = operand.values
    return values
