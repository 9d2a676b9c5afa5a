"""Short ways to write tasks, for tests of the host and the server."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwire.ids import LocationId, RequestId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    NO_ATTRIBUTES,
    Attributes,
    PermuteAttributes,
    ShapeAttributes,
)
from gpuwire.ir.operations import OPERATIONS, Operand, Operation
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.wire.messages import (
    DropTensors,
    ReadTensor,
    RegisterTensor,
    RunOperation,
    SyncStream,
)

F4 = TensorType(dt.float32, (4,))


def register(
    tensor: int,
    data: Sequence[float] | None,
    type_: TensorType | None = None,
    *,
    request: int = 0,
    stream: int = 0,
) -> RegisterTensor:
    """A float32 tensor of these numbers; None: they come on the bulk stream of `request`."""
    if type_ is None:
        assert data is not None
        type_ = TensorType(dt.float32, (len(data),))
    octets = None if data is None else np.array(data, np.float32).tobytes()
    return RegisterTensor(
        StreamId(stream), RequestId(request or tensor), TensorId(tensor), type_, octets
    )


def operation(
    name: str,
    inputs: Sequence[int | float],
    output: int,
    attributes: Attributes = NO_ATTRIBUTES,
    *,
    stream: int = 0,
    location: int = 0,
) -> RunOperation:
    """An operation; an int is a tensor, a float a scalar."""
    operands: list[Operand] = [
        Scalar(value, dt.float32) if isinstance(value, float) else TensorId(value)
        for value in inputs
    ]
    recorded = Operation(
        OPERATIONS[name], tuple(operands), TensorId(output), attributes, LocationId(location)
    )
    return RunOperation(StreamId(stream), recorded)


def add(
    left: int, right: int | float, output: int, *, stream: int = 0, location: int = 0
) -> RunOperation:
    return operation("add", (left, right), output, stream=stream, location=location)


def reshape(source: int, shape: tuple[int, ...], output: int) -> RunOperation:
    return operation("reshape", (source,), output, ShapeAttributes(shape))


def permute(source: int, axes: tuple[int, ...], output: int) -> RunOperation:
    return operation("permute_dims", (source,), output, PermuteAttributes(axes))


def read(tensor: int, *, request: int, stream: int = 0) -> ReadTensor:
    return ReadTensor(StreamId(stream), RequestId(request), TensorId(tensor))


def sync(request: int, *, stream: int | None = 0) -> SyncStream:
    return SyncStream(None if stream is None else StreamId(stream), RequestId(request))


def drop(*tensors: int) -> DropTensors:
    return DropTensors(tuple(TensorId(tensor) for tensor in tensors))


def values(data: bytes) -> list[float]:
    """The float32 numbers in these bytes."""
    return [float(value) for value in np.frombuffer(data, np.float32)]
