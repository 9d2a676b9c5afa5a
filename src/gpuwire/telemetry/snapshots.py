"""What a server tells whoever watches it: plain records, all of one moment.

The same records travel from the device host to the front, from the front to `gpuwire top`, to the
dashboard's page and into `--json`. Sizes are in bytes, durations in seconds, moments in seconds
since 1970 (UTC).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Count:
    """How many of a kind: an operation's class, or upload, read, sync."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class OpEvent:
    """One piece of work that a device host was asked for."""

    moment: float
    session: int
    """The session's number in its device host."""
    kind: str
    """The class of its operation; graph for several at once; upload, read or sync."""
    name: str
    shape: str
    """Type and shape of the result, empty where there is none."""
    nbytes: int
    frame: int
    """The number of the session's frame that was being run."""
    arrived: float
    """When that frame reached the device host."""
    seconds: float
    """What the device host took to hand the work to the device; it ended at `moment`."""


@dataclass(frozen=True, slots=True)
class EventName:
    """What events of one sort have in common: see `OpEvent`."""

    kind: str
    name: str
    shape: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Events of one device host, packed: see `event_block`."""

    names: tuple[EventName, ...]
    rows: str
    """Base64."""


NO_EVENTS = EventBlock((), "")


@dataclass(frozen=True, slots=True)
class KernelSample:
    """One launch that was timed."""

    moment: float
    """When its end was seen."""
    session: int
    name: str
    seconds: float
    """On the device."""


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """One kind of memory pool, added up over the device's streams."""

    name: str
    kind: str
    in_use_bytes: int
    reserved_bytes: int
    high_water_bytes: int
    """The most in use so far; streams that had theirs at different times make it too high."""
    high_water_reserved_bytes: int


@dataclass(frozen=True, slots=True)
class KernelSnapshot:
    """The kernels of one name, since the device host began."""

    name: str
    launches: int
    samples: int
    """Launches that were timed: few, so that timing slows nothing."""
    mean_seconds: float
    """Of those; 0 while there are none."""

    @property
    def device_seconds(self) -> float:
        """Device time in all, estimated from the samples."""
        return self.launches * self.mean_seconds


@dataclass(frozen=True, slots=True)
class GraphSnapshot:
    """One op-graph that a session has registered."""

    device: int
    session: int
    graph: int
    nodes: int
    classes: tuple[Count, ...]
    runs: int
    """Executions by id."""
    definition_bytes: int
    kept: bool
    """False where it was given up for lack of room."""
    last_error: str


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """One operation of a graph."""

    name: str
    kind: str
    operands: tuple[str, ...]
    """`n3` is node 3, `i0` input 0, `s1` scalar 1."""
    type: str
    nbytes: int
    error: str


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """All that a picture of a graph needs. `nodes` may be cut short; `total` says how many."""

    total: int
    inputs: tuple[str, ...]
    outputs: tuple[int, ...]
    nodes: tuple[NodeSnapshot, ...]


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """The op-graph cache, on the server's side, since its device host began."""

    runs: int = 0
    """Graphs executed by id, found: the hits."""
    registrations: int = 0
    misses: int = 0
    """Graphs that had been given up and were asked for again."""
    baseline_bytes: int = 0
    """Had each run sent its graph."""
    actual_bytes: int = 0
    """Registrations once, and what each run said; the latter is estimated from its bindings."""
    evictions: int = 0
    """Graphs that were given up for lack of room."""

    @property
    def saved_bytes(self) -> int:
        return max(0, self.baseline_bytes - self.actual_bytes)


