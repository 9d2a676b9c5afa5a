"""The kernels that a user wrote: their table in one session, and their launches.

A tensor never changes, so a kernel writes into copies of the tensors that it is given to write,
and the copies are its results; one that is both read and written is read as it was. Where nobody
can see the change, because the client is done with a tensor and nothing here holds it or its memory
either, the kernel writes into the tensor's own memory. A launch waits for its tensors as operations
do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpuwire.compute.handles import Binding
from gpuwire.compute.launches import LaunchArguments
from gpuwire.errors import (
    ExecutionError,
    GpuwireError,
    LaunchError,
    MalformedMessage,
    OutOfMemory,
    UnknownKernel,
)
from gpuwire.host.black_box import BlackBox, kernel_note
from gpuwire.host.copies import own_copy
from gpuwire.host.dataflow import Dataflow
from gpuwire.host.device import Device
from gpuwire.host.tensors import Lease, Tensor
from gpuwire.host.work import Stream
from gpuwire.ids import KernelId
from gpuwire.ir.tensors import TensorType
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.lowering import Value
from gpuwire.references import sole_holders
from gpuwire.wire.device_tasks import LaunchKernel, RegisterKernel
from gpuwire.wire.fields import breached

T = TypeVar("T")

MAX_KERNELS = 4096
MAX_SOURCE_BYTES = 32 * 1024 * 1024
"""Of one session. A kernel beyond is refused where it is launched …"""
MAX_ENTRIES = 65_536
"""… up to here, where the client is broken."""


@dataclass(frozen=True, slots=True)
class UserKernel:
    """One of a session's kernels."""

    kernel: Kernel
    note: bytes
    """Its name, for the black box."""

    @property
    def written(self) -> int:
        """How many of its buffers it writes."""
        return sum(access is not Access.READ for access in self.kernel.access)


