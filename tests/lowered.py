"""Running single operations on a real device through `Lowering`, for tests and sweeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwire.compute.server import WgpuServer
from gpuwire.ids import LocationId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, Attributes
from gpuwire.ir.graphs import OpGraph, single_node_graph
from gpuwire.ir.operations import OPERATIONS, Operation
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.lowering import Lowering, Value
from gpuwire.lowering.facts import DeviceFacts, device_facts
from gpuwire.lowering.steps import descriptor

Array = npt.NDArray[Any]


class Machine:
    """One device with its lowering; everything runs on stream 0."""

    def __init__(
        self,
        device_id: int = 0,
        *,
        server: WgpuServer | None = None,
        facts: DeviceFacts | None = None,
    ) -> None:
        self.server = server or WgpuServer.init(device_id)
        self.lowering = Lowering(self.server, facts=facts)

    def assuming(self, **facts: object) -> Machine:
        """The same device, planned for as if it were another."""
        own = device_facts(self.server.utilities().properties)
        return Machine(server=self.server, facts=replace(own, **facts))  # type: ignore[arg-type]

    def upload(self, array: Array) -> Value:
        """A contiguous tensor of these elements."""
        array = np.ascontiguousarray(array).reshape(array.shape)
        value = self.lowering.allocate(TensorType(dt.dtype_of_numpy(array.dtype), array.shape), 0)
        if array.size:
            data = array.reshape(-1).view(np.uint8).data
            self.server.write([(descriptor(value.handle, value.type), data)], 0)
        return value

    def view(self, array: Array) -> Value:
        """A tensor with the array's own strides: its whole base is uploaded."""
        base = array if array.base is None else array.base
        assert isinstance(base, np.ndarray) and base.flags.c_contiguous
        whole = self.upload(base.reshape(-1))
        itemsize = array.itemsize
        start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        strides = tuple(stride // itemsize for stride in array.strides)
        type_ = TensorType(dt.dtype_of_numpy(array.dtype), array.shape)
        return Value(whole.handle, type_, strides, start // itemsize)

    def download(self, value: Value) -> Array:
        """A tensor's elements."""
        value = self.lowering.contiguous(value, 0)
        dtype = value.type.dtype.numpy
        if not value.type.size:
            return np.empty(value.type.shape, dtype)
        (data,) = self.server.read([descriptor(value.handle, value.type)], 0).wait()
        return np.frombuffer(data, dtype).reshape(value.type.shape)

    def execute(
        self, graph: OpGraph, inputs: list[Value], scalars: list[Scalar] | tuple[Scalar, ...] = ()
    ) -> tuple[Value, ...]:
        """Run a graph, waiting for host steps."""
        result = self.lowering.execute(graph, inputs, scalars, 0)
        return result if isinstance(result, tuple) else asyncio.run(_awaited(result))

    def apply(
        self, name: str, *operands: Value | Scalar, attributes: Attributes = NO_ATTRIBUTES
    ) -> Value:
        """One operation."""
        values = [operand for operand in operands if isinstance(operand, Value)]
        inputs = tuple(
            operand if isinstance(operand, Scalar) else TensorId(1) for operand in operands
        )
        operation = Operation(OPERATIONS[name], inputs, TensorId(2), attributes, LocationId(0))
        graph, scalars = single_node_graph(operation, tuple(value.type for value in values))
        (result,) = self.execute(graph, values, scalars)
        return result

    def run(
        self, name: str, *operands: Array | Scalar, attributes: Attributes = NO_ATTRIBUTES
    ) -> Array:
        """One operation over arrays; arrays that are views are given as views."""
        values = [
            operand if isinstance(operand, Scalar) else self.view(operand) for operand in operands
        ]
        return self.download(self.apply(name, *values, attributes=attributes))


async def _awaited(values: Awaitable[tuple[Value, ...]]) -> tuple[Value, ...]:
    return await values
