"""What can be configured: names, types, defaults and units.

Every model is frozen and refuses unknown keys and wrong types with a `ConfigError`. A model made
in code and a table of `gpuwire.toml` take the same names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gpuwire.config.explaining import explained

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

LogLevel = Literal["disabled", "basic", "full"]
QuicEngine = Literal["auto", "aioquic", "qh3"]
Progress = Literal["auto", "off"]
Compression = Literal["auto", "off", "on"]
PersistentMemory = Literal["enabled", "size-match", "disabled", "enforced"]

Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
FilePath = Annotated[Path, Field(strict=False)]


class _SectionType(ModelMetaclass):
    """Turns pydantic's report into a `ConfigError` where a model is made by a call.

    A validator or an `__init__` cannot: pydantic runs those for nested tables too, and would wrap
    the error and lose the place it came from.
    """

    def __call__(self: type[Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return ModelMetaclass.__call__(self, *args, **kwargs)
        except ValidationError as error:
            raise explained(error, self, origin=self.__name__) from None


class Section(BaseModel, metaclass=_SectionType):
    """One table of the configuration."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, validate_default=False, hide_input_in_errors=True
    )


class LoggerConfig(Section):
    """Where a logger writes and how much. With a level but no sink named it writes to stderr."""

    file: FilePath | None = None
    """A relative path in `gpuwire.toml` starts at that file's directory."""
    append: bool = True
    """False empties the file when it is opened."""
    stdout: bool = False
    stderr: bool = False
    log: Literal["debug", "info", "warning", "error", "critical"] | None = None
    """Hand each line to Python's `logging` at this level, as logger `gpuwire.<name>`."""
    level: LogLevel = "disabled"


class RemoteConfig(Section):
    """The way between client and server."""

    logger: LoggerConfig = LoggerConfig()
    flush_threshold: Count = 4
    """A batch is sent when it holds this many tasks …"""
    flush_bytes_threshold: Count = 1024 * 1024
    """… or this many bytes of tensor data, whichever comes first."""
    segmentation_offload: bool = False
    """Let the kernel cut bursts into datagrams (UDP GSO, Linux), as long as the path bears it."""
    datagram_bytes: Annotated[int, Field(ge=1_200, le=64_000)] | None = None
    """The largest datagram to probe for; None leaves it to the path: 8,952, on loopback 64,000."""
    quic_engine: QuicEngine = "auto"
    """auto is aioquic. qh3 needs the extra `fast`; either engine talks to the other."""
    graph_cache: bool = True
    """Send repeated runs of operations once and call them by id afterwards. No effect in this
    version: each operation is sent."""
    connect_timeout_seconds: Seconds = 10.0
    """Over all of connecting: lookup, handshake and the first answer."""
    request_timeout_seconds: Seconds | None = None
    """How long a read or sync may wait for its reply; None is without end."""
    heartbeat_seconds: Seconds = 5.0
    """A silent peer is asked this often, and given up after three times as long."""
    resume_grace_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0
    """How long a server keeps a session whose link is lost, and its client seeks another; 0: the
    session ends with its link. The server's value counts, which it tells its clients."""
    upload_cache: bool = False
    """Announce uploads of 1 MiB and more by their content's hash, and send only those that the
    server does not have. It costs hashing, and a round trip where the server has it not."""
    compression: Compression = "auto"
    """auto: tensors are compressed on the link where that is measured to end sooner, which it never
    is on fast links; off: never; on: always."""
    tracing: bool = False
    """Tell OpenTelemetry what this program asks of the server, and the server of which trace it
    is. Needs the extra `otel`."""
    progress: Progress = "auto"
    """auto: a wait that takes longer than half a second is shown, in a terminal or a notebook; off:
    nothing is ever shown."""

    @property
    def idle_timeout_seconds(self) -> float:
        """When QUIC gives a silent connection up: as soon as a session would, or after 10 s, which
        a connection without a session has besides."""
        return max(3 * self.heartbeat_seconds, 10.0)


