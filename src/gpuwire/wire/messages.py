"""Everything that travels between a client and a server.

Three layers. A **message** is one length-prefixed item of the control stream. A **frame** is the
message that carries a batch: its tasks (client to server) or replies (server to client) are
already encoded, because the front passes them on without decoding them. A **task** or a **reply**
is one unit inside a frame.

Tensor bytes of at most `INLINE_BYTES` travel inside their task or reply; longer ones travel on
a unidirectional bulk stream of their own, which begins with a `BulkHeader`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuwire.errors import FieldValue
from gpuwire.ids import GraphId, RequestId, SessionId, StreamId, TensorId
from gpuwire.ir.operations import Operation
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.wire.device_tasks import DeviceAnswer, DeviceTask

PROTOCOL_VERSIONS = (1,)
"""The versions this code speaks, best first."""

INLINE_BYTES = 16 * 1024
"""A longer tensor gets a bulk stream: below this, a stream of its own costs more than a copy."""

Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An error on its way: its class by wire code, its text and fields, and what caused it."""

    code: int
    message: str
    fields: tuple[tuple[str, FieldValue], ...] = ()
    cause: ErrorRecord | None = None


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One adapter of a server. Sizes in bytes."""

    index: int
    name: str
    backend: str
    """Vulkan, Metal, D3D12 or OpenGL."""
    kind: str
    """discrete, integrated, virtual, cpu or unknown."""
    driver: str
    dtypes: tuple[str, ...]
    """Names of the data types that arrays may have there."""
    features: tuple[str, ...]
    max_buffer_bytes: int
    max_binding_bytes: int
    max_workgroup_invocations: int
    max_workgroup_memory: int


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What the server allows this session. Sizes in bytes; 0 means no limit."""

    max_frame_bytes: int
    max_upload_bytes: int
    max_memory_bytes: int
    resume_grace_seconds: float


# --- Messages of the control stream ----------------------------------------------------------

RESUME_KEY_BYTES = 32

Progress = tuple[tuple[RequestId, int], ...]
"""Requests whose bulk bytes were under way when a link was lost, and how many of them were taken
in."""


@dataclass(frozen=True, slots=True)
class Resume:
    """What a client that lost its link says of its session. Its progress names every download
    that has begun, and those that ended last: of others nothing came."""

    session: SessionId
    key: bytes = field(repr=False)
    """The session's `Welcome.key`: its id stands in logs."""
    acknowledged: int
    """The highest reply frame taken in."""
    downloads: Progress = ()


@dataclass(frozen=True, slots=True)
class Resumed:
    """What the server says of a session that goes on over a new link. Uploads that its progress
    does not name are sent from their beginning; what it has whole already, it stops."""

    acknowledged: int
    """The highest task frame taken in."""
    uploads: Progress = ()


@dataclass(frozen=True, slots=True)
class Hello:
    """The client's first message on a link. `device` None asks for the list of devices and no
    session."""

    versions: tuple[int, ...]
    token: str = field(repr=False)
    """Never shown: a message may end up in a log."""
    device: int | None
    client: str
    """Host name, process id and package version, for the server's log."""
    resume: Resume | None = None
    """The session to go on with, in place of a new one."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's answer: the version both will speak, and the session if one was asked for. After
    a resumed one, each side sends the frames again that the other has not taken in."""

    version: int
    session: SessionId | None
    devices: tuple[DeviceInfo, ...]
    limits: SessionLimits
    server: str
    key: bytes | None = field(default=None, repr=False)
    """With this a new session can be resumed. None where it cannot."""
    resumed: Resumed | None = None


@dataclass(frozen=True, slots=True)
class TaskFrame:
    """One batch of tasks. `sequence` counts a session's frames from 1 without gaps;
    `acknowledged` is the highest reply frame that the sender has taken in."""

    sequence: int
    acknowledged: int
    count: int
    """Tasks inside, for telemetry."""
    tasks: Buffer
    traceparent: str = ""
    """Which trace the work belongs to, as W3C Trace Context writes it; empty, and not on the wire,
    where nothing is traced. Not checked here: a malformed one is ignored, as that says."""


