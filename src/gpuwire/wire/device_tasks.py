"""Tasks and replies for a device's own face: kernels that a user wrote, captured graphs of their
launches, memory, time, and plans.

Kernels and captured graphs have ids out of the same row as tensors, so that `DropTensors` lets go
of all three.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ids import CaptureId, KernelId, LocationId, RequestId, StreamId, TensorId
from gpuwire.ir.tensors import TensorType

Grid = tuple[int, int, int]
"""Workgroups in x, y and z."""

# --- Kernels ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterKernel:
    """Make a kernel of WGSL source. No reply; it is compiled at its first launch, whose outputs
    carry what is wrong with it."""

    kernel: KernelId
    name: str
    """For errors."""
    source: str
    entry_point: str
    workgroup_size: Grid
    written: tuple[bool, ...]
    """For each buffer, in the order of their bindings, whether it is written."""
    params_words: int
    """32-bit words of parameters that every launch brings."""


@dataclass(frozen=True, slots=True)
class LaunchKernel:
    """Run a kernel over tensors, in the order of its bindings. A tensor never changes: each that
    the kernel writes is copied first, and the copy becomes one of `outputs`; but one that nobody
    can read any more gives its memory to the output. No reply; a failure taints the outputs."""

    stream: StreamId
    kernel: KernelId
    grid: Grid
    tensors: tuple[TensorId, ...]
    outputs: tuple[TensorId, ...]
    """One for each buffer that is written."""
    params: bytes
    location: LocationId
    spent: int = 0
    """Bit n: the nth of the tensors that are written is named by no later task but its drop."""


# --- Captured graphs -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginCapture:
    """Launches for a graph follow. No reply."""

    graph: CaptureId


@dataclass(frozen=True, slots=True)
class CaptureLaunch:
    """One launch of a graph that is being captured; it is not run. Its buffers are numbers of the
    graph's own memory. No reply."""

    graph: CaptureId
    kernel: KernelId
    grid: Grid
    slots: tuple[int, ...]
    params: bytes
    location: LocationId


@dataclass(frozen=True, slots=True)
class EndCapture:
    """The graph is whole, its memory is of these types: `Done`, or `Failed` with what spoils it.
    `graph` is then unknown, as after `DropTensors`."""

    stream: StreamId
    request: RequestId
    graph: CaptureId
    types: tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class ReplayCapture:
    """Run a captured graph. First each of `inputs` is copied into the memory of its number; what
    the graph has left in its memory of the numbers in `outputs` becomes tensors. No reply; a
    failure taints the outputs."""

    stream: StreamId
    graph: CaptureId
    inputs: tuple[tuple[int, TensorId], ...]
    outputs: tuple[tuple[int, TensorId], ...]
    location: LocationId


# --- Memory ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetAllocationMode:
    """Whether the stream's memory is kept in buckets of exact sizes from here on. No reply."""

    stream: StreamId
    persistent: bool


@dataclass(frozen=True, slots=True)
class AskMemory:
    """Ask for the memory pools of a stream: `MemoryReported` or `Failed`."""

    stream: StreamId
    request: RequestId


@dataclass(frozen=True, slots=True)
class CleanMemory:
    """Give back what nothing holds, once the session's work has ended: `MemoryFreed` or
    `Failed`."""

    request: RequestId


@dataclass(frozen=True, slots=True)
class PoolReport:
    """One memory pool of a device. Sizes in bytes."""

    name: str
    kind: str
    """sliced, exclusive, persistent or direct."""
    page_bytes: int
    """The size of its largest page; for exclusive pools of the largest buffer."""
    max_slice_bytes: int
    """The largest request that it serves; 0 where there is no bound."""
    pages: int
    slices: int
    """Handed out now."""
    bytes_in_use: int
    """What the holders asked for, padding not counted."""
    bytes_reserved: int
    """The sum of its pages."""
    bytes_padding: int
    """Handed out beyond what was asked for: alignment."""
    high_water_in_use: int
    high_water_reserved: int


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The memory behind one stream, pools in the order in which a request tries them, then those
    that all streams share. Other sessions' memory is in it where they share the pools.

    Sizes in bytes.
    """

    pools: tuple[PoolReport, ...]
    bytes_in_use: int
    bytes_reserved: int
    session_bytes: int
    """Of this session's tensors, on all its streams."""
    session_limit: int
    """What they may be at most; 0 is no limit."""


@dataclass(frozen=True, slots=True)
class MemoryReported:
    """The answer to `AskMemory`."""

    request: RequestId
    report: MemoryReport


@dataclass(frozen=True, slots=True)
class MemoryFreed:
    """The answer to `CleanMemory`: bytes given back to the driver."""

    request: RequestId
    size: int


# --- Time ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartProfile:
    """Open a window on the stream's time, named by `request`, which `EndProfile` closes. No
    reply."""

    stream: StreamId
    request: RequestId


@dataclass(frozen=True, slots=True)
class EndProfile:
    """Close the window of that request: `ProfileTime`, or `Failed` where its number means
    nothing."""

    stream: StreamId
    request: RequestId


@dataclass(frozen=True, slots=True)
class ProfileTime:
    """The answer to `EndProfile`."""

    request: RequestId
    seconds: float
    by_device: bool
    """By the device's own timestamps; else by the system's clock."""


# --- Plans -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeGraph:
    """Ask for the plan by which a graph of that definition runs over contiguous tensors, as text;
    nothing is run. `GraphDescribed` or `Failed`."""

    request: RequestId
    definition: bytes
    """Encoded."""


@dataclass(frozen=True, slots=True)
class GraphDescribed:
    """The answer to `DescribeGraph`."""

    request: RequestId
    text: str


DeviceTask = (
    RegisterKernel
    | LaunchKernel
    | BeginCapture
    | CaptureLaunch
    | EndCapture
    | ReplayCapture
    | SetAllocationMode
    | AskMemory
    | CleanMemory
    | StartProfile
    | EndProfile
    | DescribeGraph
)
DeviceAnswer = MemoryReported | MemoryFreed | ProfileTime | GraphDescribed
