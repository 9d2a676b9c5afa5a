"""What a session has sent and received, and what became of it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from operator import add

from gpuwire.ir.operations import OpClass
from gpuwire.telemetry.logs import Logger
from gpuwire.telemetry.savings import op_classes
from gpuwire.transport import OffloadInfo
from gpuwire.wire.messages import WorkCounts


@dataclass(frozen=True, slots=True)
class OpCounts:
    """Numbers of operations, by class."""

    elementwise: int = 0
    reduction: int = 0
    matmul: int = 0
    shape: int = 0
    creation: int = 0
    indexing: int = 0

    @property
    def total(self) -> int:
        """Of all classes."""
        return sum(astuple(self))


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What a cache of op-graphs was good for."""

    hits: int = 0
    """Runs of a graph that was there."""
    misses: int = 0
    """Runs of one that was not, and had to be told."""
    evictions: int = 0
    """Graphs given up to make room."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the session was opened. Bytes are those of messages and bulk streams; what QUIC
    adds is in `Device.path`, which counts datagrams."""

    frames_sent: int
    tasks_sent: int
    """Drops of tensors included: one task for all that died while a batch was open."""
    bytes_sent: int
    bytes_received: int
    upload_hits: int
    """Uploads that were announced (`remote.upload_cache`) and that the server had …"""
    upload_misses: int
    """… and those that it had not."""
    upload_bytes_not_sent: int
    """The bytes of the first."""
    compression_saved_bytes: int
    """Tensor bytes that went both ways, less what was sent for them."""
    graphs_registered: int
    """Op-graphs that the server was told."""
    graph_executions: int
    """Runs of them, the first ones included."""
    graph_misses: int
    """How often the server had given one up and was told again."""
    client_cache: CacheUse
    """The cache here, of graphs that the server was told. Each run is a hit or, where it registers
    its graph, a miss."""
    server_cache: CacheUse
    """The server's, of this session. A run that registers its graph is neither hit nor miss."""
    fused_ops: OpCounts
    """Operations that ran in one kernel with others, or needed none: views, and what nothing
    reads …"""
    unfused_ops: OpCounts
    """… and those that had a kernel, or a step on the host, to themselves. The server counts these
    two and its cache, and tells along with its replies: all that a sync or a read has waited for
    is in. What is run anew after a failure counts again."""
    baseline_bytes: int
    """What the runs would have been with the whole graph and all its bindings sent each time …"""
    actual_bytes: int
    """… and what was sent for them: each graph once, then what changed from run to run."""
    replies_pending: int
    """Reads and syncs whose answer is yet to come."""
    resumptions: int
    """How often the session went on over another link."""
    rtt_seconds: float | None
    """The smoothed round trip as QUIC measures it; None before the first measurement."""
    datagram_bytes: int
    """The size of a full datagram on the present path."""
    segmentation: OffloadInfo
    """Whether bursts are cut into datagrams by the kernel, and if not, why."""

    @property
    def saved_bytes(self) -> int:
        """What calling known graphs by id has saved."""
        return self.baseline_bytes - self.actual_bytes


class ServerCounts:
    """What the server has counted for a session, as far as it has told."""

    def __init__(self, logger: Logger) -> None:
        """`logger` is told what comes, at level `full`."""
        self._operations = (0,) * 2 * _CLASSES
        self._cache = (0, 0, 0)
        self._logger = logger

    def take(self, told: WorkCounts) -> None:
        """Adds what the server counted since it told the last time."""
        cache = (told.graph_hits, told.graph_misses, told.graph_evictions)
        self._cache = tuple(map(add, self._cache, cache))
        self._operations = tuple(map(add, self._operations, told.operations))
        if self._logger.wants_full:
            classes = op_classes(told.operations[:_CLASSES], told.operations[_CLASSES:])
            self._logger.full(f"the server ran: {classes or 'nothing new'}")

    @property
    def cache(self) -> CacheUse:
        """Of the server's cache."""
        return CacheUse(*self._cache)

    @property
    def fused(self) -> OpCounts:
        """Operations without a kernel of their own."""
        return OpCounts(*self._operations[:_CLASSES])

    @property
    def unfused(self) -> OpCounts:
        """Operations with one."""
        return OpCounts(*self._operations[_CLASSES:])


_CLASSES = len(OpClass)
