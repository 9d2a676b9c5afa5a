"""Between records and bytes: messages, tasks and replies. The only module that names msgpack.

**Message**: a big-endian u32, the length of what follows; then one msgpack array
`[kind, field, …]`. A frame's array is followed by its body, up to the message's end.
**Body**: encoded tasks or replies back to back, each one msgpack array `[kind, field, …]`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import Buffer, Message, Reply, ReplyFrame, Task, TaskFrame


def encode_task(task: Task) -> bytes:
    """One task, ready to be part of a frame's body. `ArgumentError` for a number that the wire
    does not carry: an integer beyond 64 bits, a value that does not fit its data type."""
    raise NotImplementedError


def encode_reply(reply: Reply) -> bytes:
    """One reply, ready to be part of a frame's body."""
    raise NotImplementedError


def encode_message(message: Message) -> bytes:
    """A message with its length prefix."""
    raise NotImplementedError


def encode_frame(
    kind: type[TaskFrame] | type[ReplyFrame],
    sequence: int,
    acknowledged: int,
    count: int,
    pieces: Sequence[Buffer],
) -> bytes:
    """A frame whose body is `pieces`, one after the other, with its length prefix; the pieces are
    copied once."""
    raise NotImplementedError


def decode_tasks(body: Buffer, count: int, limits: WireLimits) -> list[Task]:
    """The tasks of a frame's body. `MalformedMessage` or `LimitBreached` if it is not exactly
    `count` of them, each valid in every field."""
    raise NotImplementedError


def decode_replies(body: Buffer, count: int, limits: WireLimits) -> list[Reply]:
    """The replies of a frame's body; raises as `decode_tasks` does."""
    raise NotImplementedError


def decode_message(payload: Buffer, limits: WireLimits) -> Message:
    """A message without its length prefix. A frame's body stays undecoded: it is a view of
    `payload`. `MalformedMessage` or `LimitBreached`."""
    raise NotImplementedError
