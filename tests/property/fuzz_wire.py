"""Throws mutated frames at both ends of a session, and at the decoders behind them.

    python tests/property/fuzz_wire.py [--count 100000] [--seed N]

Each round takes a valid conversation or a hostile piece of msgpack, damages it, and feeds it, cut
anywhere, to a session end in some state; bodies of frames that come out are decoded as tasks and
replies. Whatever happens must be a `ProtocolError` or `VersionMismatch`. The peak of traced memory
must stay below `PEAK_BYTES`. The seed is printed, so that a failure can be seen again.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuwire.errors import GpuwireError, ProtocolError, VersionMismatch
from gpuwire.ids import SessionId
from gpuwire.wire.codec import (
    decode_definition,
    decode_message,
    decode_replies,
    decode_tasks,
)
from gpuwire.wire.framing import BULK_HEADER_BYTES, PREFIX, decode_bulk_header
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import (
    DefineGraph,
    Hello,
    ReplyFrame,
    Resume,
    RunGraph,
    SessionLimits,
    TaskFrame,
    Welcome,
)
from gpuwire.wire.records import from_record, to_record
from gpuwire.wire.session import ClientSession, ServerSession

PEAK_BYTES = 24 * 1024 * 1024
"""Above the worst that the limits allow for frames of this size: 80 times two items' limits."""

_GOLDEN = json.loads((Path(__file__).parent.parent / "wire" / "golden.json").read_text())
ITEMS = {
    3: [bytes.fromhex(text) for text in _GOLDEN["tasks"].values()],
    4: [bytes.fromhex(text) for text in _GOLDEN["replies"].values()],
}
"""By the kind of frame that carries them."""
MESSAGES = [bytes.fromhex(text) for text in _GOLDEN["messages"].values()]
_BYTES_OF_NOTE = bytes.fromhex(
    "00017f808f90919fa0bfc0c1c2c4c6c7c9cacbcfd3d4d9dbdcdddedfe0ff"  # the edges of msgpack's kinds
)
_DEFINITION = next(
    task.definition
    for encoded in ITEMS[3]
    for task in decode_tasks(encoded, 1, DEFAULT_LIMITS)
    if isinstance(task, DefineGraph) and task.definition is not None
)
_HELLO = Hello((1,), "token", 0, "laptop")
_WELCOME = Welcome(1, SessionId(bytes(16)), (), SessionLimits(0, 0, 0, 60.0), "gpu-box")
_RESUME = replace(_HELLO, resume=Resume(SessionId(bytes(16)), bytes(32), 0))


@dataclass
class Outcome:
    """What a run met."""

    rounds: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    unharmed: int = 0
    """Rounds in which the session itself went on; a body may have been refused."""
    items: int = 0
    """Tasks and replies that decoded."""
    graphs: int = 0
    """Definitions of graphs that decoded."""
    peak_bytes: int = 0


def run(count: int, seed: int) -> Outcome:
    """That many rounds. Anything but a typed refusal is raised as `AssertionError`."""
    source = random.Random(seed)
    outcome = Outcome()
    tracemalloc.start()
    try:
        for number in range(count):
            try:
                _round(source, outcome)
            except Exception as error:
                raise AssertionError(f"seed {seed}, round {number}: {error!r}") from error
            outcome.rounds += 1
        outcome.peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome.peak_bytes < PEAK_BYTES, f"seed {seed}: a peak of {outcome.peak_bytes} bytes"
    return outcome


def _round(source: random.Random, outcome: Outcome) -> None:
    if source.random() < 0.02:
        _attempt(outcome, lambda: _bulk_header(source))
        return
    if source.random() < 0.1:
        _attempt(outcome, lambda: _definition(source, outcome))
        return
    end = _end(source)
    data = _conversation(source, 4 if isinstance(end, ClientSession) else 3)

    def feed() -> None:
        for piece in _pieces(source, data):
            for message in end.receive_data(piece):
                _attempt(outcome, lambda message=message: _decode(message, outcome))

    if not _attempt(outcome, feed):
        outcome.unharmed += 1
    end.close()


def _attempt(outcome: Outcome, action) -> bool:  # type: ignore[no-untyped-def]
    """Run it; True if it was refused, which must be with the right class and a short text."""
    try:
        action()
    except GpuwireError as error:
        assert isinstance(error, ProtocolError | VersionMismatch), error
        assert len(str(error)) < 1000
        outcome.refused[type(error).__name__] += 1
        assert from_record(to_record(error)).code == error.code
        return True
    return False


def _decode(message: object, outcome: Outcome) -> None:
    if isinstance(message, TaskFrame):
        tasks = decode_tasks(message.tasks, message.count, DEFAULT_LIMITS)
        outcome.items += len(tasks)
        for task in tasks:
            if isinstance(task, RunGraph | DefineGraph) and task.definition is not None:
                decode_definition(task.definition, DEFAULT_LIMITS)
                outcome.graphs += 1
    elif isinstance(message, ReplyFrame):
        outcome.items += len(decode_replies(message.replies, message.count, DEFAULT_LIMITS))


