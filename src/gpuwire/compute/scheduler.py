"""Which real stream does a logical stream's work, and when batches are submitted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from gpuwire.compute.native import NativeDevice, NativeError
from gpuwire.compute.streams import Stream
from gpuwire.errors import DeviceLost

MAX_BYTES_BETWEEN_SUBMISSIONS = 2 * 1024 * 1024
"""Written bytes wait in upload buffers until their batch is submitted; this bounds those. A
submission costs 0.1 ms, and so many bytes come over a link in 1 ms or more."""


class Scheduler:
    """The real streams. Logical stream n folds onto real stream n modulo `max_streams`."""

    def __init__(
        self,
        device: NativeDevice,
        max_streams: int,
        tasks_max: int,
        prepare: Callable[[Stream], None],
        before_submit: Callable[[Stream], None],
        on_submitted: Callable[[Stream, int], None],
        on_failed_batch: Callable[[Stream, int, NativeError], None],
    ) -> None:
        """`prepare` gives a new real stream its memory."""
        self.tasks_max = tasks_max
        self._device = device
        self._max_streams = max_streams
        self._prepare = prepare
        self._before_submit = before_submit
        self._on_submitted = on_submitted
        self._on_failed_batch = on_failed_batch
        self._closed = False
        self._numbers = itertools.count(1)
        self._real: dict[int, Stream] = {}
        self._logical: dict[int, Stream] = {}

    def close(self) -> None:
        """Drop every stream with what is not submitted; no other will be made."""
        self._closed = True
        for stream in self._real.values():
            stream.discard()
        self._real.clear()
        self._logical.clear()

    def __iter__(self) -> Iterator[Stream]:
        """Every real stream."""
        return iter(tuple(self._real.values()))

    def stream(self, stream_id: int) -> Stream:
        """The real stream of a logical one."""
        found = self._logical.get(stream_id)
        return self._fold(stream_id) if found is None else found

    def stream_ids(self) -> tuple[int, ...]:
        """The logical streams that are alive: used since the last cleanup of their stream."""
        return tuple(sorted(self._logical))

    def forget_idle(self, stream: Stream) -> None:
        """Let the logical streams of a real one go, if nothing of theirs is left to submit."""
        if not stream.is_open:
            for stream_id in [one for one, real in self._logical.items() if real is stream]:
                del self._logical[stream_id]

    def launched(self, stream: Stream, count: int = 1) -> None:
        """Count launches; submits a full batch."""
        stream.launches += count
        if stream.launches >= self.tasks_max:
            stream.submit()

    def replayed(self, stream: Stream) -> None:
        """A graph was added to the open batch, and counts as its launches."""
        if stream.launches >= self.tasks_max:
            stream.submit()

    def written(self, stream: Stream, size: int) -> None:
        """Count written bytes; submits when they become many."""
        stream.bytes_written += size
        if stream.bytes_written >= MAX_BYTES_BETWEEN_SUBMISSIONS:
            stream.submit()

    def _fold(self, stream_id: int) -> Stream:
        if self._closed:
            raise DeviceLost("the compute server was closed", reason="closed")
        index = stream_id % self._max_streams
        real = self._real.get(index)
        if real is None:
            real = Stream(
                index,
                self._device,
                self._numbers.__next__,
                self._before_submit,
                self._on_submitted,
                self._on_failed_batch,
            )
            self._prepare(real)
            self._real[index] = real
        self._logical[stream_id] = real
        return real
