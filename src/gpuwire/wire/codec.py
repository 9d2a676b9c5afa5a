"""Between records and bytes: messages, tasks and replies. The only module that names msgpack.

**Message**: a big-endian u32, the length of what follows; then one msgpack array
`[kind, field, …]`. A frame's array is followed by its body, up to the message's end.
**Body**: encoded tasks or replies back to back, each one msgpack array `[kind, field, …]`.

Decoding takes no memory for a declared length above its limit, and at most some 80 times
`WireLimits.max_item_bytes` for an item that turns out to be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgpack

from gpuwire.errors import ArgumentError, GpuwireError, LimitBreached, MalformedMessage
from gpuwire.wire import fields as check
from gpuwire.wire.control import (
    FRAME_KINDS,
    checked_frame,
    checked_message,
    plain_frame_head,
    plain_message,
)
from gpuwire.wire.definitions import GraphDefinition, checked_definition, plain_definition
from gpuwire.wire.framing import PREFIX
from gpuwire.wire.items import checked_reply, checked_task, plain_reply, plain_task
from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits
from gpuwire.wire.messages import Buffer, Message, Reply, ReplyFrame, Task, TaskFrame
from gpuwire.wire.operations import Plain

_PACK_BUFFER_BYTES = 256
"""A Packer's first buffer. A new Packer with a small one takes 0.3 µs for an operation; msgpack's
default buffer takes 0.4 µs, and one Packer kept would be shared between threads."""
MAX_FRAME_HEAD_BYTES = 25 + 2 + DEFAULT_LIMITS.max_traceparent_bytes
"""The longest head of a frame: array, kind, two 64-bit numbers, one 32-bit one, a short text."""
_LIMIT_TEXT = re.compile(r"(\d+) exceeds max_(\w+)_len\((\d+)\)")

Record = TypeVar("Record")


def encode_task(task: Task) -> bytes:
    """One task, ready to be part of a frame's body. `ArgumentError` for a number that the wire
    does not carry: an integer beyond 64 bits, a value that does not fit its data type."""
    return _pack(plain_task(task))


def encode_reply(reply: Reply) -> bytes:
    """One reply, ready to be part of a frame's body."""
    return _pack(plain_reply(reply))


def encode_message(message: Message) -> bytes:
    """A message with its length prefix."""
    traceparent = ""
    if isinstance(message, TaskFrame):
        body, traceparent = message.tasks, message.traceparent
    elif isinstance(message, ReplyFrame):
        body = message.replies
    else:
        payload = _pack(plain_message(message))
        return PREFIX.pack(len(payload)) + payload
    return encode_frame(
        type(message), message.sequence, message.acknowledged, message.count, (body,), traceparent
    )


def encode_frame(
    kind: type[TaskFrame] | type[ReplyFrame],
    sequence: int,
    acknowledged: int,
    count: int,
    pieces: Sequence[Buffer],
    traceparent: str = "",
) -> bytes:
    """A frame whose body is `pieces`, one after the other, with its length prefix; the pieces are
    copied once."""
    head = _pack(plain_frame_head(kind, sequence, acknowledged, count, traceparent))
    length = len(head) + sum(map(len, pieces))
    return b"".join((PREFIX.pack(length), head, *pieces))


def decode_tasks(body: Buffer, count: int, limits: WireLimits) -> list[Task]:
    """The tasks of a frame's body. `MalformedMessage` or `LimitBreached` if it is not exactly
    `count` of them, each valid in every field."""
    return _unpack_items(body, count, checked_task, limits)


def decode_replies(body: Buffer, count: int, limits: WireLimits) -> list[Reply]:
    """The replies of a frame's body; raises as `decode_tasks` does."""
    return _unpack_items(body, count, checked_reply, limits)


def encode_definition(definition: GraphDefinition) -> bytes:
    """A graph's definition, as `RunGraph` and `DefineGraph` carry it; raises as `encode_task`."""
    return b"".join(map(_pack, plain_definition(definition)))


def decode_definition(data: Buffer, limits: WireLimits) -> GraphDefinition:
    """The definition again. `MalformedMessage` or `LimitBreached` for bytes that are none; whether
    its operations fit together is for their rules to say."""
    unpacker = _unpacker(len(data), limits)
    unpacker.feed(data)

    def rows() -> Iterator[Plain]:
        while True:
            yield _next_item(unpacker)

    definition = checked_definition(rows(), limits)
    if unpacker.tell() != len(data):
        raise MalformedMessage(
            f"{len(data) - unpacker.tell()} bytes follow the graph", what="graph"
        )
    return definition


