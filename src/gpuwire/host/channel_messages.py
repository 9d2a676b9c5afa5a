"""What the front and a device host say to each other.

Both ends are of one version and trust each other, so a message is a fixed row of integers and,
for some, bytes behind it: a length, a kind, the row, the payload. Sessions are named by small
numbers that the front hands out. Tensor bytes are not in messages but in slots of shared memory
(`slots`), which a message names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter

Payload = bytes | bytearray | memoryview


# --- Front to host ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Configure:
    """The first message: the adapter's place in the list of this machine's, the configuration as
    JSON."""

    adapter: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A new session and its limits in bytes; 0 is no limit."""

    session: int
    max_memory_bytes: int
    max_upload_bytes: int


@dataclass(frozen=True, slots=True)
class Tasks:
    """The body of one frame: `count` encoded tasks."""

    session: int
    count: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class Traced:
    """The session's next `Tasks` belong to this span: see `telemetry.trace_context`. Not sent for
    others."""

    session: int
    trace_high: int
    trace_low: int
    span: int
    flags: int


@dataclass(frozen=True, slots=True)
class UploadChunk:
    """`size` bytes of an upload at `offset`, in a slot that the host hands back with `SlotFree`."""

    session: int
    request: int
    offset: int
    slot: int
    size: int


@dataclass(frozen=True, slots=True)
class UploadBroken:
    """The client gave up an upload before its end."""

    session: int
    request: int


@dataclass(frozen=True, slots=True)
class Pull:
    """The client's link takes `size` further bytes of a download."""

    session: int
    request: int
    size: int


@dataclass(frozen=True, slots=True)
class DownloadCancelled:
    """The client wants no more of a download."""

    session: int
    request: int


@dataclass(frozen=True, slots=True)
class RepliesWritten:
    """`size` bytes of replies are on their way to the client."""

    session: int
    size: int


@dataclass(frozen=True, slots=True)
class EndSession:
    """The session is over: everything it owns goes. Answered with `SessionEnded`."""

    session: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks a host whether it still turns its loop."""

    number: int


@dataclass(frozen=True, slots=True)
class AskFacts:
    """Asks for a snapshot, and for events during the next `lease_ms` milliseconds; 0: only for
    what is there. `closely` 1: for more timed launches. Answered with `Facts` of the same number.
    """

    number: int
    lease_ms: int
    closely: int = 0


@dataclass(frozen=True, slots=True)
class AskGraph:
    """Asks for the drawing of an op-graph. Answered with `Facts`, empty where there is none."""

    number: int
    session: int
    graph: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End the process."""


# --- Host to front ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """The host has its device: a `Welcome` message that lists it. `adapters` is how many this
    machine has."""

    adapters: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class HostFailed:
    """The host has no device, or lost it, and ends: a `Close` message with the reason."""

    payload: Payload


@dataclass(frozen=True, slots=True)
class TasksTaken:
    """`size` bytes of task bodies are decoded, and each task has run or waits for its inputs."""

    session: int
    size: int


@dataclass(frozen=True, slots=True)
class Replies:
    """`count` encoded replies, the body of a frame."""

    session: int
    count: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class UploadWanted:
    """There is memory for the upload of that request: `length` bytes."""

    session: int
    request: int
    length: int


@dataclass(frozen=True, slots=True)
class UploadRefused:
    """Nobody wants the bytes of that request; the tensor carries the reason."""

    session: int
    request: int


@dataclass(frozen=True, slots=True)
class DownloadReady:
    """A tensor's bytes wait to be pulled, `length` of them, in elements of `item_bytes`."""

    session: int
    request: int
    length: int
    item_bytes: int


@dataclass(frozen=True, slots=True)
class DownloadChunk:
    """The next `size` bytes of a download, in a slot that the front hands back."""

    session: int
    request: int
    slot: int
    size: int


