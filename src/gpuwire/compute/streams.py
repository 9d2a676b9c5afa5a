"""A real stream: one open command encoder, filled by launches and copies, submitted in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwire.compute.native import NULL, NativeDevice, NativeError, Pointer, ffi, lib

if TYPE_CHECKING:
    from gpuwire.compute.memory.manager import MemoryManager
    from gpuwire.compute.memory.slices import Slice
    from gpuwire.compute.programs import Program
    from gpuwire.compute.timings import ProfileWindow
    from gpuwire.errors import GpuwireError


class Stream:
    """One ordered run of device work.

    A batch is what one submission holds; `batch` is the number of the open one, from a count over
    all streams. At most one stream has unsubmitted work that touches a given slice: `touch` submits
    another one's first. Since all streams share the device's queue, that is all the ordering that
    is needed.
    """

    __slots__ = (
        "_batches",
        "_before_submit",
        "_command_buffer",
        "_device",
        "_on_failed_batch",
        "_on_submitted",
        "batch",
        "bytes_written",
        "compute_pass",
        "encoder",
        "failures",
        "index",
        "late_errors",
        "launches",
        "memory",
        "pending_windows",
        "program",
        "programs",
    )

    memory: MemoryManager

    def __init__(
        self,
        index: int,
        device: NativeDevice,
        next_batch: Callable[[], int],
        before_submit: Callable[[Stream], None],
        on_submitted: Callable[[Stream, int], None],
        on_failed_batch: Callable[[Stream, int, NativeError], None],
    ) -> None:
        self.index = index
        self.batch = next_batch()
        self.encoder: Pointer | None = None
        self.compute_pass: Pointer | None = None
        self.program: Program | None = None
        """The one whose pipeline the open pass has set."""
        self.programs: dict[str, int] = {}
        """Names of the kernels in the open batch, in order of first launch, with the logical stream
        that launched each."""
        self.launches = 0
        self.bytes_written = 0
        self.late_errors: list[GpuwireError] = []
        """What was asked for and cannot be; the next sync raises it."""
        self.failures: list[GpuwireError] = []
        """What failed at enqueue since the last flush."""
        self.pending_windows: list[ProfileWindow] = []
        """Profiling windows that the next launch opens."""
        self._device = device
        self._batches = next_batch
        self._before_submit = before_submit
        self._on_submitted = on_submitted
        self._on_failed_batch = on_failed_batch
        self._command_buffer = ffi.new("WGPUCommandBuffer[1]")

    @property
    def is_open(self) -> bool:
        """Whether work is encoded that is not submitted."""
        return self.encoder is not None

    def take_late_error(self) -> GpuwireError | None:
        """The first error that waited for a sync."""
        errors, self.late_errors = self.late_errors, []
        return errors[0] if errors else None

    def touch(self, used: Slice) -> None:
        """Note that the open batch uses a slice, after whatever other stream used it."""
        toucher = used.touched_by
        if toucher is not self:
            if toucher is not None and toucher.batch == used.touched_batch:
                toucher.submit()
            used.touched_by = self
        used.touched_batch = self.batch

    def copying(self) -> Pointer:
        """The encoder, outside of any compute pass."""
        if self.compute_pass is not None:
            self.end_pass()
        elif self.encoder is None:
            self.encoder = lib.wgpuDeviceCreateCommandEncoder(self._device.pointer, NULL)
        return self.encoder

    def dispatching(self) -> Pointer:
        """The open compute pass; its pipeline is `program`'s."""
        if self.compute_pass is None:
            if self.encoder is None:
                self.encoder = lib.wgpuDeviceCreateCommandEncoder(self._device.pointer, NULL)
            self.compute_pass = lib.wgpuCommandEncoderBeginComputePass(self.encoder, NULL)
            self.program = None
        return self.compute_pass

    def end_pass(self) -> None:
        """Close the compute pass, so that the encoder can copy."""
        if self.compute_pass is not None:
            lib.wgpuComputePassEncoderEnd(self.compute_pass)
            lib.wgpuComputePassEncoderRelease(self.compute_pass)
            self.compute_pass = None
            self.program = None

    def discard(self) -> None:
        """Drop the open batch."""
        self.end_pass()
        if self.encoder is not None:
            lib.wgpuCommandEncoderRelease(self.encoder)
            self.encoder = None

    def submit(self) -> None:
        """Submit the open batch, if it holds anything, and open the next."""
        if self.encoder is None:
            return
        self.end_pass()
        self._before_submit(self)
        command_buffer = lib.wgpuCommandEncoderFinish(self.encoder, NULL)
        lib.wgpuCommandEncoderRelease(self.encoder)
        self.encoder = None
        error = self._device.take_error()
        if error is None:
            self._command_buffer[0] = command_buffer
            lib.wgpuQueueSubmit(self._device.queue, 1, self._command_buffer)
            error = self._device.take_error()
        lib.wgpuCommandBufferRelease(command_buffer)
        submitted = self.batch
        self.batch = self._batches()
        self.launches = 0
        self.bytes_written = 0
        if error is not None:
            self._on_failed_batch(self, submitted, error)
        self._on_submitted(self, submitted)
        self.programs.clear()
