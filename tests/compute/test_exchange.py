"""Ranks in one room: threads, a process, ranks that do not come, ranks that disagree."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from gpuwire.compute import collective_jobs as jobs
from gpuwire.compute.exchange import CHUNK_BYTES, CommunicationOptions, Group
from gpuwire.compute.reductions import Reduction, reducer
from gpuwire.errors import ArgumentError, CollectiveError

NUMERIC = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


def options(tmp_path, own, deadline=30.0):
    return CommunicationOptions(own, "test", tmp_path, deadline)


def together(tmp_path, size, part, deadline=30.0):
    """Runs `part(group, rank)` on threads; each rank's result or error."""
    outcomes = [None] * size

    def run(rank):
        try:
            group = Group(range(size), rank, options(tmp_path, rank, deadline))
            outcomes[rank] = part(group, rank)
        except CollectiveError as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return outcomes


def values(dtype, length, rank):
    chance = np.random.default_rng(rank)
    numbers = chance.integers(1, 100, length).astype(np.float64) / (3 if dtype[0] in "fc" else 1)
    return (numbers + (1j * numbers if dtype[0] == "c" else 0)).astype(dtype)


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("reduction", list(Reduction))
def test_every_reduction_of_every_numeric_type(dtype, reduction):
    inputs = [values(dtype, 50, rank) for rank in range(3)]
    if dtype[0] == "c" and reduction in (Reduction.MIN, Reduction.MAX):
        with pytest.raises(ArgumentError, match="there is no m"):
            reducer(reduction, np.dtype(dtype), 3)
        return
    reduce = reducer(reduction, np.dtype(dtype), 3)
    with np.errstate(all="ignore"):
        found = reduce([one.view(np.uint8) for one in inputs]).view(dtype)
        oracle = {
            Reduction.SUM: lambda s: s.sum(0),
            Reduction.MEAN: lambda s: s.sum(0) / 3,
            Reduction.PROD: lambda s: s.prod(0),
            Reduction.MIN: lambda s: s.min(0),
            Reduction.MAX: lambda s: s.max(0),
        }[reduction]
    if dtype[0] in "iu":
        stacked = np.stack(inputs)
        exact = {
            Reduction.SUM: stacked.sum(0, dtype=dtype),
            Reduction.MEAN: stacked.sum(0, dtype=dtype) // 3,
            Reduction.PROD: stacked.prod(0, dtype=dtype),
        }.get(reduction, oracle(stacked))
        assert (found == exact).all()
    else:
        wide = np.stack(inputs).astype(np.complex128 if dtype[0] == "c" else np.float64)
        assert np.allclose(found, oracle(wide), rtol=2e-3 if dtype == "f2" else 1e-5)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("nbytes", [4, 4000, 300_000, 2 * CHUNK_BYTES + 12])
