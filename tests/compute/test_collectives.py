"""Collectives over two servers: in order with their streams, tainted where they fail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gpuwire.compute import CommunicationOptions, Reduction, WgpuServer, adapters
from gpuwire.errors import ArgumentError, CollectiveError, InvalidHandle, KernelCompileError

DEVICES = (4, 9)


@pytest.fixture
def pair(runtime_directory, work_class, tmp_path):
    """Two servers that have met, each with its thread; `both(part)` runs a part on each. They are
    on two adapters where there are two."""
    adapter_of = dict(zip(DEVICES, (0, min(1, len(adapters()) - 1)), strict=True))
    threads = [ThreadPoolExecutor(1) for _ in DEVICES]

    def make(device):
        communication = CommunicationOptions(device, "pair", tmp_path, 20.0)
        return work_class(WgpuServer.init(adapter_of[device], communication=communication))

    works = [
        thread.submit(make, device).result(60)
        for thread, device in zip(threads, DEVICES, strict=True)
    ]

    def both(part):
        futures = [
            thread.submit(part, work, rank)
            for rank, (thread, work) in enumerate(zip(threads, works, strict=True))
        ]
        return [future.result(60) for future in futures]

    both(lambda work, rank: work.server.comm_init(DEVICES))
    yield both
    both(lambda work, rank: work.server.close())
    for thread in threads:
        thread.shutdown()


def whole(work, handle):
    return work.descriptor(handle, handle.slice.size)


def test_all_reduce_lies_between_the_launches_around_it(pair):
    def part(work, rank):
        first = work.words(rank, 10 * rank)
        source, reduced, last = work.empty(8), work.empty(8), work.empty(8)
        work.add(first, source, 1)
        work.server.all_reduce(
            whole(work, source), whole(work, reduced), Reduction.SUM, 0, DEVICES, dtype="uint32"
        )
        work.add(reduced, last, 100)
        return work.get_words(last)

    assert pair(part) == [[103, 112]] * 2


def test_without_waiting_the_result_is_not_there_before_sync_collective(pair):
    def part(work, rank):
        source, reduced = work.words(rank + 1), work.empty(4)
        work.server.all_reduce(
            whole(work, source),
            whole(work, reduced),
            Reduction.PROD,
            0,
            DEVICES,
            wait=False,
            dtype="uint32",
        )
        with pytest.raises(InvalidHandle, match="sync_collective"):
            work.get(reduced)
        work.server.sync_collective()
        return work.get_words(reduced)

    assert pair(part) == [[2], [2]]


def test_the_collectives_that_move(pair):
    def part(work, rank):
        server = work.server
        source = work.words(rank * 10, rank * 10 + 1)
        gathered, scattered, exchanged = work.empty(16), work.empty(4), work.empty(8)
        told = work.words(rank, rank)
        server.all_gather(whole(work, source), whole(work, gathered), 0, DEVICES)
        server.reduce_scatter(
            whole(work, source), whole(work, scattered), Reduction.MAX, 0, DEVICES, dtype="uint32"
        )
        server.all_to_all(whole(work, source), whole(work, exchanged), 0, DEVICES)
        server.broadcast(whole(work, told), 9, 0, DEVICES)
        return [work.get_words(handle) for handle in (gathered, scattered, exchanged, told)]

    assert pair(part) == [
        [[0, 1, 10, 11], [10], [0, 10], [1, 1]],
        [[0, 1, 10, 11], [11], [1, 11], [1, 1]],
    ]


def test_send_and_recv(pair):
    data = np.random.default_rng(0).integers(0, 256, 5_000_000, np.uint8)

    def part(work, rank):
        if rank == 0:
            work.server.send(whole(work, work.put(data)), 9, 0, DEVICES)
            return None
        target = work.empty(data.size)
        work.server.recv(whole(work, target), 4, 0, DEVICES)
        return work.get(target)

    assert (pair(part)[1] == data).all()


def test_a_tainted_input_fails_on_its_own_rank_with_the_cause_and_on_others_with_its_id(pair):
    def part(work, rank):
        source, reduced = work.words(1), work.words(5)
        if rank == 1:
            work.fail(reduced, source)
        expected = KernelCompileError if rank == 1 else CollectiveError
        arguments = (whole(work, source), whole(work, reduced), Reduction.SUM, 0, DEVICES)
        with pytest.raises(expected) as raised:
            work.server.all_reduce(*arguments, dtype="uint32")
        with pytest.raises(expected):
            work.get(reduced)
        return raised.value

    assert pair(part)[0].rank == 9


def test_calls_that_cannot_be_are_refused(pair):
    def part(work, rank):
        server, source, target = work.server, work.words(1, 2), work.words(3)
        with pytest.raises(CollectiveError, match="comm_init"):
            server.all_gather(whole(work, source), whole(work, source), 0, (1, 2))
        with pytest.raises(ArgumentError, match="among them"):
            server.comm_init((1, 2))
        with pytest.raises(ArgumentError, match="8 and 4 bytes"):
            server.all_gather(whole(work, source), whole(work, target), 0, DEVICES)
        with pytest.raises(ArgumentError, match="none of"):
            server.send(whole(work, source), 77, 0, DEVICES)
        with pytest.raises(ArgumentError, match="no sum of bool"):
            server.all_reduce(
                whole(work, source), whole(work, source), Reduction.SUM, 0, DEVICES, dtype="bool"
            )
        return work.get_words(target)

    assert pair(part) == [[3], [3]]
