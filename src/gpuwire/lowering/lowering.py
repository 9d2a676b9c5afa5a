"""Lowering: op-graphs over values become kernel launches on a compute server.

`Lowering` is the face that a device host uses. A graph is planned once for each layout of its
inputs and then run from the plan: a row of steps, each a launch, a new view, or an operation that
the device cannot do and NumPy does on the host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from gpuwire.compute.server import WgpuServer
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import OpGraph
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.lowering.values import Value


class Lowering:
    """Plans and runs op-graphs on one compute server. Driven from the server's own thread.

    Not safe for use from several threads, as the server itself is not.
    """

    def __init__(self, server: WgpuServer) -> None:
        raise NotImplementedError

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The data types that the device has; others are refused with `UnsupportedDType`."""
        raise NotImplementedError

    def allocate(self, type_: TensorType, stream: int) -> Value:
        """An uninitialised contiguous tensor. `OutOfMemory`, `UnsupportedDType`."""
        raise NotImplementedError

    def contiguous(self, value: Value, stream: int) -> Value:
        """The value itself where it is contiguous at offset 0, else a copy that is: what `read`
        takes."""
        raise NotImplementedError

    def execute(
        self, graph: OpGraph, inputs: Sequence[Value], scalars: Sequence[Scalar], stream: int
    ) -> tuple[Value, ...] | Awaitable[tuple[Value, ...]]:
        """Run a graph; its outputs in order.

        The result is a tuple unless a step runs on the host in NumPy: then it is an awaitable, whose
        launches before the first host step are queued at the call and the others when it is
        awaited. Outputs may share memory with inputs (views). Errors of planning (`LaunchError`,
        `UnsupportedDType`, `OutOfMemory`) are raised at the call; those of device work taint
        the outputs, as the compute server's contract says.
        """
        raise NotImplementedError
