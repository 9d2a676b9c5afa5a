"""What an array needs of its device, and which device creation functions mean by default."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.ids import LocationId
from gpuwire.ir.attributes import Attributes
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import OpGraph
from gpuwire.ir.operations import OpDef
from gpuwire.ir.tensors import Scalar, TensorType


class ArrayTensor(Protocol):
    """The client's hold on one tensor; the tensor is dropped with it. Never changes."""

    @property
    def type(self) -> TensorType: ...


class NamedDevice(Protocol):
    """What is known of an adapter."""

    @property
    def name(self) -> str: ...


class ArrayDevice(Protocol):
    """A device of either face: what `Device` and `aio.AsyncDevice` have in common.

    `read` gives a NumPy array on the former and an awaitable of one on the latter.
    """

    @property
    def info(self) -> NamedDevice: ...

    @property
    def ended(self) -> Exception | None: ...

    @property
    def default_float(self) -> DType: ...

    @property
    def default_int(self) -> DType: ...

    def supports(self, dtype: DType) -> bool: ...

    def require(self, dtype: DType, operation: str) -> None: ...

    def record(
        self, definition: OpDef, inputs: Sequence[Any], attributes: Attributes
    ) -> ArrayTensor: ...

    def upload(self, array: np.ndarray[Any, Any]) -> ArrayTensor: ...

    def read(self, tensor: Any) -> Any: ...

    def copy_to_host_async(self, tensor: Any) -> None: ...

    def location(self) -> LocationId: ...

    def line(self, location: LocationId) -> str | None: ...

    def recorded_graph(
        self, graph: OpGraph, locations: tuple[LocationId, ...]
    ) -> RecordedGraph: ...

    def run_graph(
        self, graph: RecordedGraph, inputs: Sequence[Any], scalars: tuple[Scalar, ...]
    ) -> Sequence[ArrayTensor]: ...

    def describe_graph(self, graph: RecordedGraph) -> Any: ...


def meeting_device(one: ArrayDevice, other: ArrayDevice) -> ArrayDevice | None:
    """The device of an operation over arrays of both; None if they cannot meet. While a function
    is traced, arrays from outside it meet those inside on the device that traces it."""
    if one is other or getattr(one, "target", None) is other:
        return one
    return other if getattr(other, "target", None) is one else None


Operand = ArrayTensor | Scalar


class DefaultDevice:
    """The device of arrays that name none: the first one this process connected to that is still
    open, and if there is none, a new connection to `GPUWIRE_URL` or a server on this machine.

    A later connection does not change where earlier code puts its arrays. While a function is
    traced, it is for that thread the device that traces it. Safe for threads.
    """

    def __init__(self, connect: Callable[[], ArrayDevice]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._known: list[weakref.ref[ArrayDevice]] = []
        self._own: ArrayDevice | None = None
        self._thread = threading.local()

    def note(self, device: ArrayDevice) -> None:
        """Tells of a device that the program connected to."""
        with self._lock:
            self._known = [ref for ref in self._known if not _is_over(ref)]
            self._known.append(weakref.ref(device))

    @property
    def traced(self) -> ArrayDevice | None:
        """The device that traces a function on this thread, if one does."""
        return getattr(self._thread, "traced", None)

    @contextmanager
    def tracing(self, device: ArrayDevice) -> Iterator[None]:
        """`device` traces a function on this thread."""
        self._thread.traced = device
        try:
            yield
        finally:
            self._thread.traced = None

    def place(self, device: ArrayDevice | None) -> ArrayDevice:
        """Where what is to be made on `device` is made."""
        if device is None:
            return self.find()
        traced = self.traced
        return device if traced is None else meeting_device(device, traced) or device

    def find(self) -> ArrayDevice:
        """The default device; connects if there is none. Raises what connecting raises."""
        traced = self.traced
        if traced is not None:
            return traced
        with self._lock:
            for ref in self._known:
                device = ref()
                if device is not None and device.ended is None:
                    return device
            if self._own is None or self._own.ended is not None:
                self._own = self._connect()
            return self._own


def _is_over(ref: weakref.ref[ArrayDevice]) -> bool:
    device = ref()
    return device is None or device.ended is not None