@dataclass(frozen=True, slots=True)
class DownloadBroken:
    """The device gave up a download before its end."""

    session: int
    request: int


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The answer to `EndSession`: bytes of device memory that its tensors held."""

    session: int
    freed: int


@dataclass(frozen=True, slots=True)
class SessionBroken:
    """The client broke the protocol inside a frame: a `Close` message with the error. The host
    has ended the session."""

    session: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line about a session for the server's log, in UTF-8, of a level that the log wants."""

    session: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to `Ping`."""

    number: int


@dataclass(frozen=True, slots=True)
class Facts:
    """The answer to `AskFacts` (a `HostSnapshot`) or `AskGraph` (a `GraphDrawing`), as JSON; empty
    where there is no such graph."""

    number: int
    payload: Payload


# --- Both ways -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlotFree:
    """The receiver of a chunk has taken it; the slot is the sender's again."""

    slot: int


ToHost = (
    Configure
    | OpenSession
    | Tasks
    | Traced
    | UploadChunk
    | UploadBroken
    | Pull
    | DownloadCancelled
    | RepliesWritten
    | EndSession
    | Ping
    | AskFacts
    | AskGraph
    | Stop
    | SlotFree
)
ToFront = (
    Ready
    | HostFailed
    | TasksTaken
    | Replies
    | UploadWanted
    | UploadRefused
    | DownloadReady
    | DownloadChunk
    | DownloadBroken
    | SessionEnded
    | SessionBroken
    | LogLine
    | Pong
    | Facts
    | SlotFree
)
ChannelMessage = ToHost | ToFront

_CLASSES: tuple[type[ChannelMessage], ...] = (
    *(Configure, OpenSession, Tasks, UploadChunk, UploadBroken, Pull, DownloadCancelled),
    *(RepliesWritten, EndSession, Ping, AskFacts, AskGraph, Stop, SlotFree),
    *(Ready, HostFailed, TasksTaken, Replies, UploadWanted, UploadRefused, DownloadReady),
    *(DownloadChunk, DownloadBroken, SessionEnded, SessionBroken, Pong, Facts, Traced),
    LogLine,
)

LENGTH = struct.Struct("<I")
"""Every message begins with the length of what follows."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How one class lies in bytes."""

    kind: int
    message_class: Callable[..., ChannelMessage]
    row: struct.Struct
    values: Callable[[ChannelMessage], tuple[int, ...]]
    has_payload: bool


def _form(kind: int, message_class: type[ChannelMessage]) -> _Form:
    names = [field.name for field in fields(message_class)]
    has_payload = names[-1:] == ["payload"]
    numbers = names[:-1] if has_payload else names
    row = struct.Struct(f"<IB{len(numbers)}Q")

    def values(message: ChannelMessage) -> tuple[int, ...]:
        return tuple(getattr(message, name) for name in numbers)

    # One C call for all fields: half the time of reading them one by one.
    several = attrgetter(*numbers) if len(numbers) > 1 else values
    return _Form(kind, message_class, row, several, has_payload)


_FORMS = tuple(_form(kind, message_class) for kind, message_class in enumerate(_CLASSES))
_BY_CLASS: dict[type, _Form] = dict(zip(_CLASSES, _FORMS, strict=True))


def encode(message: ChannelMessage) -> tuple[bytes, Payload]:
    """The message's head, and the payload that follows it (empty for most)."""
    form = _BY_CLASS[type(message)]
    payload: Payload = message.payload if form.has_payload else b""  # type: ignore[union-attr]
    length = form.row.size - LENGTH.size + len(payload)
    return form.row.pack(length, form.kind, *form.values(message)), payload


def decode(data: memoryview) -> ChannelMessage:
    """A whole message, its length prefix included. The payload is copied out of `data`."""
    form = _FORMS[data[LENGTH.size]]
    _, _, *values = form.row.unpack_from(data)
    if form.has_payload:
        return form.message_class(*values, bytes(data[form.row.size :]))
    return form.message_class(*values)