class Kernels:
    """The kernels of one session."""

    def __init__(self, session: int, device: Device, dataflow: Dataflow, box: BlackBox) -> None:
        self._session = session
        self._device = device
        self._dataflow = dataflow
        self._box = box
        self._kernels: dict[KernelId, UserKernel | GpuwireError] = {}
        self._source_bytes = 0

    # --- The table ---

    def register(self, task: RegisterKernel) -> None:
        """Takes a kernel. `MalformedMessage` if the id is taken, `LimitBreached` above
        `MAX_ENTRIES`."""
        if task.kernel in self._kernels:
            raise MalformedMessage(f"kernel {task.kernel} exists already", what="kernel id")
        if len(self._kernels) >= MAX_ENTRIES:
            raise breached("kernels of one session", len(self._kernels) + 1, MAX_ENTRIES)
        size = len(task.source)
        if len(self._kernels) >= MAX_KERNELS or self._source_bytes + size > MAX_SOURCE_BYTES:
            self._kernels[task.kernel] = OutOfMemory(
                f"a session keeps at most {MAX_KERNELS} kernels with {MAX_SOURCE_BYTES} bytes of "
                "source; delete those that are no longer needed",
                wanted=size,
                in_use=self._source_bytes,
                limit=MAX_SOURCE_BYTES,
            )
            return
        self._source_bytes += size
        access = [Access.READ_WRITE if written else Access.READ for written in task.written]
        kernel = Kernel(
            task.name,
            task.source,
            tuple(access),
            task.workgroup_size,
            task.params_words,
            task.entry_point,
            frozenset(),
        )
        self._kernels[task.kernel] = UserKernel(kernel, kernel_note(task.name))

    def drop(self, kernel_id: int) -> None:
        """Forgets a kernel; an id of none is no error."""
        found = self._kernels.pop(KernelId(kernel_id), None)
        if isinstance(found, UserKernel):
            self._source_bytes -= len(found.kernel.source)
            self._device.server.forget_kernel(found.kernel)

    def find(self, kernel_id: KernelId) -> UserKernel:
        """The kernel of that id. Raises `UnknownKernel`, or why it was not taken."""
        found = self._kernels.get(kernel_id)
        if isinstance(found, UserKernel):
            return found
        raise found or UnknownKernel(
            f"there is no kernel {kernel_id} in this session", kernel=kernel_id
        )

    def has_name(self, name: str) -> bool:
        """Whether one of them is called so. From any thread."""
        return any(
            isinstance(one, UserKernel) and one.kernel.name == name
            for one in tuple(self._kernels.values())
        )

    def close(self) -> None:
        """Forgets all of them."""
        for kernel_id in tuple(self._kernels):
            self.drop(kernel_id)

    # --- Launches ---

    def launch(self, task: LaunchKernel) -> None:
        """Launches a kernel now, or as soon as its tensors are there. `MalformedMessage` for
        results that are not those that the kernel has."""
        dataflow = self._dataflow
        stream = dataflow.stream(task.stream)
        place = dataflow.take_places(1)
        name = "a kernel"
        types: Sequence[TensorType | None] = (None,) * len(task.outputs)
        inputs: tuple[Tensor, ...] = ()
        error: GpuwireError | None = None
        try:
            found = self.find(task.kernel)
            name = found.kernel.name
            inputs = dataflow.find_all(task.tensors)
            self.check_count(found, len(inputs))
            if found.written != len(task.outputs):
                raise MalformedMessage(
                    f"kernel {name!r} has {found.written} results, not {len(task.outputs)}",
                    what="kernel results",
                )
            types = [tensor.type for tensor in self._written(found, inputs)]
            for number, tensor_id in enumerate(self._written(found, task.tensors)):
                if task.spent >> number & 1:
                    dataflow.tensors.drop(tensor_id)
        except MalformedMessage:
            raise
        except GpuwireError as misfit:
            error = misfit
        if not task.outputs:
            if error is not None:
                dataflow.report(stream, failure_of(name, place, error))
            return
        outputs = dataflow.begin_outputs(task.outputs, types, stream)
        if error is not None:
            dataflow.fail_all(outputs, stream, failure_of(name, place, error), task.location)
            return
        dataflow.when_ready(inputs, lambda: self._run(task, found, inputs, outputs, place, stream))

    def check_count(self, found: UserKernel, count: int) -> None:
        """`LaunchError` for a number of buffers that the kernel does not take."""
        wanted = len(found.kernel.access)
        if count != wanted:
            raise LaunchError(
                f"kernel {found.kernel.name!r} takes {wanted} buffers, not {count}",
                kernel=found.kernel.name,
            )

    def check_size(self, found: UserKernel, type_: TensorType) -> None:
        """`LaunchError` for a tensor that cannot be bound; a binding of no bytes would end the
        process."""
        name = found.kernel.name
        most = self._device.server.utilities().properties.max_binding_bytes
        if not type_.nbytes:
            raise LaunchError(
                f"kernel {name!r}: an array without elements cannot be bound", kernel=name
            )
        if type_.nbytes > most:
            raise LaunchError(
                f"kernel {name!r}: an array of {type_.nbytes} bytes is more than one binding of "
                f"this device holds ({most}); work on parts of it",
                kernel=name,
            )

    def queue(
        self, found: UserKernel, grid: tuple[int, int, int], arguments: LaunchArguments, stream: int
    ) -> None:
        """Hands a launch to the compute server, noted in the black box."""
        self._box.note(self._session, found.note)
        try:
            self._device.server.launch(found.kernel, grid, arguments, stream)
        finally:
            self._box.note(self._session)

    def _written(self, found: UserKernel, tensors: Sequence[T]) -> list[T]:
        pairs = zip(tensors, found.kernel.access, strict=True)
        return [tensor for tensor, access in pairs if access is not Access.READ]

    def _run(
        self,
        task: LaunchKernel,
        found: UserKernel,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        place: int,
        stream: Stream,
    ) -> None:
        dataflow = self._dataflow
        failed = next((tensor.failure for tensor in inputs if tensor.failure is not None), None)
        if failed is not None:
            dataflow.pass_on(outputs, stream, failed)
            return
        dataflow.note_launched(stream)
        server = self._device.server
        try:
            owned = sole_holders(inputs)  # First: a name for one of them would be a holder.
            results: list[Value] = []
            with self._device.allocating(stream):
                bindings = [
                    self._bind(found, access, tensor, own, results, stream.number)
                    for tensor, access, own in zip(inputs, found.kernel.access, owned, strict=True)
                ]
            arguments = LaunchArguments(bindings, task.params)
            self.queue(found, task.grid, arguments, stream.number)
            made = [Binding(value.handle, 0, value.type.nbytes) for value in results]
            server.check(made, stream.number)
        except Exception as error:  # noqa: BLE001 - whatever one launch does, others go on
            self._device.note(error)
            failure = failure_of(found.kernel.name, place, error)
            dataflow.fail_all(outputs, stream, failure, task.location)
            return
        for output, value, old in zip(outputs, results, self._written(found, inputs), strict=True):
            if value is old.value and old.lease is not None:
                lease = old.lease
            else:
                lease = Lease(dataflow.account, value.type.nbytes)
            dataflow.settle(output, stream, value, lease)

    def _bind(
        self,
        found: UserKernel,
        access: Access,
        tensor: Tensor,
        own: bool,
        results: list[Value],
        stream: int,
    ) -> Binding:
        own = own and access is not Access.READ and _owns_memory(tensor)
        value = tensor.value
        assert value is not None
        size = value.type.nbytes
        self.check_size(found, value.type)
        if access is Access.READ:
            bound = self._device.lowering.contiguous(value, stream)
        elif own:
            bound = value
            results.append(bound)
        else:
            self._dataflow.account.require(size + sum(one.type.nbytes for one in results))
            bound = own_copy(self._device, value, stream)
            results.append(bound)
        return Binding(bound.handle, 0, size)


def _owns_memory(tensor: Tensor) -> bool:
    """Whether a tensor that has no other holder fills memory that has none either: no view, no
    captured graph, no work or read on its way."""
    value = tensor.value
    assert value is not None
    if value.offset or not value.is_contiguous:
        return False
    del value
    return all(
        sole_holders(
            (tensor.value, tensor.value.handle, tensor.value.handle.slice),  # type: ignore[union-attr]
            holders=1,
        )
    )


def failure_of(name: str, place: int | None, error: BaseException) -> ExecutionError:
    """The error of what a kernel would have made."""
    failure = ExecutionError(f"kernel {name!r} failed: {error}", operation=name, place=place)
    failure.__cause__ = error
    return failure
