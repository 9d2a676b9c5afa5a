"""Every error gpuwire raises.

One root, `GpuwireError`. Each class has a stable wire `code`, so that an error raised in
the server arrives as the same class in the client, and typed `fields`, so that a program can
react to it without reading the message. Messages say what was wanted, what was found, and
what to do. Classes that a NumPy user already catches (`ValueError`, `TypeError`, …) inherit
from those too.
"""

from __future__ import annotations

import inspect
from typing import ClassVar

FieldValue = str | int | float | bool | bytes | None


class GpuwireError(Exception):
    """The root of every gpuwire error.

    A class's annotations are its fields: typed facts, given by keyword, each an attribute and an
    entry of `fields`. One that the class does not declare is refused, one not given is None.
    """

    code: ClassVar[int] = 1
    field_names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = inspect.get_annotations(cls)
        cls.field_names = (*cls.field_names, *own)

    def __init__(self, message: str, **fields: FieldValue) -> None:
        unknown = fields.keys() - set(self.field_names)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {sorted(unknown)[0]!r}")
        super().__init__(message)
        self.message = message
        self.fields: dict[str, FieldValue] = {name: fields.get(name) for name in self.field_names}
        for name, value in self.fields.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.fields))


def _rebuild(
    error_class: type[GpuwireError], message: str, fields: dict[str, FieldValue]
) -> GpuwireError:
    return error_class(message, **fields)


# --- What the user wrote down: configuration, tickets, log files -----------------------------


class ConfigError(GpuwireError, ValueError):
    """A configuration file, variable or argument is wrong."""

    code = 10
    file: str | None
    key: str | None
    nearest: str | None


class TicketError(GpuwireError, ValueError):
    """A ticket's text cannot be read."""

    code = 11
    ticket: str | None


class LogFileError(ConfigError):
    """A log file cannot be opened."""

    code = 12


# --- Connecting ------------------------------------------------------------------------------


class ConnectError(GpuwireError, ConnectionError):
    """A session could not be opened; the subclass says why."""

    code = 20
    host: str | None
    port: int | None


class ServerNotFound(ConnectError):
    """The host name has no address."""

    code = 21


class ServerRefused(ConnectError):
    """The machine answers, but nothing listens on that port."""

    code = 22


class ServerUnreachable(ConnectError):
    """The network has no way to the machine."""

    code = 23


class ConnectTimeout(ConnectError, TimeoutError):
    """Nothing answered within the deadline over lookup, handshake and init."""

    code = 24
    seconds: float | None


class WrongFingerprint(ConnectError):
    """The server's key is not the one the ticket names."""

    code = 25
    wanted: str | None
    found: str | None


class TokenRejected(ConnectError):
    """The token is missing, wrong, expired or revoked."""

    code = 26
    reason: str | None


class NoSuchDevice(ConnectError):
    """The server has no device with that index."""

    code = 27
    index: int | None
    count: int | None


class VersionMismatch(ConnectError):
    """Client and server share no protocol version."""

    code = 28
    ours: str | None
    theirs: str | None


class QuotaExceeded(ConnectError):
    """The server, or the token, allows no further session or device."""

    code = 29
    quota: str | None
    limit: int | None


class NoAdapter(GpuwireError):
    """The machine has no graphics adapter that wgpu can use."""

    code = 30


class ServerStartError(GpuwireError):
    """A server, or a device host, could not be started."""

    code = 31
    reason: str | None


# --- A session's life ------------------------------------------------------------------------


class SessionError(GpuwireError):
    """A session ended, or cannot do what was asked."""

    code = 40


class LinkLost(SessionError, ConnectionError):
    """The link to the server is gone and was not taken up again."""

    code = 41
    seconds: float | None


class SessionLost(SessionError):
    """The server no longer knows the session: its tensors are gone."""

    code = 42
    tensors: int | None


class DeviceLost(SessionError):
    """The GPU, its driver or the process that owns it died; the session's tensors are gone.
    `kernel` is the session's own that it died of, where that is known."""

    code = 43
    device: int | None
    reason: str | None
    kernel: str | None


class DeviceClosed(SessionError):
    """An array or device is used after its device was closed."""

    code = 44


class RequestTimeout(SessionError, TimeoutError):
    """A reply did not come within the request's deadline."""

    code = 45
    seconds: float | None


class ServerStopped(SessionError):
    """The server was told to stop and closed the session."""

    code = 46


class ConnectionClosed(SessionError, ConnectionError):
    """One side closed the connection; `error_code` and `reason` are what it said."""

    code = 47
    error_code: int | None
    reason: str | None
    by_peer: bool | None


class StreamReset(SessionError):
    """The peer gave up sending on a stream."""

    code = 48
    error_code: int | None


class StreamStopped(SessionError):
    """The peer does not want what is being sent to it on a stream."""

    code = 49
    error_code: int | None


class StreamEnded(SessionError, EOFError):
    """A stream ended before what it had to carry. Counts in bytes."""

    code = 50
    wanted: int | None
    found: int | None


