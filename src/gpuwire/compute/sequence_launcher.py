"""Running sequences of launches: one check, one claim, and a row of calls made ready before.

A program that repeats gets its memory at the same few places again and again, so what a sequence
tells the library is kept by the places it lay at. Found there, a run looks up no kernel and no
bind group and makes no object but its memory's; it costs two to three calls into the library for
each launch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gpuwire.compute.capture import Captures
from gpuwire.compute.handles import Binding, Handle
from gpuwire.compute.launch_scope import LaunchScope, Range
from gpuwire.compute.launcher import Launcher
from gpuwire.compute.launches import LaunchArguments
from gpuwire.compute.memory.slices import Slice
from gpuwire.compute.native import NULL, Pointer, ffi, lib
from gpuwire.compute.programs import Program, Programs
from gpuwire.compute.scheduler import Scheduler
from gpuwire.compute.sequences import (
    BoundSequence,
    LaunchSequence,
    Places,
    SequenceLaunch,
    all_bound,
)
from gpuwire.compute.streams import Stream
from gpuwire.compute.timings import Timings
from gpuwire.compute.uniforms import Uniform, Uniforms
from gpuwire.errors import LaunchError

MAX_PLACES = 64
"""Sets of places kept of one sequence: a loop's memory goes round in a few, and in more where the
program keeps the last values that it made."""
MAX_BOUND_STEPS = 1 << 15
"""Launches kept bound in all sequences together, 1.3 KiB each with their bind groups' notes; the
sequences that have not run for longest go first."""


class SequenceLauncher:
    """Runs sequences on streams."""

    def __init__(
        self,
        launcher: Launcher,
        programs: Programs,
        uniforms: Uniforms,
        scheduler: Scheduler,
        scope: LaunchScope,
        captures: Captures,
        timings: Timings,
    ) -> None:
        self._launcher = launcher
        self._programs = programs
        self._uniforms = uniforms
        self._scheduler = scheduler
        self._scope = scope
        self._captures = captures
        self._timings = timings
        self._recent: OrderedDict[LaunchSequence, None] = OrderedDict()
        """Sequences of which something is bound, the one that ran last at the end."""
        self._bound_steps = 0
        self._runs = 0

    def run(
        self,
        sequence: LaunchSequence,
        handles: list[Handle | None],
        brought: Sequence[bytes],
        stream_id: int,
    ) -> bool:
        """See `WgpuServer.launch_sequence`."""
        if self._captures.windows and self._captures.is_capturing(stream_id):
            return False
        stream = self._scheduler.stream(stream_id)
        slices = self._given(sequence, handles)
        if slices is None:
            return False
        memory = stream.memory
        for slot, size in sequence.made:
            handle = Handle()
            handle.slice = used = memory.allocate(size)
            handles[slot] = handle
            slices.append(used)
        places = tuple([used.block.place for used in slices])
        bound = sequence.bound.get(places)
        if bound is None:
            bound = self._bind(sequence, places, slices, handles, stream)
            if bound is None:
                return False
        self._recent.move_to_end(sequence)
        count = len(sequence.launches)
        if stream.launches + count > self._scheduler.tasks_max:
            stream.submit()
        if stream.pending_windows:
            self._timings.open_pending(stream)
        batch = stream.batch
        for used in slices:
            if used.touched_by is stream:
                used.touched_batch = batch
            else:
                stream.touch(used)
        for uniform in bound.uniforms:
            uniform.stream, uniform.batch = stream, batch
        writes: list[Range] = [(slices[n], 0, slices[n].size) for n in sequence.written]
        self._scope.claim(stream, writes)
        _encode(bound, brought, stream)
        self._scope.leave(stream, writes)
        for name in bound.names:
            stream.programs[name] = stream_id
        bound.runs += 1
        self._runs += 1
        bound.last_run = self._runs
        self._scheduler.launched(stream, count)
        return True

    def count_launches(self) -> None:
        """Bring the programs' counts of launches up to date."""
        for bound in all_bound(self._recent):
            bound.count_launches()

    def clear(self) -> None:
        """Let go of everything that is bound."""
        for sequence in self._recent:
            for places in tuple(sequence.bound):
                sequence.forget(places)
        self._recent.clear()
        self._bound_steps = 0

    def _given(
        self, sequence: LaunchSequence, handles: Sequence[Handle | None]
    ) -> list[Slice] | None:
        """The memory of what is given; None if any of it needs to be looked at launch by launch."""
        failed = self._scope.failed_batches
        slices: list[Slice] = []
        for slot, least in sequence.given:  # The caller has put these in.
            used = handles[slot].slice  # type: ignore[union-attr]
            if (
                used is None
                or used.marks is not None
                or used.capacity < least
                or (failed and used.written_batch in failed)
            ):
                return None
            slices.append(used)
        return slices

    # --- Binding ---

    def _bind(
        self,
        sequence: LaunchSequence,
        places: Places,
        slices: Sequence[Slice],
        handles: Sequence[Handle | None],
        stream: Stream,
    ) -> BoundSequence | None:
        """The sequence over memory at these places, kept; None if a kernel does not compile or
        cannot be launched so: one by one, that is found out where it belongs."""
        binding = _Binding()
        for launch in sequence.launches:
            try:
                if not self._add(binding, launch, handles, stream):
                    return None
            except LaunchError:
                return None
        bound = binding.bound
        bound.names = tuple(dict.fromkeys(program.name for program in bound.programs))
        bound.pages = {used.page for used in slices}
        bound.pages.update(uniform.block.page for uniform in bound.uniforms)
        for page in bound.pages:
            page.groups.add((sequence, places))
        self._keep(sequence, places, bound)
        return bound

    def _add(
        self,
        binding: _Binding,
        launch: SequenceLaunch,
        handles: Sequence[Handle | None],
        stream: Stream,
    ) -> bool:
        program = self._programs.program(launch.kernel)
        if program.failure is not None or (program.uniform_bytes and launch.more):
            return False
        # What is given is there, and what is made was allocated for this run.
        bindings = [
            Binding(handles[part.slot], part.offset, part.size)  # type: ignore[arg-type]
            for part in launch.buffers
        ]
        arguments = LaunchArguments(bindings, launch.params + bytes(launch.more))
        prepared = self._launcher.prepare(launch.kernel, program, arguments)
        uniform: Uniform | None = None
        if program.uniform_bytes:
            padded = launch.params.ljust(program.uniform_bytes, b"\0")
            uniform = self._uniforms.place(padded, stream)
        group = self._launcher.group(prepared, uniform)
        grid = self._launcher.grid(launch.kernel, launch.workgroups)
        binding.add(launch, program, group, uniform, grid)
        return True

    def _keep(self, sequence: LaunchSequence, places: Places, bound: BoundSequence) -> None:
        recent = self._recent
        size = len(sequence.launches)
        if len(sequence.bound) >= MAX_PLACES:
            sequence.forget(sequence.oldest())
        sequence.bound[places] = bound
        recent[sequence] = None
        recent.move_to_end(sequence)
        self._bound_steps += size
        if self._bound_steps > MAX_BOUND_STEPS:
            # Pages that went took some along: count anew, and only now.
            self._bound_steps = sum(len(one.steps) for one in all_bound(recent))
        while self._bound_steps > MAX_BOUND_STEPS and len(recent) > 1:
            oldest, _ = recent.popitem(last=False)
            for kept in tuple(oldest.bound):
                oldest.forget(kept)
                self._bound_steps -= len(oldest.launches)


