"""The scope that all device work goes through, so that no failure leaves bytes that look whole.

Work claims the bytes it will write before it does anything. It leaves by releasing the claim, or by
putting the error in its place. If an input is tainted the body is skipped and the first cause is
passed on to the outputs. An exception that nobody expected in the body leaves the claim standing:
whoever reads those bytes is told that their writer was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpuwire.compute.memory.slices import Slice
from gpuwire.compute.streams import Stream
from gpuwire.compute.taint import (
    CLAIMED,
    IN_COLLECTIVE,
    WHOLE_CLAIM,
    Failure,
    detached,
    first_failure,
    marked,
)
from gpuwire.errors import GpuwireError

Range = tuple[Slice, int, int]
"""Bytes of a slice: the first, and one past the last. May reach into the padding."""

Claim = tuple[Stream, Sequence[Range]]


class ScopeHost(Protocol):
    """What the server lends the scope."""

    def write_set(self) -> list[Claim]:
        """The claims of work that is under way, or was interrupted."""
        ...

    def on_failure(self, stream: Stream, error: GpuwireError) -> None:
        """Work of `stream` failed for a cause of its own."""
        ...


class LaunchScope:
    """Claims, releases and taints. `failed_batches` are submissions that wgpu refused whole."""

    def __init__(self, host: ScopeHost) -> None:
        self.failed_batches: dict[int, Failure] = {}
        self._host = host
        self._claims = host.write_set()
        self._failures = 0

    def failure(self, used: Slice, start: int, end: int, *, fresh: bool = False) -> Failure | None:
        """Why bytes of a slice do not exist; None if they do. `fresh`: see `first_failure`."""
        if self.failed_batches and used.written_batch in self.failed_batches:
            self._taint_whole(used)
        marks = used.marks
        if marks is None:
            return None
        return first_failure(marks, start, min(end, used.size), fresh=fresh)

    def enter(
        self,
        stream: Stream,
        reads: Sequence[Range],
        updates: Sequence[Range],
        writes: Sequence[Range],
    ) -> bool:
        """Claim `writes`. False: something in `reads` or `updates` is tainted; then the outputs
        are tainted with the first cause and the body is to be skipped. `updates` are those of the
        writes that may read what they overwrite; never written bytes are no failure there."""
        cause: Failure | None = None
        for used, start, end in reads:
            found = self.failure(used, start, end)
            if found is not None and (cause is None or found.order < cause.order):
                cause = found
        for used, start, end in updates:
            found = self.failure(used, start, end, fresh=True)
            if found is not None and (cause is None or found.order < cause.order):
                cause = found
        if self.failed_batches:
            for used, _, _ in writes:
                if used.written_batch in self.failed_batches:
                    self._taint_whole(used)
        if cause is not None:
            _mark(writes, cause)
            return False
        self.claim(stream, writes)
        return True

    def claim(self, stream: Stream, writes: Sequence[Range]) -> None:
        """Claim `writes` for work all of whose inputs are known to exist."""
        self._claims.append((stream, writes))
        for used, start, end in writes:
            if start == 0 and end >= used.size:
                used.marks = WHOLE_CLAIM
            else:
                used.marks = marked(used.marks, start, min(end, used.size), CLAIMED)

    def leave(self, stream: Stream, writes: Sequence[Range]) -> None:
        """The work is on its way: its bytes exist."""
        self._claims.pop()
        batch = stream.batch
        for used, start, end in writes:
            used.written_batch = batch
            if start == 0 and end >= used.size:
                used.marks = None
            else:
                used.marks = marked(used.marks, start, min(end, used.size), None)

    def fail(self, stream: Stream, writes: Sequence[Range], error: GpuwireError) -> None:
        """The claimed work failed: its error takes the place of its bytes."""
        self._claims.pop()
        self.taint(stream, writes, error)

    def taint(self, stream: Stream, writes: Sequence[Range], error: GpuwireError) -> None:
        """Put a failure in the place of bytes that were not claimed."""
        _mark(writes, self.new_failure(error))
        self._host.on_failure(stream, error)

    def await_collective(self, writes: Sequence[Range]) -> None:
        """The bytes will be written by a collective's end; until then they do not exist."""
        _mark(writes, IN_COLLECTIVE)

    def new_failure(self, error: GpuwireError) -> Failure:
        """The next failure in order."""
        self._failures += 1
        return Failure(self._failures, detached(error))

    def _taint_whole(self, used: Slice) -> None:
        used.marks = marked(used.marks, 0, used.size, self.failed_batches[used.written_batch])
        used.written_batch = 0


def _mark(ranges: Sequence[Range], failure: Failure) -> None:
    for used, start, end in ranges:
        if start == 0 and end >= used.size:
            used.marks = ((0, used.size, failure),)
        else:
            used.marks = marked(used.marks, start, min(end, used.size), failure)