class BacklogFull(SessionError):
    """An asyncio program recorded more than may wait unsent, without ever awaiting. Sizes in
    bytes."""

    code = 51
    held: int | None
    limit: int | None


# --- The peer broke the protocol -------------------------------------------------------------


class ProtocolError(GpuwireError):
    """The peer sent something that the protocol does not allow; the session is closed."""

    code = 60


class MalformedMessage(ProtocolError):
    """Bytes that are no message, or a message with a field of the wrong kind."""

    code = 61
    what: str | None


class LimitBreached(ProtocolError):
    """A length, count or depth above its declared limit."""

    code = 62
    what: str | None
    value: int | None
    limit: int | None


class UnexpectedMessage(ProtocolError):
    """A message that is not allowed in the session's present state."""

    code = 63
    kind: str | None
    state: str | None


# --- Array code that cannot be right, raised at the line that wrote it -----------------------


class ShapeError(GpuwireError, ValueError):
    """Shapes that do not fit the operation or each other."""

    code = 80
    operation: str | None


class AxisError(ShapeError, IndexError):
    """An axis that the array does not have, or that is named twice."""

    code = 88


class DTypeError(GpuwireError, TypeError):
    """Data types that do not fit the operation or each other."""

    code = 81
    operation: str | None


class UnsupportedDType(DTypeError):
    """A data type that the device lacks."""

    code = 82
    dtype: str | None
    instead: str | None


class DeviceMismatch(GpuwireError, ValueError):
    """One operation over arrays of different devices."""

    code = 83


class IndexingError(GpuwireError, IndexError):
    """An index out of bounds or of a form that is not supported."""

    code = 84


class ArgumentError(GpuwireError, ValueError):
    """An argument outside what the function accepts."""

    code = 85


class NotSupported(GpuwireError, TypeError):
    """A form of use that gpuwire does not have; the message names the way that works."""

    code = 86


class ScalarOutOfRange(GpuwireError, OverflowError):
    """A Python number that the array's data type cannot hold."""

    code = 87
    dtype: str | None


class TracingError(GpuwireError):
    """What a compiled function cannot do while it is traced: read values, branch on them, change
    what it did not get as an argument. The message names the way that works."""

    code = 89
    function: str | None


# --- Work that failed on the device ----------------------------------------------------------


class ExecutionError(GpuwireError, RuntimeError):
    """An operation failed on the device; the value that depends on it does not exist.

    `operation` is its name, `place` its number in its session, `location` the Python file and line
    that recorded it. `__cause__` is the error that the device gave.
    """

    code = 100
    operation: str | None
    place: int | None
    location: str | None


class KernelCompileError(GpuwireError):
    """A kernel's WGSL does not compile."""

    code = 101
    kernel: str | None
    line: int | None
    compiler: str | None


class OutOfMemory(GpuwireError, MemoryError):
    """The device's memory, or the session's share of it, is used up. Sizes in bytes."""

    code = 102
    wanted: int | None
    in_use: int | None
    reserved: int | None
    limit: int | None


class UnknownTensor(GpuwireError):
    """A tensor id that the session does not own."""

    code = 103
    tensor: int | None


class UploadTooLarge(GpuwireError):
    """An upload above the server's limit. Sizes in bytes."""

    code = 104
    size: int | None
    limit: int | None


class UnsupportedIo(GpuwireError):
    """The adapter cannot do this kind of transfer."""

    code = 105


class UnsupportedStrides(GpuwireError):
    """The compute server moves contiguous tensors only."""

    code = 106


class UnsupportedFeature(GpuwireError):
    """The adapter lacks a feature that the call needs."""

    code = 107
    feature: str | None


class InvalidHandle(GpuwireError):
    """A memory handle that is not initialised, is freed, or belongs to another server."""

    code = 108


class LaunchError(GpuwireError):
    """A launch with wrong counts, bindings or alignment."""

    code = 109
    kernel: str | None


class CaptureError(GpuwireError):
    """A captured graph's call that its state does not allow."""

    code = 110
    state: str | None


class WatchdogExpired(GpuwireError):
    """A submission ran past the device's time limit."""

    code = 111
    kernel: str | None
    seconds: float | None


class CollectiveError(GpuwireError):
    """A collective over devices failed; `rank` names the device that did not take part."""

    code = 112
    rank: int | None


class UnknownGraph(GpuwireError):
    """A run of a graph that the session never registered, or gave up."""

    code = 113
    graph: int | None


class GraphBindingError(GpuwireError):
    """A run of a graph whose tensors or scalars are not those that the graph takes."""

    code = 114
    graph: int | None


class UnknownKernel(GpuwireError):
    """A launch of a kernel that the session never registered, or gave up."""

    code = 115
    kernel: int | None


def error_classes() -> dict[int, type[GpuwireError]]:
    """Every error class by its wire code."""
    classes: dict[int, type[GpuwireError]] = {}
    waiting: list[type[GpuwireError]] = [GpuwireError]
    while waiting:
        error_class = waiting.pop()
        if "code" in vars(error_class):  # else it travels as its parent
            classes[error_class.code] = error_class
        waiting.extend(error_class.__subclasses__())
    return classes