class CudaMemoryConfig(Section):
    """Taken for files shared with CUDA backends; wgpu has one allocator and ignores it."""

    allocator: Literal["sync", "async"] = "sync"


class MemoryConfig(Section):
    """The compute server's memory. Pool layouts are set from code, not here."""

    logger: LoggerConfig = LoggerConfig()
    persistent_memory: PersistentMemory = "enabled"
    """enabled: where it is asked for; size-match: also where an allocation's size meets an
    existing bucket; disabled: never; enforced: nothing dynamic."""
    cuda: CudaMemoryConfig = CudaMemoryConfig()


class StreamingConfig(Section):
    """The compute server's streams."""

    max_streams: Count = 8
    """Logical streams fold onto at most this many real ones."""


class ComputeConfig(Section):
    """The compute server's limits."""

    watchdog_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0
    """A submission that runs longer ends its session and restarts the device host; 0: no limit."""


class ServerLoggerConfig(LoggerConfig):
    """The server's own log: as any other, but it speaks unless told not to."""

    level: LogLevel = "basic"


def _server_logger(value: object) -> object:
    """Whoever hands over a plain `LoggerConfig` means all of it, its level too."""
    return value.model_dump() if type(value) is LoggerConfig else value


ServerLogger = Annotated[ServerLoggerConfig, BeforeValidator(_server_logger)]


def _numbers(value: object) -> object:
    """`0,2` from a variable, a list from a file, a tuple from code."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value) if isinstance(value, list) else value


DeviceIndices = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_numbers)]


class ServerConfig(Section):
    """What `gpuwire serve` listens on, keeps and allows."""

    logger: ServerLogger = ServerLoggerConfig()
    """Sessions that come and go, devices that fail."""
    host: str = "0.0.0.0"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 4433
    """UDP; 0 takes a free one."""
    advertise: str | None = None
    """The name or address that tickets carry; by default the best local one."""
    state_dir: FilePath | None = None
    """Key and tokens; by default `$XDG_STATE_HOME/gpuwire`, or `~/.local/state/gpuwire`."""
    devices: DeviceIndices = ()
    """Adapters to serve, by index; none named is all."""
    max_sessions: Count = 64
    """Sessions at once, over all devices."""
    max_frame_bytes: Count = 32 * 1024 * 1024
    """One batch of tasks, tensor data on bulk streams not counted."""
    max_upload_bytes: Bytes = 0
    """One tensor's upload; 0 is whatever the device holds."""
    max_memory_bytes: Bytes = 0
    """One session's tensors; 0 is no limit."""
    upload_cache_memory_bytes: Bytes = 1024 * 1024 * 1024
    """Memory for uploads of clients that announce theirs (`remote.upload_cache`), so that they need
    not be sent twice. It is taken as such uploads come; 0 keeps none."""
    upload_cache_dir: FilePath | None = None
    """Where to keep them on disk too, for after a restart; one server, one directory."""
    upload_cache_disk_bytes: Bytes = 16 * 1024 * 1024 * 1024
    """What that may take."""
    max_graphs: Count = 1024
    """Op-graphs that one session keeps; a client tells those given up again when it runs them."""
    max_graph_bytes: Count = 128 * 1024 * 1024
    """The memory that they take."""
    tracing: bool = False
    """Tell OpenTelemetry of frames that clients trace, down to the kernels. Needs the extra
    `otel`."""
    max_host_restarts: Annotated[int, Field(ge=0)] = 5
    """How often a device host that died is started anew within ten minutes. Those that a session's
    kernel ended, by running on or by what it did to the driver, do not count."""


class Config(Section):
    """All of `gpuwire.toml`."""

    remote: RemoteConfig = RemoteConfig()
    memory: MemoryConfig = MemoryConfig()
    streaming: StreamingConfig = StreamingConfig()
    compute: ComputeConfig = ComputeConfig()
    server: ServerConfig = ServerConfig()