@dataclass(frozen=True, slots=True)
class HostSessionSnapshot:
    """A session as its device host sees it."""

    session: int
    tensors: int
    memory_bytes: int
    waiting: int
    """Pieces of work that wait for an input."""


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """What a device host says of itself. Counts without another word are since its start."""

    moment: float
    timing: str
    """Where kernel times come from: device or system."""
    in_use_bytes: int
    reserved_bytes: int
    failures: int
    """Operations that failed."""
    pools: tuple[PoolSnapshot, ...]
    sessions: tuple[HostSessionSnapshot, ...]
    cache: CacheCounts
    ops: tuple[Count, ...]
    """Since the snapshot before; only while watched."""
    events: EventBlock
    """Since the snapshot before, in order, as many as there was room for."""
    dropped: int
    """Events for which there was none."""
    samples: tuple[KernelSample, ...]
    """Since the snapshot before."""
    kernels: tuple[KernelSnapshot, ...] | None
    """None, as for graphs: as told before."""
    graphs: tuple[GraphSnapshot, ...] | None
    cpu_seconds: float = 0.0
    """Processor time of its process, on all cores, a software adapter's work included."""
    fused: tuple[Count, ...] = ()
    """Operations that shared a kernel with others or needed none, by class …"""
    unfused: tuple[Count, ...] = ()
    """… and those that had a kernel, or a step on the host, to themselves."""


@dataclass(frozen=True, slots=True)
class DeviceSnapshot:
    """One device of the server."""

    index: int
    name: str
    backend: str
    kind: str
    state: str
    """ready, starting, busy (its host has not answered yet) or given up."""
    restarts: int
    timing: str
    in_use_bytes: int
    reserved_bytes: int
    failures: int
    pools: tuple[PoolSnapshot, ...]
    cache: CacheCounts
    kernels: tuple[KernelSnapshot, ...]
    cpu_seconds: float = 0.0
    """As its device host says it, as the next two."""
    fused: tuple[Count, ...] = ()
    unfused: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """One session: who, over which link, and how much."""

    name: str
    number: int
    """Its number in its device host, as in events and graphs."""
    device: int
    token: str
    client: str
    address: str
    state: str
    """open; paused while the server does not read, since the device is behind; away while the link
    is lost and the client may come back; ending."""
    age_seconds: float
    frames_in: int
    frames_out: int
    tasks: int
    bytes_in: int
    bytes_out: int
    rtt_seconds: float | None
    datagram_bytes: int
    packets_lost: int
    backlog_bytes: int
    """Tasks on their way to the device host."""
    tensors: int
    memory_bytes: int
    resumptions: int = 0
    """How often its client came back over a new link."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What went through the front since it started. Bytes are UDP payload."""

    sessions: int = 0
    refusals: int = 0
    frames_in: int = 0
    frames_out: int = 0
    tasks: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    cpu_seconds: float = 0.0
    """Processor time of the front's process."""
    upload_hits: int = 0
    """Uploads that clients announced and the server had …"""
    upload_misses: int = 0
    """… and had not."""
    upload_bytes_not_sent: int = 0
    upload_memory_bytes: int = 0
    """What is kept of uploads, now."""
    upload_disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TrafficPoint:
    """Rates over one interval, per second."""

    moment: float
    frames: float
    tasks: float
    bytes_in: float
    bytes_out: float
    saved_bytes: float
    ops: tuple[Count, ...]
    """Numbers, not rates: operations of each class in the interval."""


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """Everything, at one moment, as one viewer may see it."""

    moment: float
    server: str
    viewers: int
    missed: int
    """Snapshots that this viewer was too slow for."""
    whole: bool
    """False where the viewer's token shows its own sessions only."""
    totals: Totals
    devices: tuple[DeviceSnapshot, ...]
    sessions: tuple[SessionSnapshot, ...]
    graphs: tuple[GraphSnapshot, ...]
    traffic: tuple[TrafficPoint, ...]
    """Points since the viewer's snapshot before; in its first, as far back as is known."""
    events: tuple[tuple[int, EventBlock], ...]
    """Device and its events."""
    dropped: int
    samples: tuple[tuple[int, KernelSample], ...]
    """Device and timed launch."""
    log: tuple[str, ...]
    """Lines since the viewer's snapshot before."""
