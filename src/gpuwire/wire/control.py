"""Messages of the control stream as plain values: `(kind, field, …)`.

Kinds are numbered as in `items`. A frame's plain value is its head; its body follows it raw.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuwire.errors import MalformedMessage
from gpuwire.ids import RequestId, SessionId
from gpuwire.wire import fields as check
from gpuwire.wire.items import checked_error, plain_error
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import (
    RESUME_KEY_BYTES,
    Acknowledge,
    AnnounceUpload,
    Buffer,
    Close,
    DeviceInfo,
    Facts,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    Progress,
    ReplyFrame,
    Resume,
    Resumed,
    SessionLimits,
    TaskFrame,
    UploadFound,
    Watch,
    Welcome,
)
from gpuwire.wire.operations import Plain

FRAME_KINDS: dict[int, type[TaskFrame] | type[ReplyFrame]] = {3: TaskFrame, 4: ReplyFrame}
_KIND_OF_FRAME = {frame: kind for kind, frame in FRAME_KINDS.items()}
_SESSION_ID_BYTES = 16
DIGEST_BYTES = 32
"""Of a BLAKE3 hash."""

ControlMessage = (
    Hello
    | Welcome
    | Acknowledge
    | Heartbeat
    | HeartbeatReply
    | Watch
    | Facts
    | AnnounceUpload
    | UploadFound
    | Close
)


def plain_message(message: ControlMessage) -> Plain:
    """The plain form of a message that is no frame."""
    match message:
        case Hello():
            hello = (1, message.versions, message.token, message.device, message.client)
            return hello if message.resume is None else (*hello, _plain_resume(message.resume))
        case Welcome():
            welcome = (
                2,
                message.version,
                message.session,
                [_plain_device(device) for device in message.devices],
                _plain_limits(message.limits),
                message.server,
            )
            if message.key is None and message.resumed is None:
                return welcome
            return (*welcome, message.key, _plain_resumed(message.resumed))
        case Acknowledge():
            return (5, message.acknowledged)
        case Heartbeat():
            return (6, message.number)
        case HeartbeatReply():
            return (7, message.number)
        case Watch():
            return (20, message.number, True) if message.closely else (20, message.number)
        case Facts():
            return (21, message.number, message.received_us, message.sent_us, message.snapshot)
        case AnnounceUpload():
            return (22, message.request, message.length, message.digest)
        case UploadFound():
            return (23, message.request, message.found)
        case Close():
            return (8, plain_error(message.error))


def checked_message(item: Plain, limits: WireLimits) -> Message:
    """The message of a plain one that is no frame. `MalformedMessage` or `LimitBreached`."""
    kind = check.integer(item[0] if item else None, "kind")
    decode = _MESSAGES.get(kind)
    if decode is None:
        raise check.malformed("message", "a known kind", kind)
    return decode(item, limits)


def plain_frame_head(
    frame: type[TaskFrame] | type[ReplyFrame],
    sequence: int,
    acknowledged: int,
    count: int,
    traceparent: str = "",
) -> Plain:
    """What a frame has before its body. A traceparent is a fifth field, left out where empty."""
    head = (_KIND_OF_FRAME[frame], sequence, acknowledged, count)
    return (*head, traceparent) if traceparent else head


def checked_frame(head: Plain, body: Buffer, limits: WireLimits) -> TaskFrame | ReplyFrame:
    """The frame of a plain head and the body that follows it."""
    is_traced = len(head) == 5 and head[0] == _KIND_OF_FRAME[TaskFrame]
    check.exactly(head, 5 if is_traced else 4, "frame")
    frame = FRAME_KINDS[check.integer(head[0], "kind")]
    count = check.integer(head[3], "items of a frame", 1)
    # No item is shorter than two bytes.
    most = min(limits.max_items_per_frame, len(body) // 2)
    if count > most:
        raise check.breached("items of a frame", count, most)
    sequence = check.identity(head[1], "sequence")
    acknowledged = check.integer(head[2], "acknowledged")
    if not is_traced:
        return frame(sequence, acknowledged, count, body)
    traceparent = check.text(head[4], "traceparent")
    if not traceparent:
        raise check.malformed("traceparent", "a text or none at all", traceparent)
    if len(traceparent.encode()) > limits.max_traceparent_bytes:
        length = len(traceparent.encode())
        raise check.breached("bytes of a traceparent", length, limits.max_traceparent_bytes)
    return TaskFrame(sequence, acknowledged, count, body, traceparent)


def _plain_device(device: DeviceInfo) -> Plain:
    return (
        device.index,
        device.name,
        device.backend,
        device.kind,
        device.driver,
        device.dtypes,
        device.features,
        device.max_buffer_bytes,
        device.max_binding_bytes,
        device.max_workgroup_invocations,
        device.max_workgroup_memory,
    )


def _plain_limits(limits: SessionLimits) -> Plain:
    return (
        limits.max_frame_bytes,
        limits.max_upload_bytes,
        limits.max_memory_bytes,
        float(limits.resume_grace_seconds),
    )


def _plain_resume(resume: Resume) -> Plain:
    return (resume.session, resume.key, resume.acknowledged, resume.downloads)


def _plain_resumed(resumed: Resumed | None) -> Plain | None:
    return None if resumed is None else (resumed.acknowledged, resumed.uploads)


def _hello(item: Plain, limits: WireLimits) -> Hello:
    # Later versions may append fields: an older server must still read which versions are offered.
    if len(item) < 5:
        raise MalformedMessage(f"Hello: wanted 5 fields, found {len(item)}", what="Hello")
    versions = check.integers(item[1], "versions", limits.max_array_length, 1, check.U32_HIGHEST)
    device = None if item[3] is None else check.integer(item[3], "device", 0, check.U32_HIGHEST)
    resume = None if len(item) < 6 or item[5] is None else _checked_resume(item[5], limits)
    if resume is not None and device is None:
        raise MalformedMessage("Hello: a session is resumed on no device", what="Hello")
    token, client = check.text(item[2], "token"), check.text(item[4], "client")
    return Hello(versions, token, device, client, resume)


def _checked_resume(value: object, limits: WireLimits) -> Resume:
    found = check.array(value, "resume")
    check.exactly(found, 4, "resume")
    return Resume(
        SessionId(_octets(found[0], "session", _SESSION_ID_BYTES)),
        _octets(found[1], "resume key", RESUME_KEY_BYTES),
        check.integer(found[2], "acknowledged"),
        _checked_progress(found[3], "downloads", limits),
    )


def _welcome(item: Plain, limits: WireLimits) -> Welcome:
    if len(item) != 6:
        check.exactly(item, 8, "Welcome")
    session = None if item[2] is None else _octets(item[2], "session", _SESSION_ID_BYTES)
    key, resumed = item[6:] if len(item) == 8 else (None, None)
    if session is None and (key is not None or resumed is not None):
        raise MalformedMessage("Welcome: a key or a resumption of no session", what="Welcome")
    return Welcome(
        check.integer(item[1], "version", 1, check.U32_HIGHEST),
        None if session is None else SessionId(session),
        tuple([_checked_device(device) for device in check.array(item[3], "devices")]),
        _checked_limits(item[4]),
        check.text(item[5], "server"),
        None if key is None else _octets(key, "resume key", RESUME_KEY_BYTES),
        None if resumed is None else _checked_resumed(resumed, limits),
    )


def _checked_resumed(value: object, limits: WireLimits) -> Resumed:
    found = check.array(value, "resumed")
    check.exactly(found, 2, "resumed")
    acknowledged = check.integer(found[0], "acknowledged")
    return Resumed(acknowledged, _checked_progress(found[1], "uploads", limits))


def _checked_progress(value: object, what: str, limits: WireLimits) -> Progress:
    pairs = check.array(value, what, limits.max_resumed_transfers)
    progress: list[tuple[RequestId, int]] = []
    for pair in pairs:
        request, taken = check.integers(pair, what, 2) if _is_pair(pair) else (0, 0)
        progress.append((RequestId(check.identity(request, what)), taken))
    return tuple(progress)


def _is_pair(value: object) -> bool:
    return type(value) is tuple and len(value) == 2


def _octets(value: object, what: str, size: int) -> bytes:
    found = check.octets(value, what, size)
    if len(found) != size:
        raise MalformedMessage(f"{what}: wanted {size} bytes, found {len(found)}", what=what)
    return found


def _checked_device(value: object) -> DeviceInfo:
    device = check.array(value, "device")
    check.exactly(device, 11, "device")
    return DeviceInfo(
        check.integer(device[0], "device index", 0, check.U32_HIGHEST),
        check.text(device[1], "device name"),
        check.text(device[2], "device backend"),
        check.text(device[3], "device kind"),
        check.text(device[4], "device driver"),
        check.texts(device[5], "device dtypes"),
        check.texts(device[6], "device features"),
        check.integer(device[7], "max_buffer_bytes"),
        check.integer(device[8], "max_binding_bytes"),
        check.integer(device[9], "max_workgroup_invocations"),
        check.integer(device[10], "max_workgroup_memory"),
    )


def _checked_limits(value: object) -> SessionLimits:
    found = check.array(value, "session limits")
    check.exactly(found, 4, "session limits")
    return SessionLimits(
        check.integer(found[0], "max_frame_bytes"),
        check.integer(found[1], "max_upload_bytes"),
        check.integer(found[2], "max_memory_bytes"),
        check.seconds(found[3], "resume_grace_seconds"),
    )


def _acknowledge(item: Plain, limits: WireLimits) -> Acknowledge:
    check.exactly(item, 2, "Acknowledge")
    return Acknowledge(check.integer(item[1], "acknowledged"))


def _heartbeat(item: Plain, limits: WireLimits) -> Heartbeat:
    check.exactly(item, 2, "Heartbeat")
    return Heartbeat(check.integer(item[1], "number"))


def _heartbeat_reply(item: Plain, limits: WireLimits) -> HeartbeatReply:
    check.exactly(item, 2, "HeartbeatReply")
    return HeartbeatReply(check.integer(item[1], "number"))


def _watch(item: Plain, limits: WireLimits) -> Watch:
    check.exactly(item, 3 if len(item) == 3 else 2, "Watch")
    number = check.integer(item[1], "number")
    if len(item) == 2:
        return Watch(number)
    if item[2] is not True:
        raise check.malformed("Watch", "true or no third field", item[2])
    return Watch(number, closely=True)


def _facts(item: Plain, limits: WireLimits) -> Facts:
    check.exactly(item, 5, "Facts")
    return Facts(
        check.integer(item[1], "number"),
        check.integer(item[2], "received_us"),
        check.integer(item[3], "sent_us"),
        check.octets(item[4], "facts", limits.max_facts_bytes),
    )


def _announce_upload(item: Plain, limits: WireLimits) -> AnnounceUpload:
    check.exactly(item, 4, "AnnounceUpload")
    length = check.integer(item[2], "length")
    if length > limits.max_bulk_bytes:
        raise check.breached("bulk bytes", length, limits.max_bulk_bytes)
    digest = check.octets(item[3], "digest", DIGEST_BYTES)
    if len(digest) != DIGEST_BYTES:
        raise check.malformed("digest", f"{DIGEST_BYTES} bytes", digest)
    return AnnounceUpload(RequestId(check.identity(item[1], "request")), length, digest)


def _upload_found(item: Plain, limits: WireLimits) -> UploadFound:
    check.exactly(item, 3, "UploadFound")
    found = check.boolean(item[2], "found")
    return UploadFound(RequestId(check.identity(item[1], "request")), found)


def _close(item: Plain, limits: WireLimits) -> Close:
    check.exactly(item, 2, "Close")
    return Close(checked_error(item[1], limits))


_MESSAGES: dict[int, Callable[[Plain, WireLimits], Message]] = {
    1: _hello,
    2: _welcome,
    5: _acknowledge,
    6: _heartbeat,
    7: _heartbeat_reply,
    8: _close,
    20: _watch,
    21: _facts,
    22: _announce_upload,
    23: _upload_found,
}
