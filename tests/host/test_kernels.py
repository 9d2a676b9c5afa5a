"""Kernels that a session brings along: their tensors, their order, and what is wrong with them."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from gpuwire.compute.adapters import adapters
from gpuwire.errors import (
    ExecutionError,
    GpuwireError,
    KernelCompileError,
    LaunchError,
    OutOfMemory,
    UnknownKernel,
    UnknownTensor,
)
from gpuwire.host.channel_messages import SessionBroken, UploadWanted
from gpuwire.host.envelopes import unpack_error
from gpuwire.ids import KernelId, LocationId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import PermuteAttributes, ShapeAttributes
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.device_tasks import LaunchKernel, RegisterKernel
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import Done, Failed
from host_tasks import F4, add, drop, operation, register, sync, values

SCALE = """\
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = y[id.x] + bitcast<f32>(params[0].x) * x[id.x]; }
}
"""
K = 500


def kernel(
    source: str = SCALE, number: int = K, written: tuple[bool, ...] = (False, True), words: int = 1
) -> RegisterKernel:
    return RegisterKernel(KernelId(number), "scale", source, "main", (64, 1, 1), written, words)


def launch(
    tensors: tuple[int, ...],
    outputs: tuple[int, ...],
    factor: float = 1.0,
    *,
    number: int = K,
    stream: int = 0,
    grid: tuple[int, int, int] = (1, 1, 1),
    params: bytes | None = None,
    spent: int = 0,
) -> LaunchKernel:
    return LaunchKernel(
        StreamId(stream),
        KernelId(number),
        grid,
        tuple(map(TensorId, tensors)),
        tuple(map(TensorId, outputs)),
        struct.pack("<f", factor) if params is None else params,
        LocationId(7),
        spent,
    )


def test_a_launch_makes_a_new_tensor_and_leaves_the_old_one(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(
            session,
            kernel(),
            *(register(1, [1, 2, 3, 4]), register(2, [10, 10, 10, 10])),
            launch((1, 2), (3,), 2.0),
            launch((3, 3), (4,), 1.0),
        )
        assert values(await front.read(session, 2)) == [10, 10, 10, 10]
        assert values(await front.read(session, 3)) == [12, 14, 16, 18]
        assert values(await front.read(session, 4)) == [24, 28, 32, 36], "read as it was before"
        await front.end(session)

    runner.run(scenario())


def test_views_are_bound_as_they_are_seen(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        matrix = TensorType(dt.float32, (2, 3))
        front.tasks(
            session,
            kernel(),
            register(1, range(6), matrix),
            operation("permute_dims", (1,), 2, PermuteAttributes((1, 0))),
            register(3, [0] * 6, TensorType(dt.float32, (3, 2))),
            launch((2, 3), (4,)),
            launch((4, 2), (5,)),
        )
        assert values(await front.read(session, 4)) == [0, 3, 1, 4, 2, 5]
        assert values(await front.read(session, 5)) == [0, 6, 2, 8, 4, 10]
        assert values(await front.read(session, 1)) == [0, 1, 2, 3, 4, 5]
        await front.end(session)

    runner.run(scenario())


def test_a_launch_waits_for_the_upload_that_it_needs(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(
            session,
            *(kernel(), register(1, None, F4, request=77), register(2, [1, 1, 1, 1])),
            *(launch((1, 2), (3,)), add(3, 1.0, 4), sync(5)),
        )
        await front.message(UploadWanted)
        assert not front.has_reply(session, 5)
        await front.put(session, 77, 0, np.array([1, 2, 3, 4], np.float32).tobytes())
        assert isinstance(await front.reply(session, 5), Done)
        assert values(await front.read(session, 4)) == [3, 4, 5, 6]
        await front.end(session)

    runner.run(scenario())


def test_memory_counts_and_comes_back(front, runner) -> None:
    async def scenario() -> None:
        session = front.open(memory=48)
        front.tasks(session, kernel(), register(1, [1] * 4), register(2, [1] * 4))
        front.tasks(session, launch((1, 2), (3,)), launch((1, 3), (4,)))
        assert values(await front.read(session, 3)) == [2] * 4
        error = await front.failure(session, 4)
        assert isinstance(error.__cause__, OutOfMemory)
        front.tasks(session, drop(2, 3, 4), launch((1, 1), (5,)), drop(K))
        assert values(await front.read(session, 5)) == [2] * 4
        assert await front.end(session) == 32

    runner.run(scenario())


def test_a_spent_tensor_gives_its_memory_to_the_result(front, runner) -> None:
    """Under a limit of two tensors there is no room for a copy."""

    async def scenario() -> None:
        session = front.open(memory=32)
        front.tasks(session, kernel(), register(1, [1, 2, 3, 4]), register(2, [10] * 4))
        for old, new in ((2, 3), (3, 4), (4, 5)):
            front.tasks(session, launch((1, old), (new,), spent=1), drop(old))
        assert values(await front.read(session, 5)) == [13, 16, 19, 22]
        front.tasks(session, launch((1, 5), (6,)))
        error = await front.failure(session, 6)
        assert isinstance(error.__cause__, OutOfMemory)
        assert await front.end(session) == 32

    runner.run(scenario())


def test_what_a_view_shows_stays_though_the_tensor_is_spent(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        row = ShapeAttributes((1, 4))
        front.tasks(
            session,
            *(kernel(), register(1, [1] * 4), register(2, [10] * 4)),
            operation("reshape", (2,), 3, row),
            *(launch((1, 2), (4,), spent=1), drop(2)),
        )
        assert values(await front.read(session, 3)) == [10] * 4
        assert values(await front.read(session, 4)) == [11] * 4
        front.tasks(session, drop(4), launch((1, 3), (5,), spent=1))
        assert values(await front.read(session, 5)) == [11] * 4, "the last holder of the memory"
        await front.end(session)

    runner.run(scenario())


def test_work_that_waits_reads_a_spent_tensor_as_it_was(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(
            session,
            *(kernel(), register(1, [1] * 4), register(2, [10] * 4)),
            register(3, None, F4, request=77),
            operation("add", (2, 3), 4),
            *(launch((1, 2), (5,), spent=1), drop(2)),
        )
        await front.message(UploadWanted)
        assert values(await front.read(session, 5)) == [11] * 4
        await front.put(session, 77, 0, np.full(4, 100, np.float32).tobytes())
        assert values(await front.read(session, 4)) == [110] * 4
        await front.end(session)

    runner.run(scenario())


def test_a_spent_tensor_that_is_read_too_is_read_as_it_was(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        shifting = SCALE.replace("* x[id.x]", "* x[3u - id.x]")
        front.tasks(
            session,
            *(kernel(shifting), register(1, [1, 2, 3, 4])),
            *(launch((1, 1), (2,), spent=1), drop(1)),
        )
        assert values(await front.read(session, 2)) == [5] * 4
        await front.end(session)

    runner.run(scenario())


BROKEN = SCALE.replace("* x[", "* z[")
WRITES_ITS_INPUT = SCALE.replace("y[id.x] = y", "x[id.x] = y")
EMPTY = TensorType(dt.float32, (0,))


@pytest.mark.parametrize(
    ("tasks", "cause", "text"),
    [
        ((launch((1, 2), (3,), number=9),), UnknownKernel, "no kernel 9"),
        ((kernel(), launch((1, 99), (3,))), UnknownTensor, "no tensor 99"),
        ((kernel(), launch((1,), (3,))), LaunchError, "takes 2 buffers, not 1"),
        ((kernel(), launch((1, 2, 2), (3,))), LaunchError, "takes 2 buffers, not 3"),
        ((kernel(), launch((1, 2), (3,), params=b"")), LaunchError, "4 bytes of parameters"),
        ((kernel(), register(4, [], EMPTY), launch((4, 2), (3,))), LaunchError, "without elements"),
        ((kernel(), register(4, [], EMPTY), launch((1, 4), (3,))), LaunchError, "without elements"),
        ((kernel(), launch((1, 2), (3,), grid=(1, 1 << 31, 1))), LaunchError, "at most"),
        ((kernel(BROKEN), launch((1, 2), (3,))), KernelCompileError, "line 5"),
        ((kernel(""), launch((1, 2), (3,))), KernelCompileError, "main"),
        ((kernel(WRITES_ITS_INPUT), launch((1, 2), (3,))), KernelCompileError, "for a store"),
    ],
)
def test_a_launch_that_cannot_be_fails_its_results(front, runner, tasks, cause, text) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1] * 4), register(2, [2] * 4), *tasks, add(3, 1.0, 100))
        error = await front.failure(session, 100)
        assert isinstance(error, ExecutionError)
        assert isinstance(error.__cause__, cause)
        assert text in str(error.__cause__)
        assert values(await front.read(session, 2)) == [2] * 4
        await front.end(session)

    runner.run(scenario())


def test_more_buffers_than_the_adapter_binds(front, runner) -> None:
    most = adapters()[0].max_buffers
    if most >= DEFAULT_LIMITS.max_kernel_buffers:
        return  # The wire carries no launch that is too wide for it.
    count = most + 1
    wide = kernel(written=(True,) * count, words=0)

    async def scenario() -> None:
        session = front.open()
        outputs = tuple(range(3, 3 + count))
        front.tasks(session, register(1, [1] * 4), wide, launch((1,) * count, outputs, params=b""))
        error = await front.failure(session, 3)
        assert isinstance(error.__cause__, LaunchError)
        assert f"binds {count} buffers" in str(error.__cause__)
        await front.end(session)

    runner.run(scenario())


def test_a_failed_input_passes_its_cause_on_and_the_kernel_does_not_run(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1] * 4), add(1, 77, 2), kernel(), launch((1, 2), (3,)))
        error = await front.failure(session, 3)
        assert isinstance(error.__cause__, UnknownTensor)
        assert error.operation == "add"
        await front.end(session)

    runner.run(scenario())


def test_a_kernel_of_another_session_is_unknown(front, runner) -> None:
    async def scenario() -> None:
        owner, other = front.open(), front.open()
        front.tasks(owner, kernel())
        front.tasks(other, register(1, [1] * 4), launch((1, 1), (2,)))
        error = await front.failure(other, 2)
        assert isinstance(error.__cause__, UnknownKernel)
        await front.end(owner)
        await front.end(other)

    runner.run(scenario())


@pytest.mark.parametrize(
    "tasks",
    [
        (kernel(), kernel()),
        (kernel(), register(1, [1] * 4), launch((1, 1), ())),
        (kernel(), register(1, [1] * 4), launch((1, 1), (2, 3))),
        (kernel(), register(1, [1] * 4), launch((1, 1), (1,))),
    ],
)
def test_what_no_client_sends_ends_the_session(front, runner, tasks) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, *tasks)
        broken = await front.message(SessionBroken)
        assert broken.session == session
        assert isinstance(unpack_error(broken.payload), GpuwireError)

    runner.run(scenario())


def test_a_launch_whose_error_nobody_reads_is_told_by_the_next_sync(front, runner) -> None:
    async def scenario() -> None:
        session = front.open()
        front.tasks(session, register(1, [1] * 4), launch((1, 1), (2,), number=9), drop(2), sync(5))
        reply = await front.reply(session, 5)
        assert isinstance(reply, Failed)
        assert reply.location == 7
        await front.end(session)

    runner.run(scenario())


OUT_OF_BOUNDS = """\
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let far = id.x * 64u;
    y[far] = 0xdeadbeefu;
    y[0xffffffffu - id.x] = 0xdeadbeefu;
}
"""


def test_indices_out_of_bounds_touch_no_neighbour(front, runner) -> None:
    """The tensors lie side by side in one page: what is written beyond one would be seen."""

    async def scenario() -> None:
        session = front.open()
        ours = kernel(OUT_OF_BOUNDS, written=(True,), words=0)
        front.tasks(session, ours, *(register(n, [n] * 8) for n in range(1, 40)))
        front.tasks(session, launch((20,), (50,), params=b"", grid=(64, 1, 1)))
        await front.read(session, 50)
        front.tasks(session, *(register(n, [n] * 8) for n in range(60, 90)))
        front.tasks(session, launch((20,), (51,), params=b"", grid=(64, 1, 1)))
        await front.read(session, 51)
        for number in (*range(1, 40), *range(60, 90)):
            assert values(await front.read(session, number)) == [number] * 8
        await front.end(session)

    runner.run(scenario())
