"""The launch path: check, find the pipeline and the bind group, encode.

On a cached path it makes four calls into the library (pipeline, bind group, immediates, dispatch)
and no object that outlives it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.compute.adapters import AdapterProperties
from gpuwire.compute.capture import Captures
from gpuwire.compute.handles import Binding
from gpuwire.compute.indirect import COUNTS_BYTES, IndirectCounts
from gpuwire.compute.launch_scope import LaunchScope, Range
from gpuwire.compute.launches import Indirect, LaunchArguments, LaunchMode, WorkgroupCount
from gpuwire.compute.memory.pages import Page
from gpuwire.compute.memory.slices import Slice
from gpuwire.compute.native import NULL, Pointer, Usage, lib
from gpuwire.compute.programs import Program, Programs
from gpuwire.compute.replay import RecordedLaunch
from gpuwire.compute.scheduler import Scheduler
from gpuwire.compute.storage import OwnBuffer, Storage
from gpuwire.compute.streams import Stream
from gpuwire.compute.taint import detached
from gpuwire.compute.timings import Timings
from gpuwire.compute.uniforms import Uniform, Uniforms
from gpuwire.errors import GpuwireError, InvalidHandle, LaunchError
from gpuwire.kernels.kernel import Access, Kernel

_READ = Access.READ
_READ_WRITE = Access.READ_WRITE
_OWN = -1
"""In a logical stream's place: the server itself launches."""

Grid = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class Prepared:
    """A launch whose arguments have been checked."""

    program: Program
    ranges: tuple[int, ...]
    pages: list[Page]
    slices: list[Slice]
    reads: list[Range]
    updates: list[Range]
    writes: list[Range]