class _Binding:
    """A bound sequence in the making. Leaves out what would set what is set already."""

    def __init__(self) -> None:
        self.bound = BoundSequence()
        self._program: Program | None = None
        self._group: tuple[Pointer, Uniform | None] | None = None
        self._immediates: bytes | None = None
        """Those of the launch before; None where a run brings some."""

    def add(
        self,
        launch: SequenceLaunch,
        program: Program,
        group: Pointer,
        uniform: Uniform | None,
        grid: tuple[int, int, int],
    ) -> None:
        """One launch more."""
        bound = self.bound
        bound.hold(program, group, uniform)
        same_program = program is self._program
        same_group = same_program and (group, uniform) == self._group
        size = program.immediate_bytes
        after = bytes(max(0, size - len(launch.params) - launch.more))
        immediates = None if launch.more else launch.params + after
        fixed: Pointer | None = None
        if size and immediates is not None:
            if same_program and immediates == self._immediates:
                size = 0
            else:
                fixed = ffi.new("char[]", immediates)
                bound.owned.append(fixed)
        bound.steps.append(
            (
                None if same_program else program.pipeline,
                None if same_group else group,
                0 if uniform is None else 1,
                NULL if uniform is None else uniform.offsets,
                fixed,
                launch.params,
                after,
                size,
                *grid,
            )
        )
        self._program, self._group, self._immediates = program, (group, uniform), immediates


def _encode(bound: BoundSequence, brought: Sequence[bytes], stream: Stream) -> None:
    """Tell the library all of it."""
    set_pipeline = lib.wgpuComputePassEncoderSetPipeline
    set_group = lib.wgpuComputePassEncoderSetBindGroup
    set_immediates = lib.wgpuComputePassEncoderSetImmediates
    dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
    compute_pass = stream.dispatching()
    more = iter(brought)
    for pipeline, group, offsets, at, fixed, before, after, size, x, y, z in bound.steps:
        if pipeline is not None:
            set_pipeline(compute_pass, pipeline)
        if group is not None:
            set_group(compute_pass, 0, group, offsets, at)
        if fixed is not None:
            set_immediates(compute_pass, 0, fixed, size)
        elif size:
            set_immediates(compute_pass, 0, before + next(more) + after, size)
        dispatch(compute_pass, x, y, z)
    stream.program = bound.programs[-1]
