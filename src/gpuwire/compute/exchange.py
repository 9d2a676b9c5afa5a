"""Ranks that exchange bytes through memory they all map. Knows no devices: bytes in, bytes out.

The ranks of a group are threads or processes of one machine. Each has two slots in a file that all
map, filled in turn, and two counters: rounds published and rounds consumed. A round is over when
all have published; a slot is free again when all have consumed the round before last. Whoever waits
does so in growing steps and names the rank that did not come.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpuwire.errors import CollectiveError

Bytes = npt.NDArray[np.uint8]

CHUNK_BYTES = 4 * 1024 * 1024
HEADER_BYTES = 64
FIRST_STEP_SECONDS = 20e-6
LAST_STEP_SECONDS = 1e-3

_HEADER = struct.Struct("<?QI")
_NOTHING = 2**64 - 1


@dataclass(frozen=True, slots=True)
class CommunicationOptions:
    """Where ranks meet. All ranks of a group give the same, but for `device_id`."""

    device_id: int | None = None
    """This server's number among the ranks; None: its adapter's index."""
    name: str | None = None
    """Of the group's file; None: one for this user and this process's parent, which the device
    hosts of one front share."""
    directory: Path | None = None
    """None: memory, where the system has it as a directory."""
    deadline_seconds: float = 60.0
    """How long a rank waits for another."""


class Group:
    """One rank's seat in a group. Used from one thread."""

    def __init__(self, members: Sequence[int], own: int, options: CommunicationOptions) -> None:
        """Meets the other members. Raises CollectiveError for one that does not come."""
        self.members = tuple(members)
        self.rank = self.members.index(own)
        self.size = len(self.members)
        self._deadline = options.deadline_seconds
        self._broken: CollectiveError | None = None
        self._round = 0
        self._sent = [0] * self.size
        self._received = [0] * self.size
        path = _path(self.members, options)
        self._map = _shared_memory(path, _Layout(self.size).total)
        words = np.frombuffer(self._map, np.uint64, _Layout(self.size).counters)
        count = self.size
        self._joined, self._published, self._consumed = words[: 3 * count].reshape(3, count)
        pairs = words[3 * count :]
        self._pair_published = pairs[: count * count].reshape(count, count)
        self._pair_consumed = pairs[count * count : 2 * count * count].reshape(count, count)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._meet(path)

    def exchange(self, data: Bytes | None, kind: int, take: Callable[[list[Bytes]], None]) -> None:
        """One round: give `data`, at most `CHUNK_BYTES`, and hand everyone's to `take`, in rank
        order; the arrays are only good within it. `data` None: this rank has failed, and the others
        are told. `kind` is the same on all ranks, or they are doing different things."""
        self._round += 1
        turn = self._round & 1
        self._wait(self._consumed, self._round - 2)
        size = 0 if data is None else data.size
        slot = self._slot(self.rank, turn)
        slot[:HEADER_BYTES][: _HEADER.size] = np.frombuffer(
            _HEADER.pack(data is None, size, kind), np.uint8
        )
        if data is not None:
            slot[HEADER_BYTES : HEADER_BYTES + size] = data
        self._published[self.rank] = self._round
        self._wait(self._published, self._round)
        try:
            take([self._content(rank, turn, kind) for rank in range(self.size)])
        finally:
            self._consumed[self.rank] = self._round

    def send(self, data: Bytes | None, to: int) -> None:
        """Give a chunk to one member, in order with others to it; None: there will be none."""
        peer = self.members.index(to)
        self._sent[peer] += 1
        number = self._sent[peer]
        self._wait_pair(self._pair_consumed, self.rank, peer, number - 1, peer)
        slot = self._pair_slot(self.rank, peer)
        size = _NOTHING if data is None else data.size
        slot[:8] = np.frombuffer(struct.pack("<Q", size), np.uint8)
        if data is not None:
            slot[HEADER_BYTES : HEADER_BYTES + size] = data
        self._pair_published[self.rank, peer] = number

    def receive(self, into: Bytes, origin: int) -> None:
        """Take the next chunk from one member; it must have the size of `into`."""
        peer = self.members.index(origin)
        self._received[peer] += 1
        number = self._received[peer]
        self._wait_pair(self._pair_published, peer, self.rank, number, peer)
        slot = self._pair_slot(peer, self.rank)
        (size,) = struct.unpack("<Q", slot[:8].tobytes())
        fits = size == into.size
        if fits:
            into[:] = slot[HEADER_BYTES : HEADER_BYTES + size]
        self._pair_consumed[peer, self.rank] = number
        if size == _NOTHING:
            raise CollectiveError(f"device {origin} failed before it could send", rank=origin)
        if not fits:
            raise CollectiveError(
                f"device {origin} sent {size} bytes where {into.size} are to be received",
                rank=origin,
            )

    def _content(self, rank: int, turn: int, kind: int) -> Bytes:
        slot = self._slot(rank, turn)
        failed, size, theirs = _HEADER.unpack(slot[: _HEADER.size].tobytes())
        member = self.members[rank]
        if failed:
            raise CollectiveError(f"device {member} failed before the collective", rank=member)
        if theirs != kind:
            raise CollectiveError(
                f"device {member} is in another collective, or has another size or type",
                rank=member,
            )
        return slot[HEADER_BYTES : HEADER_BYTES + size]

    def _meet(self, path: Path) -> None:
        """Leave only when all have come and the file has no name any more: the next group of the
        same members then starts from a fresh one."""
        self._joined[self.rank] = 1
        self._wait(self._joined, 1)
        if self.rank == 0:
            path.unlink(missing_ok=True)
            self._joined[0] = 2
        step = FIRST_STEP_SECONDS
        began = time.monotonic()
        while self._joined[0] < 2:
            step = self._pause(step, began, 0)

    def _wait(self, counters: npt.NDArray[np.uint64], least: int) -> None:
        step, began = FIRST_STEP_SECONDS, time.monotonic()
        for rank in range(self.size):
            while int(counters[rank]) < least:
                step = self._pause(step, began, rank)

    def _wait_pair(
        self, counters: npt.NDArray[np.uint64], row: int, column: int, least: int, peer: int
    ) -> None:
        step, began = FIRST_STEP_SECONDS, time.monotonic()
        while int(counters[row, column]) < least:
            step = self._pause(step, began, peer)

    def _pause(self, step: float, began: float, rank: int) -> float:
        if self._broken is None and time.monotonic() - began > self._deadline:
            member = self.members[rank]
            self._broken = CollectiveError(
                f"device {member} did not come within {self._deadline:g} s", rank=member
            )
        if self._broken is not None:
            # The ranks no longer agree on which round they are in: nothing more can be exchanged.
            raise self._broken.with_traceback(None)
        time.sleep(step)
        return min(step * 1.5, LAST_STEP_SECONDS)

    def _slot(self, rank: int, turn: int) -> Bytes:
        layout = _Layout(self.size)
        start = layout.slots + (rank * 2 + turn) * layout.slot
        return self._bytes[start : start + layout.slot]

    def _pair_slot(self, origin: int, to: int) -> Bytes:
        layout = _Layout(self.size)
        start = layout.pairs + (origin * self.size + to) * layout.slot
        return self._bytes[start : start + layout.slot]


class _Layout:
    """Where things lie in a group's file; only pages that are used take memory."""

    def __init__(self, size: int) -> None:
        self.counters = 3 * size + 2 * size * size
        self.slot = HEADER_BYTES + CHUNK_BYTES
        self.slots = (self.counters * 8 + 4095) & -4096
        self.pairs = self.slots + 2 * size * self.slot
        self.total = self.pairs + size * size * self.slot


def _path(members: tuple[int, ...], options: CommunicationOptions) -> Path:
    name = options.name or f"{os.getuid()}-{os.getppid()}"
    directory = options.directory
    if directory is None:
        memory = Path("/dev/shm")
        directory = memory if memory.is_dir() else Path(tempfile.gettempdir())
    return directory / f"gpuwire-{name}-{'-'.join(map(str, members))}"


def _shared_memory(path: Path, size: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
