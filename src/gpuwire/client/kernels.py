"""Kernels that a user wrote: what `dev.kernel` gives.

A launch is one task; nothing waits. What it costs here is recording that task, about 20 µs on a
2-core machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gpuwire.client.kernel_launches import DeviceArray, Launch, LaunchRecorder
from gpuwire.client.parameters import parameter_words
from gpuwire.client.session import Session
from gpuwire.client.tensor import Tensor
from gpuwire.client.wgsl import Interface
from gpuwire.errors import ArgumentError, DTypeError, GpuwireError
from gpuwire.ids import KernelId, StreamId, TensorId
from gpuwire.wire.device_tasks import Grid, RegisterKernel
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import DeviceInfo

MAX_GRID = 65_535
"""Workgroups in one dimension, on every adapter."""


class Kernel:
    """A kernel of one device. Call it with arrays, then numbers, and a grid.

    `kernel(x, out, 2.0, grid=n)`: the arrays in the order of their bindings; the numbers are its
    parameters (`client.parameters`), as many at each call as at the first. `grid` is a number of
    invocations, of which whole workgroups are made, or a tuple of workgroups in x, y and z. What
    is left over in the last workgroup is for the source to guard: its indices are kept within each
    array, but a wrong element is a wrong element.

    Arrays that the source declares `read_write` get new elements, and no other array does: one that
    shared them (`x.copy()`, `y = x`'s reshaped forms) keeps the old ones. Passed as an input too,
    such an array is read as it was before the call.

    Errors: `ArgumentError`, `DTypeError`, `DeviceMismatch`, `ScalarOutOfRange` at the call for what
    cannot be; a source that does not compile fails what it would have written, and the read or sync
    that meets that raises `ExecutionError`, caused by `KernelCompileError` with the source's line.
    """

    def __init__(
        self,
        session: Session,
        source: str,
        entry_point: str,
        interface: Interface,
        name: str,
        recorder: Callable[[], LaunchRecorder],
    ) -> None:
        """Use `dev.kernel`. `recorder` says where a launch of this thread goes now."""
        _check_interface(interface, session.info, source)
        self.name = name
        self._session = session
        self._source = source
        self._entry_point = entry_point
        self._interface = interface
        self._written = tuple([buffer.written for buffer in interface.buffers])
        self._recorder = recorder
        self._id: KernelId | None = None
        self._words = -1

    def __call__(self, *arguments: object, grid: int | Sequence[int]) -> None:
        """Launches it; returns at once."""
        recorder = self._recorder()
        try:
            arrays = self._arrays(arguments)
            params = parameter_words(arguments[len(arrays) :])
            workgroups = self._grid(grid)
            kernel = self._registered(len(params) // 4)
            recorder.launch(
                Launch(kernel, self.name, workgroups, arrays, self._written, params, self)
            )
        except GpuwireError as error:
            recorder.refused(error)
            raise

    def __del__(self) -> None:
        if getattr(self, "_id", None) is not None:
            assert self._id is not None
            self._session.recorder.drop(TensorId(self._id))

    def __repr__(self) -> str:
        arrays = ", ".join(
            f"{buffer.name}{' (written)' if buffer.written else ''}"
            for buffer in self._interface.buffers
        )
        return f"<kernel {self.name!r} over {arrays}>"

    def _arrays(self, arguments: tuple[object, ...]) -> tuple[DeviceArray, ...]:
        buffers = self._interface.buffers
        arrays: list[DeviceArray] = []
        for argument in arguments:
            if not hasattr(argument, "_tensor"):
                break
            arrays.append(argument)
        rest = arguments[len(arrays) :]
        if any(hasattr(argument, "_tensor") for argument in rest):
            raise ArgumentError(f"{self.name}: arrays come first, then numbers")
        if len(arrays) != len(buffers):
            names = ", ".join(buffer.name for buffer in buffers)
            if len(arrays) < len(buffers) and rest:
                parameter_words(rest)  # A NumPy array among them says so.
            raise ArgumentError(
                f"{self.name} takes {len(buffers)} arrays ({names}), and {len(arrays)} were given"
            )
        written: set[int] = set()
        for array, buffer in zip(arrays, buffers, strict=True):
            self._check_array(array, buffer.name)
            if buffer.written and id(array) in written:
                raise ArgumentError(f"{self.name}: one array is given twice to be written")
            if buffer.written:
                written.add(id(array))
        return tuple(arrays)

    def _check_array(self, array: DeviceArray, buffer: str) -> None:
        tensor = array._tensor
        if not isinstance(tensor, Tensor):
            raise DTypeError(
                f"{self.name}: {buffer} is no array of a device; inside a compiled function a "
                "kernel cannot be called"
            )
        self._session.recorder.check_owner(self.name, tensor)
        size = tensor.type.nbytes
        most = self._session.info.max_binding_bytes
        if not size:
            raise ArgumentError(
                f"{self.name}: {buffer} has no elements, and a kernel cannot be given such an array"
            )
        if size > most:
            raise ArgumentError(
                f"{self.name}: {buffer} has {size} bytes, and this device binds at most {most} at "
                "once; work on parts of it"
            )

    def _grid(self, grid: int | Sequence[int]) -> Grid:
        size = self._interface.workgroup_size
        if not isinstance(grid, int):
            x, y, z = [*map(int, grid), 1, 1, 1][:3]
            if not 1 <= len(grid) <= 3 or not all(1 <= n <= MAX_GRID for n in (x, y, z)):
                raise ArgumentError(
                    f"{self.name}: a grid of {tuple(grid)} workgroups; one to three numbers from 1 "
                    f"to {MAX_GRID}"
                )
            return x, y, z
        if size[1:] != (1, 1):
            raise ArgumentError(
                f"{self.name}: its workgroups have the shape {size}; say how many: grid=(x, y, z)"
            )
        count = -(-grid // size[0])
        if count < 1 or (count > MAX_GRID and not self._interface.folds):
            raise ArgumentError(
                f"{self.name}: a grid of {grid} invocations makes {count} workgroups; from 1 to "
                f"{MAX_GRID} are possible. For more, number them over several dimensions: a source "
                "that reads @builtin(num_workgroups) count gets them folded, and its workgroup's "
                "number is (wid.z * count.y + wid.y) * count.x + wid.x"
            )
        return _folded(count)

    def _registered(self, words: int) -> KernelId:
        """The kernel's id; the server is told of it at the first call."""
        if self._id is not None:
            if words != self._words:
                raise ArgumentError(
                    f"{self.name} was called with {self._words} numbers before, not {words}"
                )
            return self._id
        needed = self._interface.least_words
        if words < needed:
            raise ArgumentError(
                f"{self.name} reads {needed} parameters, and {words} numbers were given"
            )
        if words and not self._interface.reads_params:
            raise ArgumentError(
                f"{self.name} reads no params, and {words} numbers were given: the source reads "
                "number i as params[i / 4][i % 4]"
            )
        if 4 * words > DEFAULT_LIMITS.max_params_bytes:
            raise ArgumentError(
                f"{self.name}: {words} numbers; the most is {DEFAULT_LIMITS.max_params_bytes // 4}"
            )
        recorder = self._session.recorder
        kernel = KernelId(recorder.new_id())
        recorder.add(
            RegisterKernel(
                kernel,
                self.name,
                self._source,
                self._entry_point,
                self._interface.workgroup_size,
                self._written,
                words,
            )
        )
        self._words = words
        self._id = kernel
        return kernel


class DirectLaunches:
    """A `LaunchRecorder` that hands launches on to the device."""

    def __init__(self, session: Session, stream: StreamId, make_room: Callable[[], None]) -> None:
        """`make_room` is called before each launch: where too much is unsent, it waits or
        raises."""
        self._session = session
        self._stream = stream
        self._make_room = make_room

    def launch(self, launch: Launch) -> None:
        """Records a launch; the arrays that it writes get new tensors."""
        self._make_room()
        self._session.recorder.launch(
            self._stream, launch.kernel, launch.grid, launch.arrays, launch.written, launch.params
        )

    def refused(self, error: GpuwireError) -> None:
        """Its caller is told, and nobody else."""


def _check_interface(interface: Interface, info: DeviceInfo, source: str) -> None:
    size = interface.workgroup_size
    if not any(buffer.written for buffer in interface.buffers):
        raise ArgumentError("the kernel writes no array: declare one as var<storage, read_write>")
    if len(interface.buffers) > DEFAULT_LIMITS.max_kernel_buffers:
        raise ArgumentError(
            f"the kernel binds {len(interface.buffers)} arrays; the most is "
            f"{DEFAULT_LIMITS.max_kernel_buffers}"
        )
    if math.prod(size) > info.max_workgroup_invocations:
        raise ArgumentError(
            f"workgroups of {size} are {math.prod(size)} invocations; this device has at most "
            f"{info.max_workgroup_invocations}"
        )
    if len(source.encode()) > DEFAULT_LIMITS.max_kernel_bytes:
        raise ArgumentError(
            f"the source has {len(source.encode())} bytes; the most is "
            f"{DEFAULT_LIMITS.max_kernel_bytes}"
        )


def _folded(count: int) -> Grid:
    """At least `count` workgroups with no dimension above `MAX_GRID`, and few too many."""
    if count <= MAX_GRID:
        return count, 1, 1
    rows = -(-count // MAX_GRID)
    if rows <= MAX_GRID:
        return -(-count // rows), rows, 1
    layers = -(-rows // MAX_GRID)
    rows = -(-rows // layers)
    return -(-count // (rows * layers)), rows, layers