def test_all_reduce_gives_every_rank_the_same_bits(tmp_path, size, nbytes):
    inputs = [values("f4", nbytes // 4, rank) for rank in range(size)]
    reduce = reducer(Reduction.SUM, np.dtype("f4"), size)

    def part(group, rank):
        first = jobs.all_reduce(group, 1, inputs[rank].view(np.uint8), nbytes, reduce)
        again = jobs.all_reduce(group, 1, inputs[rank].view(np.uint8), nbytes, reduce)
        assert (first == again).all()
        return first

    outcomes = together(tmp_path, size, part)
    expected = reduce([one.view(np.uint8) for one in inputs])
    for outcome in outcomes:
        assert (outcome == expected).all()


@pytest.mark.parametrize("part_bytes", [4, 1000, CHUNK_BYTES])
def test_the_collectives_that_move(tmp_path, part_bytes):
    inputs = [np.random.default_rng(r).integers(0, 256, 3 * part_bytes, np.uint8) for r in range(3)]
    reduce = reducer(Reduction.MAX, np.dtype("u1"), 3)

    def part(group, rank):
        own = inputs[rank]
        gathered = jobs.all_gather(group, 1, own, own.size)
        scattered = jobs.reduce_scatter(group, 2, own, part_bytes, reduce)
        exchanged = jobs.all_to_all(group, 3, own, part_bytes)
        told = jobs.broadcast(group, 4, own if rank == 1 else None, own.size, 1, rank == 1)
        return gathered, scattered, exchanged, told

    for rank, outcome in enumerate(together(tmp_path, 3, part)):
        gathered, scattered, exchanged, told = outcome
        own = slice(rank * part_bytes, (rank + 1) * part_bytes)
        assert (gathered == np.concatenate(inputs)).all()
        assert (scattered == np.stack(inputs).max(0)[own]).all()
        assert (exchanged == np.concatenate([one[own] for one in inputs])).all()
        assert told is None if rank == 1 else (told == inputs[1]).all()


def test_sends_between_two_disturb_no_third(tmp_path):
    def part(group, rank):
        if rank == 0:
            for number in range(5):
                group.send(np.full(7, number, np.uint8), 2)
        if rank == 2:
            into = np.empty(7, np.uint8)
            seen = []
            for _ in range(5):
                group.receive(into, 0)
                seen.append(int(into[3]))
            return seen
        return None

    assert together(tmp_path, 3, part)[2] == [0, 1, 2, 3, 4]


def test_a_rank_that_never_comes_is_named_after_the_deadline(tmp_path):
    with pytest.raises(CollectiveError, match="device 8 did not come") as raised:
        Group((7, 8), 7, options(tmp_path, 7, deadline=0.1))
    assert raised.value.rank == 8


def test_a_rank_that_leaves_is_named_and_the_group_stays_broken(tmp_path):
    def part(group, rank):
        if rank == 1:
            return None
        for _ in range(2):
            with pytest.raises(CollectiveError, match="device 1 did not come") as raised:
                group.exchange(np.zeros(4, np.uint8), 1, lambda parts: None)
        return raised.value.rank

    assert together(tmp_path, 2, part, deadline=0.2)[0] == 1


def test_ranks_that_do_different_things_are_told_and_go_on(tmp_path):
    def part(group, rank):
        with pytest.raises(CollectiveError, match="another collective"):
            group.exchange(np.zeros(4, np.uint8), 10 + rank, lambda parts: None)
        return jobs.all_gather(group, 1, np.full(2, rank, np.uint8), 2).tolist()

    assert together(tmp_path, 2, part) == [[0, 0, 1, 1]] * 2


def test_a_failed_rank_is_named_by_the_others(tmp_path):
    reduce = reducer(Reduction.SUM, np.dtype("u1"), 3)

    def part(group, rank):
        data = None if rank == 1 else np.zeros(300_000, np.uint8)
        return jobs.all_reduce(group, 1, data, 300_000, reduce)

    for outcome in together(tmp_path, 3, part):
        assert isinstance(outcome, CollectiveError)
        assert outcome.rank == 1


def test_ranks_may_be_processes_and_meet_again(tmp_path):
    program = f"""
from pathlib import Path
import numpy as np
from gpuwire.compute import collective_jobs as jobs
from gpuwire.compute.exchange import CommunicationOptions, Group
for _ in range(2):
    group = Group((0, 1), 1, CommunicationOptions(1, "test", Path({str(tmp_path)!r}), 30.0))
    jobs.all_gather(group, 1, np.full(3, 9, np.uint8), 3)
"""
    other = subprocess.Popen([sys.executable, "-c", program])
    for _ in range(2):
        group = Group((0, 1), 0, options(tmp_path, 0))
        assert jobs.all_gather(group, 1, np.zeros(3, np.uint8), 3).tolist() == [0, 0, 0, 9, 9, 9]
    assert other.wait(30) == 0
    assert list(tmp_path.iterdir()) == []
