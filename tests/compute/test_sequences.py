"""Sequences of launches: as if launched one by one, or not at all."""

from __future__ import annotations

import gc
import struct

import pytest

from gpuwire.compute import Handle
from gpuwire.compute.sequence_launcher import MAX_PLACES
from gpuwire.compute.sequences import BufferRange, LaunchSequence, SequenceLaunch
from gpuwire.errors import KernelCompileError, OutOfMemory
from gpuwire.kernels.kernel import Access, Kernel

ECHO = """\
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1)
fn main() { for (var i = 0u; i < 100u; i++) { out[i] = params[i / 4][i % 4]; } }
"""
SIZE = 16
"""Bytes of each slot."""


def adding(work, source, target, number=None, offset=0):
    """One launch of four words; `number` None is brought by the run."""
    params = struct.pack("<I", 4) if number is None else struct.pack("<2I", 4, number)
    buffers = (BufferRange(source, offset, SIZE), BufferRange(target, 0, SIZE))
    more = 4 if number is None else 0
    return SequenceLaunch(work.add_kernel, 1, buffers, params, more)


def pair(work):
    """Slot 0 is given; slot 1 is it and 10 more, slot 2 that and a number that the run brings."""
    launches = (adding(work, 0, 1, 10), adding(work, 1, 2))
    sequence = LaunchSequence.of(launches, ((1, SIZE), (2, SIZE)))
    assert sequence is not None
    return sequence


def run(work, sequence, source, number, stream=0):
    handles = [source, None, None]
    ran = work.server.launch_sequence(sequence, handles, [struct.pack("<I", number)], stream)
    return handles[1:] if ran else None


def test_a_run_is_given_memory_and_makes_its_own(work):
    source = work.words(1, 2, 3, 4)
    middle, target = run(work, pair(work), source, 5)
    assert work.get_words(middle) == [11, 12, 13, 14]
    assert work.get_words(target) == [16, 17, 18, 19]


def test_runs_keep_apart_what_they_made_and_what_they_brought(work):
    sequence, source = pair(work), work.words(0, 0, 0, 1)
    made = [run(work, sequence, source, number)[1] for number in range(2 * MAX_PLACES + 3)]
    for number, target in enumerate(made):
        assert work.get_words(target) == [10 + number] * 3 + [11 + number]
    assert len(sequence.bound) <= MAX_PLACES


def test_the_places_that_were_not_used_for_longest_go_first(work):
    sequence, first = pair(work), work.words(0, 0, 0, 0)
    made = run(work, sequence, first, 0)  # Held, so that other runs lie elsewhere.
    (bound,) = sequence.bound.values()
    others = [run(work, sequence, first, number) for number in range(MAX_PLACES - 1)]
    assert len(sequence.bound) == MAX_PLACES
    made = None
    made = run(work, sequence, first, 0)  # Where it lay at first.
    assert bound in sequence.bound.values()
    others.append(run(work, sequence, first, 0))
    assert bound in sequence.bound.values()
    assert len(sequence.bound) == MAX_PLACES
    del made


def test_a_loop_finds_what_was_bound_at_its_places(work):
    sequence, value = pair(work), work.words(0, 0, 0, 0)
    for number in range(40):
        _, value = run(work, sequence, value, number)
    assert work.get_words(value) == [400 + sum(range(40))] * 4
    assert len(sequence.bound) <= 4


def test_streams_are_ordered_by_what_they_share(work):
    sequence, value = pair(work), work.words(1, 1, 1, 1)
    for number in range(12):
        _, value = run(work, sequence, value, number, stream=number % 3)
    assert work.get_words(value) == [1 + 120 + sum(range(12))] * 4


def test_runs_are_launches_of_their_kernels(fresh_work):
    sequence, source = pair(fresh_work), fresh_work.words(1, 1, 1, 1)
    for number in range(3):
        assert run(fresh_work, sequence, source, number)
    assert fresh_work.server.launch_counts()["add"] == 6
    fresh_work.server.memory_cleanup()
    assert run(fresh_work, sequence, source, 1)
    assert fresh_work.server.launch_counts()["add"] == 8


@pytest.mark.parametrize("failed", ["never written", "tainted"])
def test_memory_that_does_not_exist_whole_is_left_to_single_launches(work, failed):
    source = work.empty(SIZE)
    if failed == "tainted":
        work.fail(work.words(1), source)
    assert run(work, pair(work), source, 1) is None
    assert work.server.write_set() == []


def test_a_batch_that_was_refused_is_looked_at_one_by_one_and_others_are_not(fresh_work):
    from gpuwire.compute.native import lib
    from gpuwire.errors import GpuwireError

    work = fresh_work
    source, good = work.words(1, 2, 3, 4), work.words(5, 6, 7, 8)
    sequence = pair(work)
    work.server.flush()
    _, lost = run(work, sequence, source, 1)
    stream = work.server._scheduler.stream(0)
    buffer = source.slice.page.buffer
    lib.wgpuCommandEncoderCopyBufferToBuffer(stream.copying(), buffer, 0, buffer, 0, 3)
    with pytest.raises(GpuwireError, match="refused a batch"):
        work.server.flush()
    assert run(work, sequence, lost, 1) is None
    assert work.get_words(run(work, sequence, good, 1)[1]) == [16, 17, 18, 19]
    with pytest.raises(GpuwireError, match="refused a batch"):
        work.get(lost)


def test_a_kernel_that_does_not_compile_is_left_to_single_launches(work):
    buffers = (BufferRange(0, 0, SIZE), BufferRange(1, 0, SIZE))
    broken = SequenceLaunch(work.broken_kernel, 1, buffers, b"")
    sequence = LaunchSequence.of((broken,), ((1, SIZE),))
    source = work.words(1, 2, 3, 4)
    assert not work.server.launch_sequence(sequence, [source, None])
    target = work.empty(SIZE)
    work.fail(source, target)
    with pytest.raises(KernelCompileError):
        work.get(target)