class Launcher:
    """Runs kernels on streams."""

    def __init__(
        self,
        properties: AdapterProperties,
        storage: Storage,
        programs: Programs,
        uniforms: Uniforms,
        scheduler: Scheduler,
        scope: LaunchScope,
        indirect: IndirectCounts,
        captures: Captures,
        timings: Timings,
    ) -> None:
        self._storage = storage
        self._programs = programs
        self._uniforms = uniforms
        self._scheduler = scheduler
        self._scope = scope
        self._indirect = indirect
        self._captures = captures
        self._timings = timings
        self._alignment_mask = properties.storage_alignment - 1
        self._max_binding = properties.max_binding_bytes
        self._max_workgroups = properties.max_workgroups
        self._queued: list[Kernel] = []

    def launch(
        self,
        kernel: Kernel,
        count: WorkgroupCount,
        args: LaunchArguments,
        stream_id: int,
        mode: LaunchMode,
    ) -> None:
        """See `WgpuServer.launch`."""
        if mode is LaunchMode.QUEUE:
            self._queued.append(kernel)
            return
        program = self._programs.program(kernel)
        if mode is LaunchMode.SKIP:
            return
        program.launches += 1
        stream = self._scheduler.stream(stream_id)
        indirect: Binding | None = None
        grid = (1, 1, 1)
        if isinstance(count, Indirect):
            indirect = count.binding
        else:
            grid = self.grid(kernel, count)
        if self._captures.windows and self._captures.is_capturing(stream_id):
            self._record(stream_id, kernel, args, grid, indirect, stream)
            return
        prepared = self.prepare(kernel, program, args)
        if indirect is not None:
            prepared.reads.append(self._counts_range(kernel, indirect))
        if program.failure is not None:
            self._scope.taint(stream, prepared.writes, program.failure)
            return
        if not self._scope.enter(stream, prepared.reads, prepared.updates, prepared.writes):
            return
        try:
            self._encode(prepared, args.params, grid, indirect, stream, stream_id)
        except GpuwireError as error:
            self._scope.fail(stream, prepared.writes, error)
            raise
        self._scope.leave(stream, prepared.writes)
        self._scheduler.launched(stream)

    def run(
        self, kernel: Kernel, grid: Grid, buffers: list[Range], params: bytes, stream: Stream
    ) -> None:
        """Encode a launch of the server's own, whose claims its caller holds."""
        program = self._programs.program(kernel)
        if program.failure is not None:
            raise detached(program.failure)
        ranges: list[int] = []
        for used, start, end in buffers:
            ranges += (used.page.number, used.offset + start, end - start)
        pages = [used.page for used, _, _ in buffers]
        prepared = Prepared(
            program, tuple(ranges), pages, [used for used, _, _ in buffers], [], [], []
        )
        self._encode(prepared, params, grid, None, stream, _OWN)

    def compile_queued(self) -> None:
        """Compile every kernel of a queued launch."""
        queued, self._queued = self._queued, []
        for kernel in queued:
            self._programs.program(kernel)

    def prepare(
        self, kernel: Kernel, program: Program, args: LaunchArguments, *, every: bool = False
    ) -> Prepared:
        """Check the arguments. Reads and updates of bytes that all exist are left out, unless
        `every` one is wanted."""
        buffers = args.buffers
        if len(buffers) != len(kernel.access):
            raise LaunchError(
                f"kernel {kernel.name!r} takes {len(kernel.access)} buffers, not {len(buffers)}",
                kernel=kernel.name,
            )
        if len(args.params) != kernel.params_words * 4:
            raise LaunchError(
                f"kernel {kernel.name!r} takes {kernel.params_words * 4} bytes of parameters, "
                f"not {len(args.params)}",
                kernel=kernel.name,
            )
        ranges: list[int] = []
        pages: list[Page] = []
        slices: list[Slice] = []
        reads: list[Range] = []
        updates: list[Range] = []
        writes: list[Range] = []
        storage, mask, max_binding = self._storage, self._alignment_mask, self._max_binding
        failed = bool(self._scope.failed_batches)
        for binding, access in zip(buffers, kernel.access, strict=True):
            used = binding.handle.slice
            start, size = binding.offset, binding.size
            end = start + size
            if (
                used is None
                or used.page.owner is not storage
                or start & mask
                or start < 0
                or size < 1
                or end > used.capacity
                or size > max_binding
            ):
                raise self._refusal(kernel, binding)
            page = used.page
            pages.append(page)
            slices.append(used)
            ranges += (page.number, used.offset + start, (size + 3) & -4)
            suspect = used.marks is not None or failed or every
            if access is _READ:
                if suspect:
                    reads.append((used, start, end))
            else:
                writes.append((used, start, end))
                if suspect and access is _READ_WRITE:
                    updates.append((used, start, end))
        return Prepared(program, tuple(ranges), pages, slices, reads, updates, writes)

    def _encode(
        self,
        prepared: Prepared,
        params: bytes,
        grid: Grid,
        indirect: Binding | None,
        stream: Stream,
        stream_id: int,
    ) -> None:
        program = prepared.program
        # First: to make room it may submit the open batch, and the slices note which one that is.
        uniform = self._uniform(program, params, stream) if program.uniform_bytes else None
        if stream.pending_windows:
            self._timings.open_pending(stream)
        for used in prepared.slices:
            if used.touched_by is stream:
                used.touched_batch = stream.batch
            else:
                stream.touch(used)
        group = self.group(prepared, uniform)
        counts = None if indirect is None else self._indirect.copy(indirect, stream)
        compute_pass = stream.compute_pass
        if compute_pass is None:
            compute_pass = stream.dispatching()
        if stream.program is not program:
            lib.wgpuComputePassEncoderSetPipeline(compute_pass, program.pipeline)
            stream.program = program
            stream.programs[program.name] = stream_id
        if uniform is None:
            lib.wgpuComputePassEncoderSetBindGroup(compute_pass, 0, group, 0, NULL)
        else:
            lib.wgpuComputePassEncoderSetBindGroup(compute_pass, 0, group, 1, uniform.offsets)
        if program.immediate_bytes:
            if len(params) < program.immediate_bytes:
                params = params.ljust(program.immediate_bytes, b"\0")
            lib.wgpuComputePassEncoderSetImmediates(compute_pass, 0, params, len(params))
        if counts is None:
            lib.wgpuComputePassEncoderDispatchWorkgroups(compute_pass, *grid)
        else:
            lib.wgpuComputePassEncoderDispatchWorkgroupsIndirect(compute_pass, *counts)

    def group(self, prepared: Prepared, uniform: Uniform | None) -> Pointer:
        """The bind group of a launch, made if it is new. Raises LaunchError."""
        program, ranges = prepared.program, prepared.ranges
        if uniform is not None:
            ranges = (*ranges, uniform.block.page.number)
        group = program.groups.get(ranges)
        if group is None:
            uniform_page = None if uniform is None else uniform.block.page
            group = self._programs.bind(program, ranges, prepared.pages, uniform_page)
        else:
            program.groups.move_to_end(ranges)
        return group

    def _uniform(self, program: Program, params: bytes, stream: Stream) -> Uniform:
        return self._uniforms.place(params.ljust(program.uniform_bytes, b"\0"), stream)

    def _record(
        self,
        stream_id: int,
        kernel: Kernel,
        args: LaunchArguments,
        grid: Grid,
        indirect: Binding | None,
        stream: Stream,
    ) -> None:
        """Add a launch to the stream's window, with everything its replay will need."""
        program = self._programs.program(kernel)
        prepared = self.prepare(kernel, program, args, every=True)
        if program.failure is not None:
            self._captures.doom(stream_id, program.failure)
            return
        uniform = self._uniform(program, args.params, stream) if program.uniform_bytes else None
        counts = own = None
        reads = prepared.reads
        if indirect is not None:
            used, start, _ = counts_range = self._counts_range(kernel, indirect)
            reads = [*reads, counts_range]
            counts = (used.page.buffer, used.offset + start)
            own = OwnBuffer(self._storage, COUNTS_BYTES, Usage.INDIRECT | Usage.COPY_DST)
        launch = RecordedLaunch(
            program,
            self.group(prepared, uniform),
            args.params.ljust(program.immediate_bytes, b"\0") if program.immediate_bytes else b"",
            uniform,
            grid,
            counts,
            own,
            tuple(reads),
            tuple(prepared.updates),
            tuple(prepared.writes),
        )
        self._captures.record(stream_id, launch)

    def _counts_range(self, kernel: Kernel, counts: Binding) -> Range:
        used = counts.handle.slice
        if used is None or used.page.owner is not self._storage:
            raise self._refusal(kernel, counts)
        start, end = counts.offset, counts.offset + 12
        if start & 3 or start < 0 or counts.size < 12 or end > used.size:
            raise LaunchError(
                f"kernel {kernel.name!r}: its counts need 12 bytes at a multiple of 4, found "
                f"{counts.size} at {start} of a buffer of {used.size}",
                kernel=kernel.name,
            )
        return used, start, end

    def grid(self, kernel: Kernel, count: int | Grid) -> Grid:
        """The workgroups of a launch by dimension. Raises LaunchError."""
        limit = self._max_workgroups
        if isinstance(count, int):
            if 0 < count <= limit:
                return count, 1, 1
            if 0 < count <= limit**3:
                return folded(count, limit)
        elif len(count) == 3 and all(0 < number <= limit for number in count):
            return count
        raise LaunchError(
            f"kernel {kernel.name!r}: a count of {count} workgroups; it must be at least 1, and at "
            f"most {limit} in each dimension",
            kernel=kernel.name,
        )

    def _refusal(self, kernel: Kernel, binding: Binding) -> GpuwireError:
        used = binding.handle.slice
        if used is None:
            return InvalidHandle(f"kernel {kernel.name!r} is given a handle that has no memory yet")
        if used.page.owner is not self._storage:
            return InvalidHandle(f"kernel {kernel.name!r} is given memory of another server")
        start, size = binding.offset, binding.size
        if start & self._alignment_mask:
            what = f"offset {start} is not a multiple of {self._alignment_mask + 1}"
        elif size > self._max_binding:
            what = f"{size} bytes are more than one binding holds ({self._max_binding})"
        else:
            what = f"{size} bytes at {start} do not lie in a buffer of {used.size}"
        return LaunchError(f"kernel {kernel.name!r}: {what}", kernel=kernel.name)


def folded(count: int, limit: int) -> Grid:
    """A grid of at least `count` workgroups with no dimension above `limit`, and few too many."""
    rows = -(-count // limit)
    if rows <= limit:
        return -(-count // rows), rows, 1
    layers = -(-rows // limit)
    rows = -(-rows // layers)
    return -(-count // (rows * layers)), rows, layers
