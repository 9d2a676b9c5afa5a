"""Collectives over the devices of one machine.

A tensor is read into host memory in its stream's order, exchanged chunk by chunk with the other
ranks on a thread of its own, and written back in the stream's order. Every reduction goes through
the ranks in the same order, whoever does it: results are the same on all ranks, bit for bit, and
from run to run. Small tensors are reduced by every rank for itself (one round); of larger ones each
rank reduces a part and hands it on (two rounds, but each byte is read twice instead of once for
each rank). `collective_jobs` has the exchanges.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from gpuwire.compute import collective_jobs as jobs
from gpuwire.compute.completion import Completion
from gpuwire.compute.exchange import CHUNK_BYTES, Bytes, CommunicationOptions, Group
from gpuwire.compute.handles import CopyDescriptor
from gpuwire.compute.launch_scope import LaunchScope
from gpuwire.compute.reductions import Reduction, reducer
from gpuwire.compute.streams import Stream
from gpuwire.compute.transfers import Transfers
from gpuwire.errors import ArgumentError, CollectiveError, GpuwireError


@dataclass(slots=True)
class _Pending:
    """A collective under way: what to write where once it has ended."""

    result: Future[Bytes | None]
    target: CopyDescriptor | None


Job = Callable[[Bytes | None], Bytes | None]
"""The exchange: this rank's bytes, None where they could not be read, to what is to be written."""


