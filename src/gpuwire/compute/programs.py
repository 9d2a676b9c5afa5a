"""Compiled kernels and their bind groups, each made once.

Every storage buffer is bound as writable, whatever the kernel's source says: wgpu tracks usage by
whole buffer, so two slices of one page, one read and one written, would be refused otherwise. The
source is changed to say the same; what a kernel may write stays as its `access` declares.
"""

from __future__ import annotations

import re
from collections import OrderedDict

from gpuwire.compute.memory.pages import Page
from gpuwire.compute.native import (
    NULL,
    BufferBinding,
    ErrorKind,
    NativeDevice,
    Pointer,
    ffi,
    lib,
)
from gpuwire.compute.taint import detached
from gpuwire.errors import (
    DeviceLost,
    GpuwireError,
    KernelCompileError,
    LaunchError,
    UnsupportedFeature,
)
from gpuwire.kernels.kernel import Kernel

MAX_PROGRAMS = 8192
MAX_GROUPS = 1024
"""Of one program: a loop's working set is far below, and a group costs the library about 1 KiB.
Those that were not used for longest go first, of programs and of groups."""

_READ_ONLY_STORAGE = re.compile(r"\bvar\s*<\s*storage\s*(?:,\s*read\s*)?>")
_ERROR_PLACE = re.compile(r"wgsl:(\d+):\d+")

Ranges = tuple[int, ...]
"""Page number, offset and size of each buffer, one after the other."""