def decode_message(payload: Buffer, limits: WireLimits) -> Message:
    """A message without its length prefix. A frame's body stays undecoded: it is a view of
    `payload`. `MalformedMessage` or `LimitBreached`."""
    if len(payload) > limits.max_frame_bytes:
        raise check.breached("message bytes", len(payload), limits.max_frame_bytes)
    # [kind, …] of few fields: one byte of array, one of kind.
    is_frame = len(payload) >= 2 and payload[0] >> 4 == 0x9 and payload[1] in FRAME_KINDS
    if not is_frame and len(payload) > limits.max_message_bytes:
        raise check.breached("message bytes", len(payload), limits.max_message_bytes)
    start = payload[:MAX_FRAME_HEAD_BYTES] if is_frame else payload
    unpacker = _unpacker(len(start), limits)
    unpacker.feed(start)
    item = _next_item(unpacker)
    end: int = unpacker.tell()
    if is_frame:
        return checked_frame(item, memoryview(payload)[end:], limits)
    if end != len(payload):
        raise MalformedMessage(f"{len(payload) - end} bytes follow the message", what="message")
    return checked_message(item, limits)


# --- The msgpack edge ------------------------------------------------------------------------


def _pack(plain: Plain) -> bytes:
    try:
        packed: bytes = msgpack.Packer(buf_size=_PACK_BUFFER_BYTES).pack(plain)
    except (OverflowError, TypeError, ValueError) as error:
        raise ArgumentError(f"the wire does not carry this value: {error}") from error
    return packed


def _unpacker(buffer_bytes: int, limits: WireLimits) -> Any:
    """An unpacker of tuples that takes in `buffer_bytes` at once. Nothing of ours is a map or an
    extension type."""
    buffer_bytes = max(buffer_bytes, 1)
    return msgpack.Unpacker(
        read_size=buffer_bytes,
        max_buffer_size=buffer_bytes,
        use_list=False,
        max_str_len=limits.max_text_bytes,
        max_bin_len=max(
            limits.max_inline_bytes,
            8 * limits.max_dropped_tensors,
            limits.max_graph_bytes,
            limits.max_kernel_bytes,
            limits.max_facts_bytes,
        ),
        max_array_len=limits.max_array_length,
        max_map_len=0,
        max_ext_len=0,
    )


def _unpack_items(
    body: Buffer, count: int, checked: Callable[[Plain, WireLimits], Record], limits: WireLimits
) -> list[Record]:
    if count > limits.max_items_per_frame:
        raise check.breached("items of a frame", count, limits.max_items_per_frame)
    window = limits.max_item_bytes
    view = memoryview(body)
    unpacker = _unpacker(min(len(view), 2 * window), limits)
    fed = 0
    items: list[Record] = []
    for _ in range(count):
        start = unpacker.tell()
        # An item is complete once `window` bytes from its start are there, or it is too long.
        if fed - start < window and fed < len(view):
            unpacker.feed(view[fed : fed + window])
            fed = min(fed + window, len(view))
        item = _next_item(unpacker, limits if fed - start >= window else None)
        if unpacker.tell() - start > window:
            raise check.breached("bytes of an item", unpacker.tell() - start, window)
        items.append(checked(item, limits))
    if unpacker.tell() != len(view):
        raise MalformedMessage(
            f"{len(view) - unpacker.tell()} bytes follow the {count} items", what="frame"
        )
    return items


def _next_item(unpacker: Any, window: WireLimits | None = None) -> Plain:
    """The next array. With `window`, running out of data means that the item is too long."""
    try:
        item: object = unpacker.unpack()
    except msgpack.OutOfData:
        if window is not None:
            raise check.breached(
                "bytes of an item", window.max_item_bytes + 1, window.max_item_bytes
            ) from None
        raise MalformedMessage("the data ends inside an item", what="item") from None
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _unpack_error(error) from error
    return check.array(item, "item")


def _unpack_error(error: Exception) -> GpuwireError:
    """msgpack tells a breach of its limits by text alone."""
    if isinstance(error, msgpack.StackError):
        return LimitBreached("an item is nested too deep", what="depth of an item")
    breach = _LIMIT_TEXT.search(str(error))
    if breach:
        value, what, limit = breach.groups()
        return check.breached(f"length of one {what}", int(value), int(limit))
    return MalformedMessage(f"not msgpack: {type(error).__name__}", what="item")