class Collectives:
    """One server's part in them. The methods run on the server's thread, the exchanges beside it,
    in the order in which they were called."""

    def __init__(
        self,
        transfers: Transfers,
        scope: LaunchScope,
        own: int,
        options: CommunicationOptions,
    ) -> None:
        self._transfers = transfers
        self._scope = scope
        self._own = own
        self._options = options
        self._groups: dict[tuple[int, ...], Group] = {}
        self._pending: dict[Stream, list[_Pending]] = {}
        self._worker: ThreadPoolExecutor | None = None

    def init(self, device_ids: Sequence[int]) -> None:
        """Meet the others. Raises CollectiveError, ArgumentError."""
        members = tuple(device_ids)
        if self._own not in members or len(set(members)) != len(members):
            raise ArgumentError(
                f"devices {members}: each once, and device {self._own} among them, must be there"
            )
        self._groups[members] = Group(members, self._own, self._options)

    def all_reduce(
        self,
        source: CopyDescriptor,
        target: CopyDescriptor,
        reduction: Reduction,
        dtype: str,
        stream: Stream,
        device_ids: Sequence[int],
    ) -> None:
        """Start one; `finish` ends it."""
        group = self._group(device_ids)
        reduce = reducer(reduction, np.dtype(dtype), group.size)
        size = _same_size(source, target, 1)
        kind = _kind("all_reduce", reduction.value, dtype, size)
        self._start(
            source, target, stream, lambda data: jobs.all_reduce(group, kind, data, size, reduce)
        )

    def reduce_scatter(
        self,
        source: CopyDescriptor,
        target: CopyDescriptor,
        reduction: Reduction,
        dtype: str,
        stream: Stream,
        device_ids: Sequence[int],
    ) -> None:
        """Start one: rank r gets the r-th part of the reduced whole."""
        group = self._group(device_ids)
        reduce = reducer(reduction, np.dtype(dtype), group.size)
        part = _same_size(target, source, group.size)
        kind = _kind("reduce_scatter", reduction.value, dtype, part)
        self._start(
            source,
            target,
            stream,
            lambda data: jobs.reduce_scatter(group, kind, data, part, reduce),
        )

    def all_gather(
        self,
        source: CopyDescriptor,
        target: CopyDescriptor,
        stream: Stream,
        device_ids: Sequence[int],
    ) -> None:
        """Start one: everyone gets everyone's, in rank order."""
        group = self._group(device_ids)
        size = _same_size(source, target, group.size)
        kind = _kind("all_gather", size)
        self._start(source, target, stream, lambda data: jobs.all_gather(group, kind, data, size))

    def all_to_all(
        self,
        source: CopyDescriptor,
        target: CopyDescriptor,
        stream: Stream,
        device_ids: Sequence[int],
    ) -> None:
        """Start one: rank r's s-th part becomes rank s's r-th."""
        group = self._group(device_ids)
        size = _same_size(source, target, 1)
        if size % group.size:
            raise ArgumentError(f"{size} bytes do not part among {group.size} devices")
        kind = _kind("all_to_all", size)
        part = size // group.size
        self._start(source, target, stream, lambda data: jobs.all_to_all(group, kind, data, part))

    def broadcast(
        self,
        tensor: CopyDescriptor,
        root: int,
        stream: Stream,
        device_ids: Sequence[int],
    ) -> None:
        """Start one: everyone gets the root's bytes."""
        group = self._group(device_ids)
        _member(group, root)
        size = _nbytes(tensor)
        kind = _kind("broadcast", root, size)
        is_root = root == self._own
        self._start(
            tensor if is_root else None,
            None if is_root else tensor,
            stream,
            lambda data: jobs.broadcast(group, kind, data, size, root, is_root),
        )

    def send(
        self, source: CopyDescriptor, to: int, stream: Stream, device_ids: Sequence[int]
    ) -> None:
        """Start one; the other side receives."""
        group = self._group(device_ids)
        _member(group, to)

        def job(data: Bytes | None) -> None:
            if data is None:
                group.send(None, to)
                return
            for start in range(0, data.size, CHUNK_BYTES):
                group.send(data[start : start + CHUNK_BYTES], to)

        self._start(source, None, stream, job)

    def recv(
        self, target: CopyDescriptor, origin: int, stream: Stream, device_ids: Sequence[int]
    ) -> None:
        """Start one; the other side sends."""
        group = self._group(device_ids)
        _member(group, origin)
        size = _nbytes(target)

        def job(_data: Bytes | None) -> Bytes:
            into = np.empty(size, np.uint8)
            for start in range(0, size, CHUNK_BYTES):
                group.receive(into[start : start + CHUNK_BYTES], origin)
            return into

        self._start(None, target, stream, job)

    def finish(self, stream: Stream) -> None:
        """Wait for the stream's collectives and write what they brought; raises the first failure,
        which also takes the place of the bytes."""
        first: GpuwireError | None = None
        for pending in self._pending.pop(stream, []):
            try:
                result = pending.result.result()
            except GpuwireError as error:
                first = first or error
                if pending.target is not None:
                    target = self._transfers.range_of(pending.target)
                    self._scope.taint(stream, (target,) if target else (), error)
                continue
            if pending.target is not None and result is not None:
                self._transfers.write(pending.target, result.data, stream)
        if first is not None:
            raise first

    def close(self) -> None:
        """End the thread; what is under way is waited for, at most until its deadline."""
        self._pending.clear()
        if self._worker is not None:
            self._worker.shutdown(wait=True, cancel_futures=True)
        self._groups.clear()

    def _group(self, device_ids: Sequence[int]) -> Group:
        group = self._groups.get(tuple(device_ids))
        if group is None:
            raise CollectiveError(
                f"devices {tuple(device_ids)} are no group: comm_init comes first"
            )
        return group

    def _start(
        self,
        source: CopyDescriptor | None,
        target: CopyDescriptor | None,
        stream: Stream,
        job: Job,
    ) -> None:
        read = None if source is None else self._transfers.read([source], stream)
        if target is not None:
            found = self._transfers.range_of(target)
            if found is not None:
                self._scope.await_collective((found,))
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="gpuwire-collectives")
        result = self._worker.submit(_run, job, read, self._options.deadline_seconds)
        self._pending.setdefault(stream, []).append(_Pending(result, target))


def _run(job: Job, read: Completion[list[memoryview]] | None, deadline: float) -> Bytes | None:
    if read is None:
        return job(None)
    try:
        data = np.frombuffer(read.wait(deadline)[0], np.uint8)
    except GpuwireError:
        # The others must hear of it, or they would wait until their deadline.
        with contextlib.suppress(CollectiveError):
            job(None)
        raise
    return job(data)


def _kind(*facts: str | int) -> int:
    """What two ranks must agree on, as a number."""
    return zlib.crc32(repr(facts).encode())


def _nbytes(descriptor: CopyDescriptor) -> int:
    nbytes = descriptor.itemsize
    for extent in descriptor.shape:
        nbytes *= extent
    return nbytes


def _same_size(small: CopyDescriptor, large: CopyDescriptor, times: int) -> int:
    """The bytes of `small`, of which `large` must hold `times` as many."""
    size, found = _nbytes(small), _nbytes(large)
    if size < 1 or found != size * times:
        raise ArgumentError(f"tensors of {size} and {found} bytes, where {times} to 1 is needed")
    return size


def _member(group: Group, device: int) -> None:
    if device not in group.members:
        raise ArgumentError(f"device {device} is none of {group.members}")
