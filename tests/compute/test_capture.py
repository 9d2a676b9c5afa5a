"""Captured graphs: the states of a window, what dooms it, and replay."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from gpuwire.compute import Binding, Indirect
from gpuwire.compute.capture import TRANSITIONS, CaptureEvent, CaptureState, Window
from gpuwire.config import StreamingConfig
from gpuwire.errors import CaptureError, InvalidHandle, KernelCompileError, LaunchError
from gpuwire.kernels.kernel import Access, Kernel

INCREMENT = """\
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() { x[0] = x[0] + params[0].x; }
"""
WIDE_INCREMENT = INCREMENT.replace("params[0].x", "params[9].z")


def capture(work, body, stream=0):
    work.server.graph_prepare(stream)
    work.server.begin_capture(stream)
    body()
    return work.server.end_capture(stream)


@pytest.mark.parametrize("state", list(CaptureState))
@pytest.mark.parametrize("event", list(CaptureEvent))
def test_the_table_is_all_that_moves_a_window(state, event):
    window = Window()
    window.state = state
    if (state, event) in TRANSITIONS:
        window.move(event)
        assert window.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(CaptureError, match="graph_prepare, begin_capture, end_capture"):
            window.move(event)
        assert window.state is state


def test_a_window_records_and_a_replay_runs(work):
    source, middle, target = work.words(1, 2), work.words(0, 0), work.words(0, 0)

    def body():
        work.add(source, middle, 10)
        work.add(middle, target, 100)

    graph = capture(work, body)
    assert work.get_words(target) == [0, 0]
    work.server.replay(graph)
    assert work.get_words(target) == [111, 112]
    work.server.write([(work.descriptor(source, 8), np.array([5, 6], np.uint32).tobytes())])
    work.server.replay(graph)
    assert work.get_words(target) == [115, 116]
    work.server.graph_destroy(graph)


@pytest.mark.parametrize(("source", "words"), [(INCREMENT, 1), (WIDE_INCREMENT, 40)])
def test_replays_add_up_with_immediates_and_with_uniforms(work, source, words):
    kernel = Kernel("increment", source, (Access.READ_WRITE,), (1, 1, 1), words)
    counter = work.words(0)

    def body():
        for number in (1, 10, 10):
            work.server.launch(kernel, 1, work.arguments((counter,), [number] * words))

    graph = capture(work, body)
    for _ in range(100):
        work.server.replay(graph)
    assert work.get_words(counter) == [2100]
    work.server.graph_destroy(graph)


def test_counts_are_read_again_at_each_replay(work):
    kernel = Kernel("increment", INCREMENT, (Access.READ_WRITE,), (1, 1, 1), 1)
    counter, counts = work.words(0), work.words(0, 1, 1)

    def body():
        indirect = Indirect(Binding(counts, 0, 12))
        work.server.launch(kernel, indirect, work.arguments((counter,), (1,)))

    graph = capture(work, body)
    work.server.replay(graph)
    assert work.get_words(counter) == [0]
    work.server.write([(work.descriptor(counts, 4), b"\x01\0\0\0")])
    work.server.replay(graph)
    assert work.get_words(counter) == [1]
    work.server.graph_destroy(graph)


def test_a_graph_pins_what_it_touches(fresh_work):
    work = fresh_work
    target = work.words(0)

    def body():
        source, middle = work_inputs
        work.add(source, middle, 10)
        work.add(middle, target, 100)

    work_inputs = [work.words(1), work.empty(4)]
    graph = capture(work, body)
    work_inputs.clear()
    gc.collect()
    work.server.memory_cleanup()
    others = [work.words(99) for _ in range(50)]
    work.server.replay(graph)
    assert work.get_words(target) == [111]
    assert work.get_words(others[7]) == [99]
    work.server.graph_destroy(graph)


def test_destroying_a_graph_with_a_replay_on_its_way_lets_it_end(work):
    source, target = work.words(1), work.words(0)
    graph = capture(work, lambda: work.add(source, target, 1))
    work.server.replay(graph)
    work.server.graph_destroy(graph)
    gc.collect()
    assert work.get_words(target) == [2]


@pytest.mark.parametrize("name", ["read", "write", "sync", "replay", "start_profile"])
def test_what_is_no_launch_is_refused_by_name_and_dooms_the_window(work, name):
    source, target = work.words(1), work.words(0)
    descriptor = work.descriptor(source, 4)
    graph = capture(work, lambda: work.add(source, target, 1))
    calls = {
        "read": lambda: work.server.read([descriptor]),
        "write": lambda: work.server.write([(descriptor, b"abcd")]),
        "sync": lambda: work.server.sync(),
        "replay": lambda: work.server.replay(graph),
        "start_profile": lambda: work.server.start_profile(),
    }
    work.server.graph_prepare()
    work.server.begin_capture()
    assert work.server.capturing(0)
    with pytest.raises(CaptureError, match=f"{name} cannot be captured"):
        calls[name]()
    work.add(source, target, 5)
    with pytest.raises(CaptureError, match="spoiled") as raised:
        work.server.end_capture()
    assert isinstance(raised.value.__cause__, CaptureError)
    assert not work.server.capturing(0)
    work.server.replay(graph)
    assert work.get_words(target) == [2]
    work.server.graph_destroy(graph)


def test_a_launch_that_fails_dooms_the_window(work):
    source, target = work.words(1), work.words(0)
    with pytest.raises(CaptureError) as raised:
        capture(work, lambda: work.fail(source, target))
    assert isinstance(raised.value.__cause__, KernelCompileError)

    def refused():
        with pytest.raises(LaunchError):
            work.add(source, target, 1, count=-1)

    with pytest.raises(CaptureError) as raised:
        capture(work, refused)
    assert isinstance(raised.value.__cause__, LaunchError)
    assert work.get_words(target) == [0]


def test_windows_out_of_order_are_refused(work):
    with pytest.raises(CaptureError, match="idle"):
        work.server.end_capture()
    with pytest.raises(CaptureError, match="idle"):
        work.server.begin_capture()
    work.server.graph_prepare()
    with pytest.raises(CaptureError, match="armed"):
        work.server.end_capture()
    work.server.begin_capture()
    with pytest.raises(CaptureError, match="capturing"):
        work.server.begin_capture()
    with pytest.raises(CaptureError, match="capturing"):
        work.server.graph_prepare()
    work.server.end_capture()


def test_a_window_is_of_one_logical_stream(work):
    folded = StreamingConfig().max_streams
    source, target = work.words(1), work.words(0)

    def body():
        work.add(source, target, 1, stream=folded)
        assert work.get_words(target, stream=folded) == [2]

    graph = capture(work, body)
    work.server.graph_destroy(graph)


def test_a_graph_that_is_gone_is_an_error_at_the_next_sync(work):
    work.server.replay(987_654)
    with pytest.raises(CaptureError, match="987654"):
        work.server.sync().wait(60)
    work.server.graph_destroy(987_654)
    with pytest.raises(CaptureError, match="987654"):
        work.server.sync().wait(60)
    work.server.sync().wait(60)


def test_a_tainted_input_skips_the_whole_replay_until_it_is_rewritten(work):
    source, target = work.words(1), work.words(7)
    kernel = Kernel("copy", work.add_kernel.source, (Access.READ, Access.WRITE), (64, 1, 1), 2)

    def body():
        work.server.launch(kernel, 1, work.arguments((source, target), (1, 1)))

    graph = capture(work, body)
    work.fail(target, source)
    work.server.replay(graph)
    with pytest.raises(KernelCompileError):
        work.get(target)
    work.server.write([(work.descriptor(source, 4), b"\x05\0\0\0")])
    work.server.replay(graph)
    assert work.get_words(target) == [6]
    work.server.graph_destroy(graph)


def test_a_replay_reads_nothing_that_was_never_written(work):
    source, target = work.empty(4), work.empty(4)
    graph = capture(work, lambda: work.add(source, target, 1))
    work.server.replay(graph)
    with pytest.raises(InvalidHandle, match="before anything was written"):
        work.get(target)
    work.server.graph_destroy(graph)


def test_a_graphs_uniforms_outlast_the_cache_they_came_from(fresh_work):
    work = fresh_work
    kernel = Kernel("increment", WIDE_INCREMENT, (Access.READ_WRITE,), (1, 1, 1), 40)
    counter, other = work.words(0), work.words(0)

    def add(target, number):
        work.server.launch(kernel, 1, work.arguments((target,), [number] * 40))

    graph = capture(work, lambda: add(counter, 7))
    for number in range(100, 4300):
        add(other, number)
    work.server.replay(graph)
    assert work.get_words(counter) == [7]
    assert work.get_words(other) == [sum(range(100, 4300))]
    work.server.graph_destroy(graph)
