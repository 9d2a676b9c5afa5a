"""Bytes in and out: order, odd lengths, sizes, strides, lifetimes."""

from __future__ import annotations

import asyncio
import gc

import numpy as np
import pytest

from gpuwire.compute import Binding, CopyDescriptor, Handle, WgpuServer
from gpuwire.compute.adapters import open_adapter
from gpuwire.compute.properties import (
    Backend,
    CompilationOptions,
    MemoryProperties,
    ServerUtilities,
    TimingMethod,
)
from gpuwire.config import MemoryConfig
from gpuwire.errors import (
    ArgumentError,
    InvalidHandle,
    OutOfMemory,
    UnsupportedIo,
    UnsupportedStrides,
)
from gpuwire.telemetry.logs import disabled_logger


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 63, 64, 65, 4097, 70_001])
def test_bytes_come_back_as_they_were_written(work, size):
    values = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert (work.get(work.put(values)) == values).all()


def test_a_transfer_of_many_chunks_arrives_whole(work):
    values = np.random.default_rng(0).integers(0, 2**32, 9 * 2**20 + 1, np.uint32)
    assert (work.get(work.put(values)).view(np.uint32) == values).all()


@pytest.mark.parametrize("length", [1, 2, 3, 5, 6, 7, 9])
@pytest.mark.parametrize("offset", [0, 4, 36])
def test_an_odd_length_leaves_its_neighbours_bytes_alone(work, offset, length):
    before = np.arange(100, 164, dtype=np.uint8)
    handle = work.put(before)
    work.server.write([(work.descriptor(handle, length, offset), b"\xff" * length)])
    expected = before.copy()
    expected[offset : offset + length] = 255
    assert (work.get(handle) == expected).all()


def test_a_write_falls_between_the_launches_around_it(work):
    source, first, second = work.words(1, 2), work.empty(8), work.empty(8)
    work.add(source, first, 10)
    work.server.write([(work.descriptor(source, 8), np.array([5, 6], np.uint32).tobytes())])
    work.add(source, second, 10)
    assert work.get_words(first) == [11, 12]
    assert work.get_words(second) == [15, 16]


def test_a_read_is_of_the_moment_it_was_asked_for(work):
    handle = work.words(1)
    pending = work.server.read([work.descriptor(handle, 4)])
    work.server.write([(work.descriptor(handle, 4), b"\x09\0\0\0")])
    assert bytes(pending.wait(60)[0]) == b"\x01\0\0\0"
    assert work.get_words(handle) == [9]


def test_written_data_may_be_changed_at_once(work):
    data = bytearray(b"abcd")
    handle = work.empty(4)
    work.server.write([(work.descriptor(handle, 4), data)])
    data[:] = b"wxyz"
    assert work.get(handle).tobytes() == b"abcd"


def test_one_read_of_several_tensors_gives_each_its_bytes(work):
    handles = [work.words(7), work.put(np.arange(5, dtype=np.uint8)), work.words(8, 9)]
    sizes = (4, 5, 8)
    reads = [work.descriptor(h, size) for h, size in zip(handles, sizes, strict=True)]
    views = work.server.read(reads).wait(60)
    assert bytes(views[0]) == b"\x07\0\0\0"
    assert bytes(views[1]) == bytes(range(5))
    assert bytes(views[2]) == b"\x08\0\0\0\x09\0\0\0"


def test_a_read_can_be_awaited(work):
    handle = work.words(3)

    async def read() -> bytes:
        (data,) = await work.server.read([work.descriptor(handle, 4)])
        return bytes(data)

    assert asyncio.run(read()) == b"\x03\0\0\0"


def test_a_view_outlives_its_completion_handle_and_later_reads(work):
    values = np.arange(50_000, dtype=np.uint32)
    handle = work.put(values)
    (view,) = work.server.read([work.descriptor(handle, values.nbytes)]).wait(60)
    first = np.frombuffer(view, np.uint32)[10:]
    work.server.write([(work.descriptor(handle, values.nbytes), bytes(values.nbytes))])
    del view, handle
    gc.collect()
    for _ in range(3):
        assert work.get(work.put(values + 1)).view(np.uint32)[0] == 1
    assert (first == values[10:]).all()


def test_a_view_outlives_its_server(fresh_work):
    values = np.arange(50_000, dtype=np.uint32)
    view = fresh_work.get(fresh_work.put(values)).view(np.uint32)
    fresh_work.server.close()
    gc.collect()
    assert (view == values).all()


def test_views_are_read_only(work):
    handle = work.put(np.zeros(70_000, np.uint8))
    (view,) = work.server.read([work.descriptor(handle, 70_000)]).wait(60)
    assert view.readonly


def test_tensors_of_no_elements_move_nothing(work):
    handle = work.words(1)
    empty = CopyDescriptor(Binding(handle, 0, 4), (3, 0), (0, 1), 4)
    work.server.write([(empty, b"")])
    views = work.server.read([empty, work.descriptor(handle, 4)]).wait(60)
    assert [bytes(view) for view in views] == [b"", b"\x01\0\0\0"]