def test_launches_that_are_captured_or_observed_are_single(work):
    class Observer:
        def before(self, kernel, stream):
            pass

        def after(self, kernel, stream):
            pass

    sequence, source = pair(work), work.words(1, 2, 3, 4)
    work.server.graph_prepare(1)
    work.server.begin_capture(1)
    assert run(work, sequence, source, 1, stream=1) is None
    assert run(work, sequence, source, 1, stream=0)
    work.server.end_capture(1)
    work.server.observe_launches(Observer())
    assert run(work, sequence, source, 1) is None
    work.server.observe_launches(None)


def test_a_window_opens_with_a_sequence(work):
    sequence, source = pair(work), work.words(1, 2, 3, 4)
    token = work.server.start_profile_at_launch()
    assert run(work, sequence, source, 1)
    assert work.server.end_profile(0, token).wait(60) > 0


def test_without_memory_nothing_is_queued(work):
    launches = (adding(work, 0, 1, 1), adding(work, 0, 2, 1))
    sequence = LaunchSequence.of(
        (*launches, SequenceLaunch(work.add_kernel, 1, _whole(0, 3, 1 << 45), b"\0" * 8)),
        ((1, SIZE), (2, SIZE), (3, 1 << 45)),
    )
    source = work.words(1, 2, 3, 4)
    with pytest.raises(OutOfMemory):
        work.server.launch_sequence(sequence, [source, None, None, None])
    assert work.server.write_set() == []


def test_parameters_too_long_for_immediates_are_kept_with_what_is_bound(fresh_work):
    work = fresh_work
    echo = Kernel("echo", ECHO, (Access.WRITE,), (1, 1, 1), 100)
    sequences = [
        LaunchSequence.of(
            (SequenceLaunch(echo, 1, (BufferRange(0, 0, 400),), struct.pack("<100I", *values)),),
            ((0, 400),),
        )
        for values in (range(100), range(100, 200))
    ]
    for _ in range(3):
        outs = []
        for sequence in sequences:
            handles = [None]
            assert work.server.launch_sequence(sequence, handles)
            outs += handles
        assert work.get_words(outs[0]) == list(range(100))
        assert work.get_words(outs[1]) == list(range(100, 200))
        work.server.memory_cleanup()
    del outs, handles
    gc.collect()
    work.server.sync().wait(60)
    work.server.memory_cleanup()
    assert work.server.memory_report().bytes_reserved == 0


def test_pages_that_go_take_along_what_binds_them(fresh_work):
    sequence, source = pair(fresh_work), fresh_work.words(1, 2, 3, 4)
    big = LaunchSequence.of(
        (SequenceLaunch(fresh_work.add_kernel, 1, _whole(0, 1, 3 << 20), b"\0" * 8),),
        ((1, 3 << 20),),
    )
    assert run(fresh_work, sequence, source, 1)
    handles: list[Handle | None] = [source, None]
    assert fresh_work.server.launch_sequence(big, handles)
    page = handles[1].slice.page
    del handles
    other = fresh_work.empty(300 << 20)  # The pool of large tensors makes room for it.
    del other
    fresh_work.empty(1 << 20)
    assert page.buffer is None
    assert not big.bound
    assert sequence.bound


@pytest.mark.parametrize(
    ("launches", "made"),
    [
        ([(1, 2), (0, 1)], ((1, SIZE), (2, SIZE))),  # Reads what is written later.
        ([(0, 1)], ((1, 2 * SIZE),)),  # Leaves half of it unwritten.
        ([], ((1, SIZE),)),
    ],
)
def test_what_cannot_be_answered_for_as_a_whole_is_no_sequence(work, launches, made):
    found = [adding(work, source, target, 1) for source, target in launches]
    assert LaunchSequence.of(found, made) is None


def test_what_is_given_may_be_written_too(work):
    sequence = LaunchSequence.of((adding(work, 0, 1, 1), adding(work, 1, 2, 10)), ((2, SIZE),))
    source, target = work.words(1, 2, 3, 4), work.words(0, 0, 0, 0)
    handles = [source, target, None]
    assert work.server.launch_sequence(sequence, handles)
    assert work.get_words(target) == [2, 3, 4, 5]
    assert work.get_words(handles[2]) == [12, 13, 14, 15]
    assert work.server.write_set() == []


def test_a_slot_may_be_written_in_parts_and_read_when_whole(work):
    kernel = work.add_kernel
    alignment = 256
    size = 2 * alignment
    words = struct.pack("<2I", alignment // 4, 1)
    halves = tuple(
        SequenceLaunch(
            kernel,
            1,
            (BufferRange(0, 0, alignment), BufferRange(1, start, alignment)),
            words,
        )
        for start in (0, alignment)
    )
    whole = SequenceLaunch(
        kernel,
        2,
        (BufferRange(1, 0, size), BufferRange(2, 0, size)),
        struct.pack("<2I", size // 4, 1),
    )
    assert LaunchSequence.of((halves[0], whole), ((1, size), (2, size))) is None
    sequence = LaunchSequence.of((*halves, whole), ((1, size), (2, size)))
    assert sequence is not None
    handles = [work.words(*range(alignment // 4)), None, None]
    assert work.server.launch_sequence(sequence, handles)
    assert work.get_words(handles[2]) == [number + 2 for number in range(alignment // 4)] * 2


def _whole(source, target, size):
    return BufferRange(source, 0, SIZE), BufferRange(target, 0, size)