class Program:
    """One kernel, compiled, or the reason why it cannot be."""

    __slots__ = (
        "failure",
        "group_pages",
        "groups",
        "held",
        "immediate_bytes",
        "launches",
        "layout",
        "name",
        "pipeline",
        "proven",
        "uniform_bytes",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: GpuwireError | None = None
        self.pipeline: Pointer = NULL
        self.layout: Pointer = NULL
        self.launches = 0
        self.immediate_bytes = 0
        self.uniform_bytes = 0
        """Of its parameters: they are immediates or a uniform, or there are none."""
        self.held = 0
        """How often sequences that are bound hold it."""
        self.groups: OrderedDict[Ranges, Pointer] = OrderedDict()
        self.group_pages: dict[Ranges, tuple[Page, ...]] = {}
        self.proven: tuple[int, ...] | None = None
        """Sizes of buffers, each the smallest, with which wgpu accepted a dispatch."""

    def forget(self, ranges: Ranges) -> None:
        """Drop one bind group, and the notes of it at its pages."""
        lib.wgpuBindGroupRelease(self.groups.pop(ranges))
        for page in self.group_pages.pop(ranges):
            page.groups.discard((self, ranges))

    def __del__(self) -> None:
        for group in self.groups.values():
            lib.wgpuBindGroupRelease(group)
        if self.pipeline != NULL:
            lib.wgpuComputePipelineRelease(self.pipeline)


class Programs:
    """Every kernel of one server, compiled at its first launch."""

    def __init__(
        self,
        device: NativeDevice,
        *,
        features: frozenset[str],
        max_immediate_bytes: int,
        max_buffers: int,
        checked: bool,
        max_programs: int = MAX_PROGRAMS,
    ) -> None:
        self._device = device
        self._features = features
        self._max_immediate_bytes = max_immediate_bytes
        self._max_buffers = max_buffers
        self._checked = checked
        self._max_programs = max_programs
        self._programs: OrderedDict[Kernel, Program] = OrderedDict()
        self._layouts: dict[tuple[int, bool], Pointer] = {}

    def __del__(self) -> None:
        for layout in getattr(self, "_layouts", {}).values():
            lib.wgpuBindGroupLayoutRelease(layout)

    def program(self, kernel: Kernel) -> Program:
        """The kernel's program; one that does not compile has a `failure`, found out once."""
        program = self._programs.get(kernel)
        if program is None:
            if len(self._programs) >= self._max_programs:
                self._drop_oldest()
            program = self._programs[kernel] = self._compile(kernel)
        else:
            self._programs.move_to_end(kernel)
        return program

    def knows(self, kernel: Kernel) -> bool:
        """Whether the kernel has been compiled, or was tried to be."""
        return kernel in self._programs

    def launch_counts(self) -> dict[str, int]:
        """Launches by kernel, of those whose programs are kept; those of one name together."""
        counts: dict[str, int] = {}
        for program in self._programs.values():
            counts[program.name] = counts.get(program.name, 0) + program.launches
        return counts

    def bind(
        self,
        program: Program,
        ranges: Ranges,
        pages: list[Page],
        uniform_page: Page | None,
    ) -> Pointer:
        """A new bind group over these ranges, kept in `program.groups`. Raises LaunchError."""
        entries = [
            (page.buffer, ranges[3 * index + 1], ranges[3 * index + 2])
            for index, page in enumerate(pages)
        ]
        sizes = tuple(entry[2] for entry in entries)
        if uniform_page is not None:
            entries.append((uniform_page.buffer, 0, program.uniform_bytes))
            pages = [*pages, uniform_page]
        group = self._device.create_bind_group(program.layout, entries)
        try:
            self._check(program, group, sizes)
        except LaunchError:
            lib.wgpuBindGroupRelease(group)
            raise
        if len(program.groups) >= MAX_GROUPS:
            program.forget(next(iter(program.groups)))
        program.groups[ranges] = group
        program.group_pages[ranges] = tuple(pages)
        for page in pages:
            page.groups.add((program, ranges))
        return group

    def drop(self, kernel: Kernel) -> None:
        """Forget a kernel and its bind groups; what is encoded or captured with it goes on."""
        if kernel in self._programs:
            self._drop(kernel)

    def _drop_oldest(self) -> None:
        """Forget the program that was not asked for for longest. Those of sequences that are bound
        run without being asked for; they go last."""
        programs = self._programs
        for _ in range(len(programs)):
            kernel = next(iter(programs))
            if not programs[kernel].held:
                break
            programs.move_to_end(kernel)
        self._drop(next(iter(programs)))

    def _drop(self, kernel: Kernel) -> None:
        program = self._programs.pop(kernel)
        for ranges in tuple(program.groups):
            program.forget(ranges)

    def _check(self, program: Program, group: Pointer, sizes: tuple[int, ...]) -> None:
        """Let wgpu check buffer sizes against the shader in an encoder of its own, once for sizes
        that no proven ones cover: found in the stream's encoder, the error would take every
        launch of the batch with it."""
        error = self._device.take_error()
        proven = program.proven
        if error is None:
            if proven and all(size >= least for size, least in zip(sizes, proven, strict=True)):
                return
            encoder = lib.wgpuDeviceCreateCommandEncoder(self._device.pointer, NULL)
            trial = lib.wgpuCommandEncoderBeginComputePass(encoder, NULL)
            lib.wgpuComputePassEncoderSetPipeline(trial, program.pipeline)
            offsets = (1, _NO_OFFSET) if program.uniform_bytes else (0, NULL)
            lib.wgpuComputePassEncoderSetBindGroup(trial, 0, group, *offsets)
            if program.immediate_bytes:
                nothing = bytes(program.immediate_bytes)
                lib.wgpuComputePassEncoderSetImmediates(trial, 0, nothing, len(nothing))
            lib.wgpuComputePassEncoderDispatchWorkgroups(trial, 0, 1, 1)
            lib.wgpuComputePassEncoderEnd(trial)
            lib.wgpuComputePassEncoderRelease(trial)
            command_buffer = lib.wgpuCommandEncoderFinish(encoder, NULL)
            lib.wgpuCommandEncoderRelease(encoder)
            error = self._device.take_error()
            if error is None:
                # It does nothing, but wgpu-native leaks a command buffer that is not submitted.
                submitted = ffi.new("WGPUCommandBuffer[]", [command_buffer])
                lib.wgpuQueueSubmit(self._device.queue, 1, submitted)
            lib.wgpuCommandBufferRelease(command_buffer)
        if error is not None:
            message = f"kernel {program.name!r} cannot be launched so: {error.message}"
            raise LaunchError(message, kernel=program.name)
        program.proven = tuple(map(min, sizes, proven)) if proven else sizes

    def _compile(self, kernel: Kernel) -> Program:
        program = Program(kernel.name)
        try:
            self._build(program, kernel)
        except GpuwireError as error:
            program.failure = detached(error)
        return program

    def _build(self, program: Program, kernel: Kernel) -> None:
        self._check_needs(kernel)
        device = self._device
        device.take_error()
        params_bytes = (kernel.params_words + 3) // 4 * 16
        as_immediates = 0 < params_bytes <= self._max_immediate_bytes
        program.immediate_bytes = params_bytes if as_immediates else 0
        program.uniform_bytes = 0 if as_immediates else params_bytes
        source = _completed(kernel, program)
        writable = _READ_ONLY_STORAGE.sub("var<storage, read_write>", source)
        if not kernel.trusted and writable != source:
            # As it was written, so that it cannot write what it declares read-only.
            declared = device.create_shader(source, kernel.name)
            if declared is None:
                raise self._compile_error(kernel)
            lib.wgpuShaderModuleRelease(declared)
        module = device.create_shader(
            writable, kernel.name, checked=self._checked and not kernel.trusted
        )
        if module is None:
            raise self._compile_error(kernel)
        program.layout = self._layout(len(kernel.access), program.uniform_bytes > 0)
        pipeline = device.create_pipeline(
            module, kernel.entry_point, program.layout, program.immediate_bytes, kernel.name
        )
        lib.wgpuShaderModuleRelease(module)
        if pipeline is None:
            raise self._compile_error(kernel)
        program.pipeline = pipeline

    def _check_needs(self, kernel: Kernel) -> None:
        missing = sorted(kernel.features - self._features)
        if missing:
            message = f"kernel {kernel.name!r} needs {missing[0]!r}, which the adapter lacks"
            raise UnsupportedFeature(message, feature=missing[0])
        if len(kernel.access) > self._max_buffers:
            raise LaunchError(
                f"kernel {kernel.name!r} binds {len(kernel.access)} buffers; "
                f"the adapter allows {self._max_buffers}",
                kernel=kernel.name,
            )

    def _layout(self, buffers: int, with_uniform: bool) -> Pointer:
        layout = self._layouts.get((buffers, with_uniform))
        if layout is None:
            entries = [BufferBinding.STORAGE] * buffers
            if with_uniform:
                entries.append(BufferBinding.UNIFORM)
            layout = self._device.create_group_layout(entries)
            self._layouts[buffers, with_uniform] = layout
        return layout

    def _compile_error(self, kernel: Kernel) -> GpuwireError:
        error = self._device.take_error()
        if error is not None and error.kind is ErrorKind.LOST:
            return DeviceLost(f"the GPU device was lost: {error.message}", reason=error.message)
        text = error.message if error else "the compiler gave no reason"
        place = _ERROR_PLACE.search(text)
        line = int(place.group(1)) if place else None
        where = f", line {line}" if line else ""
        return KernelCompileError(
            f"kernel {kernel.name!r} does not compile{where}: {text}",
            kernel=kernel.name,
            line=line,
            compiler=text,
        )


_NO_OFFSET = (0,)


def _completed(kernel: Kernel, program: Program) -> str:
    """The source with `params` declared: behind it, so that lines keep their numbers and
    directives stay first."""
    source = kernel.source
    if not kernel.params_words:
        return source
    vectors = (kernel.params_words + 3) // 4
    if program.immediate_bytes:
        return f"{source}\nvar<immediate> params: array<vec4<u32>, {vectors}>;\n"
    binding = len(kernel.access)
    return (
        f"{source}\n@group(0) @binding({binding}) "
        f"var<uniform> params: array<vec4<u32>, {vectors}>;\n"
    )
