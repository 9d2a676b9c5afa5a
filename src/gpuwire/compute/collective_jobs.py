"""What the ranks do in each collective: pure exchanges of bytes over a group.

`data` is this rank's bytes; None where they could not be read, of which the others are told.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpuwire.compute.exchange import CHUNK_BYTES, Bytes, Group

EVERYONE_REDUCES_BELOW = 64 * 1024
PARTS_ALIGNMENT = 64


def all_reduce(
    group: Group, kind: int, data: Bytes | None, size: int, reduce: Callable[..., Bytes]
) -> Bytes:
    """The reduction of everyone's bytes."""
    result = np.empty(size, np.uint8)
    for start in range(0, size, CHUNK_BYTES):
        into = result[start : start + CHUNK_BYTES]
        chunk = None if data is None else data[start : start + CHUNK_BYTES]
        if into.size < EVERYONE_REDUCES_BELOW or group.size == 2:
            _reduce_whole(group, kind, chunk, into, reduce)
        else:
            _reduce_by_parts(group, kind, chunk, into, reduce)
    return result


def _reduce_whole(
    group: Group, kind: int, chunk: Bytes | None, into: Bytes, reduce: Callable[..., Bytes]
) -> None:
    group.exchange(chunk, kind, lambda parts: _assign(into, reduce(parts)))


def _reduce_by_parts(
    group: Group, kind: int, chunk: Bytes | None, into: Bytes, reduce: Callable[..., Bytes]
) -> None:
    step = -(-into.size // group.size // PARTS_ALIGNMENT) * PARTS_ALIGNMENT
    own = slice(group.rank * step, (group.rank + 1) * step)
    part: list[Bytes] = []

    def reduce_own(parts: list[Bytes]) -> None:
        mine = [other[own] for other in parts]
        part.append(reduce(mine) if mine[0].size else np.empty(0, np.uint8))

    group.exchange(chunk, kind, reduce_own)
    group.exchange(part[0], kind, lambda parts: _assign(into, np.concatenate(parts)))


def reduce_scatter(
    group: Group, kind: int, data: Bytes | None, part: int, reduce: Callable[..., Bytes]
) -> Bytes:
    """This rank's part of the reduction."""
    result = np.empty(part, np.uint8)
    room = CHUNK_BYTES // group.size // PARTS_ALIGNMENT * PARTS_ALIGNMENT
    for start in range(0, part, room):
        into = result[start : start + room]
        chunk = None if data is None else _parts_of(data, part, start, into.size)
        first = group.rank * into.size

        def take(parts: list[Bytes], into: Bytes = into, first: int = first) -> None:
            _assign(into, reduce([other[first : first + into.size] for other in parts]))

        group.exchange(chunk, kind, take)
    return result


def all_gather(group: Group, kind: int, data: Bytes | None, size: int) -> Bytes:
    """Everyone's bytes, in rank order."""
    result = np.empty((group.size, size), np.uint8)
    for start in range(0, size, CHUNK_BYTES):
        end = min(start + CHUNK_BYTES, size)
        chunk = None if data is None else data[start:end]

        def take(parts: list[Bytes], start: int = start, end: int = end) -> None:
            for rank, part in enumerate(parts):
                result[rank, start:end] = part

        group.exchange(chunk, kind, take)
    return result.reshape(-1)


def all_to_all(group: Group, kind: int, data: Bytes | None, part: int) -> Bytes:
    """What each rank has for this one."""
    result = np.empty((group.size, part), np.uint8)
    room = CHUNK_BYTES // group.size
    for start in range(0, part, room):
        end = min(start + room, part)
        chunk = None if data is None else _parts_of(data, part, start, end - start)
        first = group.rank * (end - start)

        def take(
            parts: list[Bytes], start: int = start, end: int = end, first: int = first
        ) -> None:
            for rank, other in enumerate(parts):
                result[rank, start:end] = other[first : first + end - start]

        group.exchange(chunk, kind, take)
    return result.reshape(-1)


def broadcast(
    group: Group, kind: int, data: Bytes | None, size: int, root: int, is_root: bool
) -> Bytes | None:
    """The root's bytes; None for the root itself."""
    result = np.empty(size, np.uint8)
    position = group.members.index(root)
    nothing = np.empty(0, np.uint8)
    for start in range(0, size, CHUNK_BYTES):
        into = result[start : start + CHUNK_BYTES]
        chunk: Bytes | None = nothing
        if is_root:
            chunk = None if data is None else data[start : start + CHUNK_BYTES]

        def take(parts: list[Bytes], into: Bytes = into) -> None:
            _assign(into, parts[position])

        group.exchange(chunk, kind, take)
    return None if is_root else result


def _parts_of(data: Bytes, part: int, start: int, size: int) -> Bytes:
    """The same stretch of each rank's part, side by side."""
    return np.ascontiguousarray(data.reshape(-1, part)[:, start : start + size]).reshape(-1)


def _assign(into: Bytes, values: Bytes) -> None:
    into[:] = values