def test_a_dimension_of_one_may_have_any_stride(work):
    handle = work.words(1, 2)
    descriptor = CopyDescriptor(Binding(handle, 0, 8), (1, 2), (99, 1), 4)
    assert bytes(work.server.read([descriptor]).wait(60)[0]) == b"\x01\0\0\0\x02\0\0\0"


@pytest.mark.parametrize(("shape", "strides"), [((2, 2), (1, 2)), ((4,), (0,)), ((4,), ())])
def test_strided_tensors_are_refused(work, shape, strides):
    handle = work.words(1, 2, 3, 4)
    descriptor = CopyDescriptor(Binding(handle, 0, 16), shape, strides, 4)
    with pytest.raises(UnsupportedStrides, match="contiguous"):
        work.server.read([descriptor])
    with pytest.raises(UnsupportedStrides, match="contiguous"):
        work.server.write([(descriptor, bytes(16))])


@pytest.mark.parametrize("size", [3, 5, 0])
def test_data_of_another_size_than_the_tensor_is_refused(work, size):
    handle = work.words(1)
    with pytest.raises(ArgumentError, match=f"{size} bytes"):
        work.server.write([(work.descriptor(handle, 4), bytes(size))])
    assert work.get_words(handle) == [1]


@pytest.mark.parametrize(("offset", "size"), [(-4, 4), (2, 2), (8, 64), (0, 2**40), (64, 4)])
def test_ranges_outside_the_buffer_are_refused(work, offset, size):
    handle = work.words(1, 2)
    descriptor = CopyDescriptor(Binding(handle, offset, size), (4,), (1,), 1)
    with pytest.raises(ArgumentError):
        work.server.read([descriptor])
    with pytest.raises(ArgumentError):
        work.server.write([(descriptor, bytes(4))])


def test_handles_without_memory_or_of_another_server_are_refused(work, fresh_work):
    nowhere = CopyDescriptor(Binding(Handle(), 0, 4), (4,), (1,), 1)
    with pytest.raises(InvalidHandle, match="initialize_memory"):
        work.server.read([nowhere])
    foreign = fresh_work.words(1)
    with pytest.raises(InvalidHandle, match="another server"):
        work.server.read([work.descriptor(foreign, 4)])


def test_staging_memory_is_written_as_it_was_filled(work):
    values = np.arange(1000, dtype=np.uint8)
    (staging,) = work.server.staging([1000])
    staging.view[:] = values.tobytes()
    handle = work.empty(1000)
    work.server.write([(work.descriptor(handle, 1000), staging)])
    assert (work.get(handle) == values).all()
    with pytest.raises(InvalidHandle, match="written already"):
        work.server.write([(work.descriptor(handle, 1000), staging)])


def test_staging_memory_that_is_still_viewed_is_copied(work):
    (staging,) = work.server.staging([8])
    array = np.frombuffer(staging.view, np.uint32)
    array[:] = (4, 5)
    handle = work.empty(8)
    work.server.write([(work.descriptor(handle, 8), staging)])
    array[:] = 0
    assert work.get_words(handle) == [4, 5]


def test_staging_of_no_bytes_is_refused(work):
    with pytest.raises(ArgumentError, match="at least 1"):
        work.server.staging([4, 0])
    with pytest.raises(UnsupportedIo, match="in parts"):
        work.server.staging([1 << 50])


def test_memory_beyond_the_device_is_out_of_memory_with_the_sizes(fresh_work):
    kept = fresh_work.words(1)
    with pytest.raises(OutOfMemory, match="wanted") as raised:
        fresh_work.server.initialize_memory(Handle(), 1 << 50)
    assert raised.value.wanted == 1 << 50
    assert raised.value.in_use >= 4
    assert raised.value.reserved >= 4
    assert fresh_work.get_words(kept) == [1]


def test_memory_that_runs_out_piece_by_piece_comes_back(runtime_directory, work_class):
    server = limited_server(8 << 20)
    work = work_class(server)
    held = []
    with pytest.raises(OutOfMemory):
        held.extend(work.empty(1 << 20) for _ in range(100))
    assert 4 <= len(held) <= 8
    held.clear()
    assert work.get_words(work.words(5)) == [5]
    server.close()


def limited_server(limit):
    opened = open_adapter(0)
    memory = MemoryProperties(256, opened.properties.max_buffer_bytes, limit)
    return WgpuServer(
        memory,
        MemoryConfig(),
        CompilationOptions(),
        opened.device,
        64,
        Backend(opened.properties.backend),
        TimingMethod.SYSTEM,
        ServerUtilities(opened.properties, memory, disabled_logger("compute")),
    )


def test_a_write_can_be_put_off_until_the_device_has_kept_up(fresh_work):
    """What `can_write` refuses now it allows once the device is done, also where free buffers of
    another size hold all the room."""
    server, piece = fresh_work.server, np.arange(2**18, dtype=np.uint32)
    server.staging([16 * 2**20])  # dropped at once
    target = fresh_work.empty(32 * piece.nbytes)
    for number in range(32):
        while not server.can_write(piece.nbytes):
            pass
        place = fresh_work.descriptor(target, piece.nbytes, number * piece.nbytes)
        server.write([(place, piece.tobytes())])
    assert (fresh_work.get(target).view(np.uint32) == np.tile(piece, 32)).all()