def _end(source: random.Random) -> ClientSession | ServerSession:
    """A session end, mostly open, at times still in its handshake, or in that of another link."""
    client, server = ClientSession(), ServerSession()
    stages = source.choice((0, 1, 2, 2, 2, 2, 2, 2, 2, 3))
    if stages >= 1:
        server.receive_data(client.send(_HELLO if stages < 3 else _RESUME))
    if stages == 2:
        client.receive_data(server.send(_WELCOME))
    return source.choice((client, server))


# --- What is thrown --------------------------------------------------------------------------


def _conversation(source: random.Random, frame_kind: int) -> bytes:
    """Some messages, damaged in their items, their heads or their lengths."""
    messages = []
    for sequence in range(1, source.randint(1, 3) + 1):
        payload = _message(source, frame_kind, sequence)
        for _ in range(source.choice((0, 0, 0, 1, 1, 2))):
            payload = _damaged(source, payload)
        length = len(payload)
        if source.random() < 0.05:
            length = source.choice((0, 1, length + 1, max(length - 1, 0), 1 << 23, (1 << 32) - 1))
        messages.append(PREFIX.pack(length) + payload)
    return b"".join(messages)


def _message(source: random.Random, frame_kind: int, sequence: int) -> bytes:
    choice = source.random()
    if choice < 0.15:
        return source.choice(MESSAGES)[4:]
    if choice < 0.2:
        return source.randbytes(source.randint(1, 60))
    if choice < 0.25:
        frame_kind = 7 - frame_kind
    count = source.randint(1, 5)
    items = [_item(source, ITEMS[frame_kind]) for _ in range(count)]
    return bytes((0x94, frame_kind, sequence, 0, count)) + b"".join(items)


def _item(source: random.Random, kinds: list[bytes]) -> bytes:
    item = source.choice(kinds)
    for _ in range(source.choice((0, 0, 0, 1, 2))):
        item = _damaged(source, item)
    return item


def _damaged(source: random.Random, data: bytes) -> bytes:
    place = source.randrange(len(data) + 1)
    match source.randrange(8):
        case 0:
            return data[:place] + bytes((source.randrange(256),)) + data[place + 1 :]
        case 1:
            return data[:place] + bytes((source.choice(_BYTES_OF_NOTE),)) + data[place + 1 :]
        case 2:
            return data[:place]
        case 3:
            return data[:place] + source.randbytes(source.randint(1, 9)) + data[place:]
        case 4:
            end = min(place + source.randint(1, 20), len(data))
            return data[:place] + data[end:]
        case 5:
            end = min(place + source.randint(1, 20), len(data))
            return data[:end] + data[place:]
        case 6:
            other = source.choice(ITEMS[3])
            return data[:place] + other[source.randrange(len(other)) :]
        case _:
            return data[:place] + _bomb(source) + data[place:]


def _bomb(source: random.Random) -> bytes:
    """Few bytes that ask for much: declared lengths, and nesting."""
    header = source.choice(b"\xc6\xc9\xdb\xdd\xdf")
    length = source.choice((1, 1023, 1024, 1025, 1 << 16, 1 << 20, (1 << 31) - 1, (1 << 32) - 1))
    declared = bytes((header,)) + length.to_bytes(4, "big")
    match source.randrange(8):
        case 0:
            return declared * source.randint(1, 600)
        case 1:
            return source.choice((b"\x91", b"\x9f", b"\xdc\x04\x00")) * source.randint(1, 600)
        case 2 if source.random() < 0.1:
            chain = b"\x91" * 400 + b"\xc0"
            return b"\xdc\x04\x00" + chain * source.randint(1, 1024)
        case _:
            return declared


def _pieces(source: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(source.randint(0, len(data)) for _ in range(source.choice((0, 0, 1, 3))))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _definition(source: random.Random, outcome: Outcome) -> None:
    """A graph's definition by itself: inside an item most damage never gets to it."""
    data = _DEFINITION
    for _ in range(source.choice((0, 1, 1, 2))):
        data = _damaged(source, data)
    decode_definition(data, DEFAULT_LIMITS)
    outcome.graphs += 1


def _bulk_header(source: random.Random) -> None:
    decode_bulk_header(source.randbytes(BULK_HEADER_BYTES), DEFAULT_LIMITS)
    decode_message(source.randbytes(20), DEFAULT_LIMITS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {arguments.count} rounds", flush=True)
    outcome = run(arguments.count, arguments.seed)
    refused = ", ".join(f"{name} {count}" for name, count in sorted(outcome.refused.items()))
    print(f"refused: {refused}")
    print(
        f"sessions that went on: {outcome.unharmed}; items decoded: {outcome.items}, "
        f"graphs among them: {outcome.graphs}"
    )
    print(f"peak of traced memory: {outcome.peak_bytes / 2**20:.1f} MiB")


if __name__ == "__main__":
    sys.exit(main())
