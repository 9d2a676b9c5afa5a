"""Streams: order within and between them, folding, batches."""

from __future__ import annotations

import gc
import itertools

import pytest

from gpuwire.compute import WgpuServer
from gpuwire.compute.native import NULL, ffi, lib
from gpuwire.config import StreamingConfig
from gpuwire.errors import DeviceLost, InvalidHandle, KernelCompileError
from gpuwire.kernels.kernel import Kernel


def test_work_on_a_buffer_of_another_stream_comes_after_its_writer(work):
    first, second, third = work.words(1), work.words(0, stream=1), work.words(0, stream=2)
    work.add(first, second, 10, stream=0)
    work.add(second, third, 100, stream=1)
    assert work.get_words(third, stream=2) == [111]


def test_a_buffer_is_rewritten_only_after_its_reader_on_another_stream(work):
    source, target = work.words(1), work.words(0, stream=1)
    work.add(source, target, 10, stream=1)
    work.server.write([(work.descriptor(source, 4), b"\x09\0\0\0")], 0)
    work.server.flush(0)
    assert work.get_words(target, stream=1) == [11]


def test_a_freed_buffer_is_not_reused_before_its_reader_on_another_stream(fresh_work):
    work = fresh_work
    source, target = work.words(1), work.words(0, stream=1)
    work.add(source, target, 10, stream=1)
    place = (source.slice.page.number, source.slice.offset)
    del source
    gc.collect()
    again = work.words(50)
    assert (again.slice.page.number, again.slice.offset) == place
    work.server.flush(0)
    assert work.get_words(target, stream=1) == [11]


def test_a_chain_over_many_logical_streams_keeps_its_order(work):
    handles = [work.words(0, stream=number) for number in range(40)]
    for number, (source, target) in enumerate(itertools.pairwise(handles)):
        work.add(source, target, 1, stream=number * 7)
    assert work.get_words(handles[-1], stream=3) == [39]


def test_logical_streams_fold_onto_the_real_ones_and_are_listed(runtime_directory):
    server = WgpuServer.init(0, streaming=StreamingConfig(max_streams=2))
    for stream_id in (0, 1, 2, 7):
        server.flush(stream_id)
    assert server.stream_ids() == (0, 1, 2, 7)
    server.memory_cleanup(0)
    assert server.stream_ids() == (1, 7)
    server.close()


def test_a_full_batch_is_submitted_by_itself(runtime_directory, work_class):
    server = WgpuServer.init(0, tasks_max=4)
    work = work_class(server)
    source, target = work.words(1), work.words(0)
    server.flush()
    batches = [target.slice.touched_batch]
    for _ in range(8):
        work.add(source, target, 1)
        batches.append(target.slice.touched_batch)
    assert len(set(batches[1:])) == 2
    server.close()


def test_a_failure_on_one_stream_is_none_of_anothers(work):
    source, target, other = work.words(1), work.words(2), work.words(0, stream=1)
    work.fail(source, target, stream=0)
    work.add(source, other, 1, stream=1)
    work.server.flush(1)
    assert work.get_words(other, stream=1) == [2]
    with pytest.raises(KernelCompileError):
        work.server.flush(0)


def test_a_resource_is_the_wgpu_buffer_after_queued_work(work):
    source, target = work.words(1, 2), work.words(0, 0)
    work.add(source, target, 5)
    resource = work.server.get_resource(work.binding(target))
    del target
    gc.collect()
    others = [work.words(9, 9) for _ in range(4)]
    copied = work.words(0, 0)
    place = work.server.get_resource(work.binding(copied), 0)
    staging = work.server._readbacks.pool.create(8)  # a buffer of another kind to copy through
    device = work.server._device
    encoder = lib.wgpuDeviceCreateCommandEncoder(device.pointer, NULL)
    copy = lib.wgpuCommandEncoderCopyBufferToBuffer
    copy(encoder, resource.buffer, resource.offset, staging.pointer, 0, 8)
    command_buffer = lib.wgpuCommandEncoderFinish(encoder, NULL)
    lib.wgpuQueueSubmit(device.queue, 1, ffi.new("WGPUCommandBuffer[]", [command_buffer]))
    lib.wgpuCommandBufferRelease(command_buffer)
    lib.wgpuCommandEncoderRelease(encoder)
    done = work.server._poller.completion()
    work.server._poller.map(staging.pointer, 1, staging.size, lambda error: done.succeed(error))
    assert done.wait(60) is None
    staging.note_mapped()
    assert bytes(staging.bytes_at(0, 8)) == b"\x06\0\0\0\x07\0\0\0"
    staging.unmap()
    work.server._readbacks.pool.returned.append(staging)
    assert place.size == 8
    assert work.get_words(others[0]) == [9, 9]


def test_what_is_under_way_is_named_until_it_has_ended(work):
    source, target = work.words(1), work.words(0)
    work.server.sync().wait(60)
    assert work.server.running() is None
    assert work.server.is_idle
    work.add(source, target, 1)
    assert work.server.running() is None
    assert work.server.is_idle, "nothing was submitted"
    done = work.server.sync()
    running = work.server.running()
    assert running is None or (running.kernels, running.streams) == (("add",), (0,))
    done.wait(60)
    work.server.sync().wait(60)
    assert work.server.running() is None
    assert work.server.is_idle


def test_a_submission_tells_whose_kernels_it_holds(work):
    folded = StreamingConfig().max_streams
    source, target = work.words(1), work.words(0)
    own = Kernel("own", work.add_kernel.source, work.add_kernel.access, (64, 1, 1), 2)
    work.add(source, target, 1, stream=folded)
    work.server.launch(own, 1, work.arguments((source, target), (1, 1)), 2 * folded)
    real = work.server._scheduler.stream(0)
    assert real.programs == {"add": folded, "own": 2 * folded}
    work.server.sync().wait(60)
    assert not real.programs


def test_a_forgotten_kernel_is_compiled_again_and_its_queued_launch_runs(work):
    source, target = work.words(1), work.words(0)
    work.add(source, target, 1)
    work.server.forget_kernel(work.add_kernel)
    assert work.get_words(target) == [2]
    work.add(source, target, 2)
    work.server.forget_kernel(Kernel("never launched", "", (), (1, 1, 1)))
    assert work.get_words(target) == [3]


def test_a_device_that_is_lost_says_so_everywhere(fresh_work):
    source, target = fresh_work.words(1), fresh_work.words(0)
    fresh_work.server.sync().wait(60)
    assert fresh_work.server.lost() is None
    lib.wgpuDeviceDestroy(fresh_work.server._device.pointer)
    fresh_work.add(source, target, 1)
    with pytest.raises(DeviceLost):
        fresh_work.get(target)
    assert isinstance(fresh_work.server.lost(), DeviceLost)
    with pytest.raises(DeviceLost):
        fresh_work.server.flush()
    with pytest.raises(DeviceLost):
        fresh_work.server.sync().wait(60)


def test_a_closed_server_says_so(fresh_work):
    handle = fresh_work.words(1)
    pending = fresh_work.server.read([fresh_work.descriptor(handle, 4)])
    fresh_work.server.close()
    fresh_work.server.close()
    assert bytes(pending.wait(60)[0]) == b"\x01\0\0\0"
    with pytest.raises(DeviceLost, match="closed"):
        fresh_work.get(handle)
    with pytest.raises(DeviceLost, match="closed"):
        fresh_work.empty(4)


def test_a_resource_of_bytes_never_written_is_refused(work):
    with pytest.raises(InvalidHandle, match="before anything"):
        work.server.get_resource(work.binding(work.empty(4)))
