"""A captured graph and its replay.

Everything a launch needs is made at capture: a replay looks nothing up and makes no object; for
each launch it makes up to four calls into the library, with arguments that are C values already.
Calls that would set what is set already are left out at capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuwire.compute.launch_scope import Range
from gpuwire.compute.memory.slices import Slice
from gpuwire.compute.native import NULL, Pointer, ffi, lib
from gpuwire.compute.programs import Program
from gpuwire.compute.storage import OwnBuffer
from gpuwire.compute.streams import Stream
from gpuwire.compute.uniforms import Uniform


@dataclass(frozen=True, slots=True, eq=False)
class RecordedLaunch:
    """One launch of a window. Holds what it touches: memory by its slices, bind group and uniform
    by a reference of their own, since the caches they come from may drop them."""

    program: Program
    group: Pointer
    params: bytes
    """Immediates, padded; empty for none."""
    uniform: Uniform | None
    grid: tuple[int, int, int]
    counts: tuple[Pointer, int] | None
    """The storage buffer and the offset of counts on the device."""
    counts_buffer: OwnBuffer | None
    """What they are copied to: a buffer of this launch's own."""
    reads: tuple[Range, ...]
    updates: tuple[Range, ...]
    writes: tuple[Range, ...]

    def __post_init__(self) -> None:
        lib.wgpuBindGroupAddRef(self.group)
        if self.uniform is not None:
            self.uniform.pins += 1

    def __del__(self) -> None:
        lib.wgpuBindGroupRelease(self.group)
        if self.uniform is not None:
            self.uniform.pins -= 1


@dataclass(frozen=True, slots=True)
class Effects:
    """Of a whole graph. `reads` must exist before a replay, `updates` may be fresh; both without
    what the graph itself has written before."""

    reads: tuple[Range, ...]
    updates: tuple[Range, ...]
    writes: tuple[Range, ...]


_Key = tuple[int, int, int]

_Step = tuple[
    "Pointer | None",  # pipeline, None where it is set already
    "Pointer | None",  # bind group, likewise
    int,
    Pointer,  # dynamic offsets
    "Pointer | None",  # immediates, None where there are none or they are set already
    int,
    int,
    int,
    int,
    "tuple[Pointer, int, Pointer] | None",
]


class Graph:
    """Launches to be replayed. Pins the memory, pipelines, bind groups and uniforms they use."""

    def __init__(self, launches: Sequence[RecordedLaunch], stream_id: int) -> None:
        self.stream_id = stream_id
        """The logical stream that it was captured on."""
        self.launches = len(launches)
        self._pinned = tuple(launches)
        self._names = dict.fromkeys([launch.program.name for launch in launches], stream_id)
        self._params: list[Pointer] = []
        self._steps = self._steps_of(launches)
        self.effects = _effects(launches)
        self._slices: tuple[Slice, ...] = tuple(
            {
                id(used): used
                for launch in launches
                for used, _, _ in (*launch.reads, *launch.writes)
            }.values()
        )
        self._stream: Stream | None = None
        self._batch = 0

    def settle(self) -> None:
        """Submit a replay that is still in an open batch: then nothing here is needed for it."""
        if self._stream is not None and self._stream.batch == self._batch:
            self._stream.submit()

    def encode(self, stream: Stream) -> None:
        """Add every launch to the stream's open batch."""
        batch = stream.batch
        for used in self._slices:
            if used.touched_by is stream:
                used.touched_batch = batch
            else:
                stream.touch(used)
        self._stream, self._batch = stream, batch
        set_pipeline = lib.wgpuComputePassEncoderSetPipeline
        set_group = lib.wgpuComputePassEncoderSetBindGroup
        set_immediates = lib.wgpuComputePassEncoderSetImmediates
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        compute_pass = stream.dispatching()
        for pipeline, group, offset_count, offsets, params, size, x, y, z, counts in self._steps:
            if counts is not None:
                compute_pass = _copy_counts(stream, counts)
            if pipeline is not None:
                set_pipeline(compute_pass, pipeline)
            if group is not None:
                set_group(compute_pass, 0, group, offset_count, offsets)
            if params is not None:
                set_immediates(compute_pass, 0, params, size)
            if counts is None:
                dispatch(compute_pass, x, y, z)
            else:
                lib.wgpuComputePassEncoderDispatchWorkgroupsIndirect(compute_pass, counts[2], 0)
        stream.program = None
        stream.programs.update(self._names)
        stream.launches += self.launches

    def _steps_of(self, launches: Sequence[RecordedLaunch]) -> list[_Step]:
        steps: list[_Step] = []
        before: RecordedLaunch | None = None
        for launch in launches:
            if launch.counts is not None:
                before = None  # a copy ends the pass, and a new one starts with nothing set
            same_program = before is not None and before.program is launch.program
            same_group = (
                before is not None
                and same_program
                and before.group == launch.group
                and before.uniform is launch.uniform
            )
            same_params = before is not None and same_program and before.params == launch.params
            params = None
            if launch.params and not same_params:
                owned = ffi.new("char[]", launch.params)
                self._params.append(owned)
                params = ffi.cast("void *", owned)
            counts: tuple[Pointer, int, Pointer] | None = None
            if launch.counts is not None and launch.counts_buffer is not None:
                counts = (*launch.counts, launch.counts_buffer.pointer)
            uniform = launch.uniform
            steps.append(
                (
                    None if same_program else launch.program.pipeline,
                    None if same_group else launch.group,
                    0 if uniform is None else 1,
                    NULL if uniform is None else uniform.offsets,
                    params,
                    len(launch.params),
                    *launch.grid,
                    counts,
                )
            )
            before = launch
        return steps


def _copy_counts(stream: Stream, counts: tuple[Pointer, int, Pointer]) -> Pointer:
    source, offset, target = counts
    lib.wgpuCommandEncoderCopyBufferToBuffer(stream.copying(), source, offset, target, 0, 12)
    return stream.dispatching()


def _effects(launches: Sequence[RecordedLaunch]) -> Effects:
    """What a graph needs from before, and what it writes; each range once."""
    reads: dict[_Key, Range] = {}
    updates: dict[_Key, Range] = {}
    writes: dict[_Key, Range] = {}
    written: dict[int, list[tuple[int, int]]] = {}
    for launch in launches:
        for needed, ranges in ((reads, launch.reads), (updates, launch.updates)):
            for used, start, end in ranges:
                if not _covered(written.get(id(used), ()), start, min(end, used.size)):
                    needed.setdefault((id(used), start, end), (used, start, end))
        for used, start, end in launch.writes:
            key = (id(used), start, end)
            if key not in writes:
                writes[key] = (used, start, end)
                written.setdefault(id(used), []).append((start, end))
    return Effects(tuple(reads.values()), tuple(updates.values()), tuple(writes.values()))


def _covered(written: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    """Whether one of the ranges holds all of these bytes. (Several together might: then the read
    is counted as one from before, which refuses a first replay that could have run.)"""
    return any(first <= start and last >= end for first, last in written)
