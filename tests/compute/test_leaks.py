"""Nothing stays behind: wgpu objects and reserved bytes before and after."""

from __future__ import annotations

import gc
import struct

import numpy as np

from gpuwire.compute import WgpuServer
from gpuwire.compute.native import live_objects
from gpuwire.compute.sequences import BufferRange, LaunchSequence, SequenceLaunch


def busy(work):
    """A little of everything that makes objects."""
    source, middle, target = work.words(*range(100)), work.empty(400), work.empty(400)
    work.add(source, middle, 1)
    work.server.graph_prepare()
    work.server.begin_capture()
    work.add(middle, target, 1)
    graph = work.server.end_capture()
    work.server.replay(graph)
    work.server.graph_destroy(graph)
    work.fail(source, work.words(1))
    window = work.server.start_profile()
    work.add(source, target, 1)
    work.server.end_profile(0, window).wait(60)
    kernel = work.add_kernel
    buffers = (BufferRange(0, 0, 400), BufferRange(1, 0, 400))
    launch = SequenceLaunch(kernel, 2, buffers, struct.pack("<2I", 100, 1))
    work.server.launch_sequence(LaunchSequence.of((launch,), ((1, 400),)), [source, None])
    big = work.put(np.zeros(3_000_000, np.uint8))
    work.server.read([work.descriptor(big, 3_000_000)]).wait(60)
    (staging,) = work.server.staging([64])
    del staging
    return work.get_words(target)


def test_an_idle_server_after_a_cleanup_reserves_nothing(fresh_work):
    busy(fresh_work)
    gc.collect()
    fresh_work.server.sync().wait(60)
    fresh_work.server.memory_cleanup()
    report = fresh_work.server.memory_report()
    assert report.bytes_in_use == 0
    assert report.bytes_reserved == 0
    assert fresh_work.server._storage.reserved == 0


def test_repeated_work_makes_no_more_objects(fresh_work):
    def settled(times):
        for _ in range(times):
            busy(fresh_work)
        fresh_work.server.sync().wait(60)
        gc.collect()
        fresh_work.server.memory_cleanup()
        return live_objects()

    assert settled(3) == settled(10)


def test_a_closed_server_leaves_no_object(runtime_directory, work_class):
    gc.collect()
    before = live_objects()
    for _ in range(2):
        server = WgpuServer.init(0)
        busy(work_class(server))
        server.close()
        del server
        gc.collect()
    assert live_objects() == before
