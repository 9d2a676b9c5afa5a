"""Collectives, as a server offers them.

Every device of a group calls the same collectives in the same order. With `wait` a call returns
when its result is queued for writing; without, the result does not exist before `sync_collective`,
and reading it sooner is an error. A device that does not come is a CollectiveError with its id
after the deadline; so is one whose own work failed before.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuwire.compute.capture import Captures
from gpuwire.compute.collectives import Collectives
from gpuwire.compute.handles import CopyDescriptor
from gpuwire.compute.reductions import Reduction
from gpuwire.compute.scheduler import Scheduler
from gpuwire.compute.streams import Stream


class CommunicationFace:
    """What devices do together."""

    _captures: Captures
    _collectives: Collectives
    _scheduler: Scheduler

    def comm_init(self, device_ids: Sequence[int]) -> None:
        """Meet the other devices of a group. Blocks until all have come."""
        self._collectives.init(device_ids)

    def sync_collective(self, stream_id: int = 0) -> None:
        """End the stream's collectives and queue what they brought. Raises the first failure."""
        self._collectives.finish(self._scheduler.stream(stream_id))

    def all_reduce(
        self,
        src: CopyDescriptor,
        dst: CopyDescriptor,
        reduction: Reduction,
        stream_id: int,
        device_ids: Sequence[int],
        wait: bool = True,
        *,
        dtype: str,
    ) -> None:
        """The reduction over all devices' `src`, the same bits in each one's `dst`. `dtype` is
        NumPy's name. Raises ArgumentError for one that has no such reduction."""
        stream = self._collective_stream("all_reduce", stream_id)
        self._collectives.all_reduce(src, dst, reduction, dtype, stream, device_ids)
        self._end_collective(stream, wait)

    def reduce_scatter(
        self,
        src: CopyDescriptor,
        dst: CopyDescriptor,
        reduction: Reduction,
        stream_id: int,
        device_ids: Sequence[int],
        wait: bool = True,
        *,
        dtype: str,
    ) -> None:
        """Each device gets its part, in the order of `device_ids`, of the reduction."""
        stream = self._collective_stream("reduce_scatter", stream_id)
        self._collectives.reduce_scatter(src, dst, reduction, dtype, stream, device_ids)
        self._end_collective(stream, wait)

    def all_gather(
        self,
        src: CopyDescriptor,
        dst: CopyDescriptor,
        stream_id: int,
        device_ids: Sequence[int],
        wait: bool = True,
    ) -> None:
        """Every device's `src`, one after the other in the order of `device_ids`."""
        stream = self._collective_stream("all_gather", stream_id)
        self._collectives.all_gather(src, dst, stream, device_ids)
        self._end_collective(stream, wait)

    def all_to_all(
        self,
        src: CopyDescriptor,
        dst: CopyDescriptor,
        stream_id: int,
        device_ids: Sequence[int],
        wait: bool = True,
    ) -> None:
        """The n-th part of `src` goes to the n-th device; `dst` holds what came from each."""
        stream = self._collective_stream("all_to_all", stream_id)
        self._collectives.all_to_all(src, dst, stream, device_ids)
        self._end_collective(stream, wait)

    def broadcast(
        self,
        tensor: CopyDescriptor,
        root: int,
        stream_id: int,
        device_ids: Sequence[int],
        wait: bool = True,
    ) -> None:
        """Device `root`'s tensor in everyone's."""
        stream = self._collective_stream("broadcast", stream_id)
        self._collectives.broadcast(tensor, root, stream, device_ids)
        self._end_collective(stream, wait)

    def send(
        self,
        src: CopyDescriptor,
        peer: int,
        stream_id: int,
        device_ids: Sequence[int],
        wait: bool = True,
    ) -> None:
        """Hand a tensor to one other device, which calls `recv`."""
        stream = self._collective_stream("send", stream_id)
        self._collectives.send(src, peer, stream, device_ids)
        self._end_collective(stream, wait)

    def recv(
        self,
        dst: CopyDescriptor,
        peer: int,
        stream_id: int,
        device_ids: Sequence[int],
        wait: bool = True,
    ) -> None:
        """Take a tensor of the same size from one other device, which calls `send`."""
        stream = self._collective_stream("recv", stream_id)
        self._collectives.recv(dst, peer, stream, device_ids)
        self._end_collective(stream, wait)

    def _collective_stream(self, name: str, stream_id: int) -> Stream:
        self._captures.refuse(stream_id, name)
        return self._scheduler.stream(stream_id)

    def _end_collective(self, stream: Stream, wait: bool) -> None:
        if wait:
            self._collectives.finish(stream)