@dataclass(frozen=True, slots=True)
class ReplyFrame:
    """One batch of replies; numbered as task frames are, by the server."""

    sequence: int
    acknowledged: int
    count: int
    replies: Buffer


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Every frame up to this number was taken in, with nothing to send back along with it."""

    acknowledged: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Asks the peer to answer with the same number."""

    number: int


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The answer to a `Heartbeat`."""

    number: int


@dataclass(frozen=True, slots=True)
class Watch:
    """A client that asked for no session wants to see what the server does: it gets the next
    `Facts`. Asking again is how it goes on, so a slow viewer is sent no more than it reads."""

    number: int
    closely: bool = False
    """For more timed launches, which the work pays for: a profile is being taken."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The answer to the `Watch` of that number. Times are in microseconds since 1970 by the
    server's clock: with its own, a viewer knows how far apart the clocks are (RFC 5905 section 8).
    """

    number: int
    received_us: int
    """When the `Watch` came."""
    sent_us: int
    snapshot: Buffer
    """A `telemetry.snapshots.ServerSnapshot`, as `telemetry.plain` writes it: JSON, for programs
    and people who write their own viewer."""


@dataclass(frozen=True, slots=True)
class AnnounceUpload:
    """The bytes of an upload have this BLAKE3 hash; the client sends none of them before it has
    the answer, an `UploadFound`. To announce an upload again is to ask again."""

    request: RequestId
    length: int
    digest: bytes
    """32 bytes."""


@dataclass(frozen=True, slots=True)
class UploadFound:
    """The answer to an `AnnounceUpload`. `found`: the server has such bytes, which came from the
    same token, and takes those. Else they are to be sent on a bulk stream."""

    request: RequestId
    found: bool


@dataclass(frozen=True, slots=True)
class Close:
    """The sender's last message; without an error it is a regular end. As the first answer to a
    `Hello` it is a refusal."""

    error: ErrorRecord | None


Message = (
    Hello
    | Welcome
    | TaskFrame
    | ReplyFrame
    | Acknowledge
    | Heartbeat
    | HeartbeatReply
    | Watch
    | Facts
    | AnnounceUpload
    | UploadFound
    | Close
)


# --- Tasks -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunOperation:
    """Run one operation; its result becomes a tensor of the session. No reply."""

    stream: StreamId
    operation: Operation


@dataclass(frozen=True, slots=True)
class RegisterTensor:
    """Make a tensor of bytes from the client. `data` None: they come on the bulk stream named by
    `request`. No reply; a failure taints the tensor."""

    stream: StreamId
    request: RequestId
    tensor: TensorId
    type: TensorType
    data: Buffer | None


@dataclass(frozen=True, slots=True)
class ReadTensor:
    """Ask for a tensor's bytes: `TensorData` or `Failed`."""

    stream: StreamId
    request: RequestId
    tensor: TensorId


@dataclass(frozen=True, slots=True)
class SyncStream:
    """Ask to be told when all work sent before on the stream, uploads included, has ended on the
    device: `Done`, or `Failed` with the first failure that no reply has reported yet. `stream` None
    is every stream of the session."""

    stream: StreamId | None
    request: RequestId


@dataclass(frozen=True, slots=True)
class DropTensors:
    """The client holds these tensors no longer; or kernels, or captured graphs, whose ids are out
    of the same row. No reply."""

    tensors: tuple[TensorId, ...]


@dataclass(frozen=True, slots=True)
class RunGraph:
    """Run a graph; its outputs become tensors of the session. No reply, but `GraphMissing` if the
    server has given the graph up: then the run waits for its `DefineGraph`.

    Everything but stream and graph is what has changed since the graph's run before, None or empty
    where nothing has: `wire.bindings` says what is coded, and how. `definition`, an encoded
    `GraphDefinition`, registers the graph under that id first.
    """

    stream: StreamId
    graph: GraphId
    scalars: tuple[tuple[int, Scalar], ...] = ()
    base: TensorId | None = None
    dropped: tuple[int, ...] | None = None
    inputs: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = None
    definition: Buffer | None = None


@dataclass(frozen=True, slots=True)
class DefineGraph:
    """Answers `GraphMissing`; `definition` None where the client has given the graph up too. No
    reply."""

    graph: GraphId
    definition: Buffer | None


Task = (
    RunOperation
    | RegisterTensor
    | ReadTensor
    | SyncStream
    | DropTensors
    | RunGraph
    | DefineGraph
    | DeviceTask
)


# --- Replies ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorData:
    """A tensor's bytes. `data` None: they come on the bulk stream named by `request`."""

    request: RequestId
    type: TensorType
    data: Buffer | None


@dataclass(frozen=True, slots=True)
class Done:
    """What was asked for has ended."""

    request: RequestId


@dataclass(frozen=True, slots=True)
class Failed:
    """What was asked for cannot be given. `ExecutionError` records carry the location id of the
    operation that failed in place of its text; the client knows the line."""

    request: RequestId
    error: ErrorRecord
    location: int


@dataclass(frozen=True, slots=True)
class GraphMissing:
    """A graph that is to be run was given up for lack of room; `DefineGraph` is wanted. Sent once
    for each time that it is given up."""

    graph: GraphId


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """What the device host has counted for the session since it told the last time. It answers
    nothing: it goes ahead of replies that go anyway, so that who sees a reply knows the counts of
    all that ran before it."""

    operations: tuple[int, ...]
    """Operations run: of each `OpClass`, in the order of the enum, first those that shared a kernel
    or needed none, then those that had one to themselves."""
    graph_hits: int
    """Runs of graphs that were kept."""
    graph_misses: int
    """Runs that had to wait for a definition."""
    graph_evictions: int
    """Graphs given up."""


Answer = TensorData | Done | Failed | DeviceAnswer
"""What a request gets, once."""

Reply = Answer | GraphMissing | WorkCounts


# --- Bulk streams ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BulkHeader:
    """The first bytes of a bulk stream: whose it is, and how many bytes of a tensor follow."""

    request: RequestId
    length: int
    item_bytes: int = 0
    """0: the bytes follow as they are. Else they come in pieces, some of them compressed, of a
    tensor whose elements have so many bytes: see `wire.compression`."""
