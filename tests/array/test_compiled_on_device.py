"""Compiled functions, values asked for ahead, and in-place forms, on a real server."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.config import load_config
from gpuwire.errors import DeviceClosed, ExecutionError, NotSupported

Send = Callable[..., gw.Array]


@pytest.fixture(scope="module", params=[True, False], ids=["cached", "op by op"])
def dev(request: pytest.FixtureRequest, server_ticket: str) -> Iterator[gw.Device]:
    config = load_config(remote={"graph_cache": request.param})
    with gw.connect(server_ticket, config=config) as dev:
        yield dev


def step(params: dict[str, gw.Array], x: gw.Array, rate: float) -> gw.Array:
    """A step of gradient descent for y = |x w|², in place."""
    y = x @ params["w"]
    gradient = 2.0 * (x.T @ y)
    params["w"] -= rate * gradient
    return gw.sum(y * y)


def params_of(dev: gw.Device) -> tuple[dict[str, gw.Array], gw.Array]:
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(3, 2)), rng.normal(size=(4, 3))
    return (
        {"w": gw.asarray(w.astype(np.float32), device=dev)},
        gw.asarray(x.astype(np.float32), device=dev),
    )


def test_a_compiled_step_gives_what_the_plain_one_gives(dev: gw.Device) -> None:
    compiled = gw.compile(step)
    (plain_params, x), (params, _) = params_of(dev), params_of(dev)
    for number in range(4):
        rate = 0.01 * (number + 1)
        wanted = np.asarray(step(plain_params, x, rate))
        np.testing.assert_array_equal(np.asarray(compiled(params, x, rate)), wanted)
    np.testing.assert_array_equal(np.asarray(params["w"]), np.asarray(plain_params["w"]))


def test_a_call_is_one_small_task(server_ticket: str) -> None:
    compiled = gw.compile(step)
    with gw.connect(server_ticket) as dev:
        params, x = params_of(dev)
        compiled(params, x, 0.01)
        dev.sync()
        before = dev.stats()
        for _ in range(20):
            loss = compiled(params, x, 0.01)
        dev.sync()
        after = dev.stats()
        assert after.tasks_sent - before.tasks_sent <= 20 + 2  # a sync and a drop
        assert after.graph_executions - before.graph_executions == 20
        assert after.graphs_registered == before.graphs_registered
        assert after.bytes_sent - before.bytes_sent < 20 * 60
        assert np.isfinite(float(loss))


def large(params: dict[str, gw.Array], x: gw.Array, n: float) -> tuple[gw.Array, gw.Array]:
    """4,405 operations, more than one graph holds, with values that are made at the beginning and
    read at the end, and an argument that is changed in the middle and at the end."""
    early = x * n
    for number in range(1100):
        x = x + early
        x = gw.where(x > 100.0, x - 99.0, x)
        if number == 700:
            params["w"] += x
    params["w"] *= early
    return x, early[1:]


def test_a_function_larger_than_a_graph_runs_in_parts(dev: gw.Device) -> None:
    compiled = gw.compile(large)
    values = np.arange(3, dtype=np.float32)
    plain, params = ({"w": gw.ones(3, device=dev)} for _ in range(2))
    x = gw.asarray(values, device=dev)
    held = []
    for n in (0.5, 3.0):
        old = params["w"][...]
        before = np.asarray(old).copy()
        wanted = [np.asarray(array) for array in large(plain, x, n)]
        dev.sync()
        sent = dev.stats()
        found = compiled(params, x, n)
        dev.sync()
        runs = dev.stats().graph_executions - sent.graph_executions
        parts = len(compiled.lower(params, x, n).op_graph.split("-- part ")) - 1
        assert parts == 2
        assert runs in (0, parts)  # None without the cache.
        assert runs == 0 or dev.stats().tasks_sent - sent.tasks_sent <= parts + 3
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)
        np.testing.assert_array_equal(np.asarray(params["w"]), np.asarray(plain["w"]))
        np.testing.assert_array_equal(np.asarray(old), before)
        del found, old, one
        dev.sync()
        held.append(dev.memory_report().session_bytes)
    assert held[0] == held[1], "what crosses parts is gone with its last reader"
    assert "part 2 of 2" in compiled.lower(params, x, 1.0).kernel_plan()


def test_compiled_calls_between_ordinary_operations(dev: gw.Device) -> None:
    double = gw.compile(lambda x, n: (x * n, x + 1.0))
    x, wanted = gw.ones(3, device=dev), np.ones(3, np.float32)
    for number in range(30):
        a, b = double(x - 0.5, float(number % 3))
        x = a * 0.25 + b
        half = wanted - np.float32(0.5)
        wanted = half * np.float32(number % 3) * np.float32(0.25) + (half + np.float32(1))
    np.testing.assert_allclose(np.asarray(x), wanted, rtol=1e-6)


def test_arrays_pass_between_threads(dev: gw.Device) -> None:
    scale = gw.compile(lambda x, n: x * n)
    made = [gw.ones(2, device=dev) + float(number) for number in range(4)]
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        for _ in range(5):
            found[number] = np.asarray(scale(made[number], 3.0) + made[(number + 1) % 4])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        wanted = 3.0 * (1 + number) + 1 + (number + 1) % 4
        np.testing.assert_array_equal(found[number], np.full(2, wanted, np.float32))


def test_a_failure_names_the_operation_and_its_line_at_every_call(dev: gw.Device) -> None:
    @gw.compile
    def f(x: gw.Array) -> Any:
        small = x + 1.0
        huge = gw.broadcast_to(x[0], (1 << 17, 1 << 17))
        return small, huge * 2.0 + 1.0

    line = f.__wrapped__.__code__.co_firstlineno + 4  # type: ignore[attr-defined]
    x = gw.ones(2, device=dev)
    for _ in range(3):
        small, huge = f(x)
        with pytest.raises(ExecutionError) as caught:
            huge[0, 0].to_numpy()
        assert caught.value.operation in ("multiply", "add")
        assert caught.value.location == f"{__file__}:{line}"
        np.testing.assert_array_equal(np.asarray(small), np.full(2, 2.0))


def test_the_kernel_plan_is_the_servers(dev: gw.Device) -> None:
    f = gw.compile(lambda x, n: gw.sum(x * n, axis=0))
    lowered = f.lower(gw.ones((4, 4), device=dev), 2.0)
    plan = lowered.kernel_plan()
    assert "launch" in plan
    assert "sum" in plan
    assert "multiply" in lowered.op_graph
    assert gw.compile(lambda x: x).lower(gw.ones(1, device=dev)).kernel_plan() == "nothing"


def test_a_compiled_function_on_a_closed_device_says_so(server_ticket: str) -> None:
    f = gw.compile(lambda x: x + 1)
    with gw.connect(server_ticket) as dev:
        x = gw.ones(2, device=dev)
        f(x)
    with pytest.raises(DeviceClosed):
        f(x)
    with gw.connect(server_ticket) as dev:
        np.testing.assert_array_equal(np.asarray(f(gw.ones(2, device=dev))), [2.0, 2.0])


def test_on_an_asyncio_device(server_ticket: str) -> None:
    async def run() -> None:
        async with gw.aio.connect(server_ticket) as dev:
            f = gw.compile(lambda x, n: gw.sum(x * n) + gw.zeros((), device=x.device))
            x = gw.asarray(np.arange(4.0, dtype=np.float32), device=dev)
            for n in (1.0, 2.0):
                assert await f(x, n).to_numpy() == 6 * n
            assert "launch" in await f.lower(x, 1.0).kernel_plan()

    asyncio.run(run())


# --- Values asked for ahead ------------------------------------------------------------------


def test_a_value_asked_for_ahead_is_requested_once(dev: gw.Device) -> None:
    x = gw.ones((2, 2), device=dev) * 3.0
    x.copy_to_host_async()
    x.copy_to_host_async()
    values = np.asarray(x)
    values[:] = 0
    before = dev.stats()
    np.testing.assert_array_equal(x.to_numpy(), np.full((2, 2), 3.0))
    assert x.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    after = dev.stats()
    assert (after.tasks_sent, after.bytes_received) == (before.tasks_sent, before.bytes_received)
    x += 1.0
    assert float(x[0, 0]) == 4.0


def test_several_threads_wait_for_one_copy(dev: gw.Device) -> None:
    x = gw.sum(gw.ones(1000, device=dev))
    x.copy_to_host_async()
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(float(x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1000.0] * 4


def test_a_failure_surfaces_where_the_value_is_read(dev: gw.Device) -> None:
    huge = gw.broadcast_to(gw.ones((), device=dev), (1 << 17, 1 << 17)) + 1.0
    value = huge[0, 0]
    value.copy_to_host_async()
    for _ in range(2):
        with pytest.raises(ExecutionError, match="add"):
            float(value)


def test_a_copy_goes_with_its_array(dev: gw.Device) -> None:
    x = gw.ones(300_000, device=dev)
    x.copy_to_host_async()
    np.asarray(x)
    copy = x._tensor.host_copy  # type: ignore[attr-defined]
    values = copy._values
    del x, copy
    gc.collect()
    assert not [holder for holder in gc.get_referrers(values) if "_values" in dir(holder)]
    forgotten = gw.ones(300_000, device=dev)
    forgotten.copy_to_host_async()
    del forgotten
    gc.collect()
    while dev.stats().replies_pending:
        dev.ping()


def test_ahead_on_an_asyncio_device(server_ticket: str) -> None:
    async def run() -> None:
        async with gw.aio.connect(server_ticket) as dev:
            x = gw.asarray(np.arange(3.0, dtype=np.float32), device=dev) * 2
            with pytest.raises(NotSupported):
                np.asarray(x)
            x.copy_to_host_async()
            first, second = await asyncio.gather(x.to_numpy(), x.to_numpy())
            assert first is not second
            np.testing.assert_array_equal(first, [0.0, 2.0, 4.0])
            np.testing.assert_array_equal(np.asarray(x), second)
            huge = gw.broadcast_to(x[0], (1 << 17, 1 << 17)) + 1.0
            value = huge[0, 0]
            value.copy_to_host_async()
            for _ in range(2):
                with pytest.raises(ExecutionError):
                    await value.to_numpy()

    asyncio.run(run())


# --- In-place forms in ordinary code ---------------------------------------------------------


def test_in_place_forms_keep_their_meaning_while_old_values_are_held(dev: gw.Device) -> None:
    """The same program in NumPy, with a copy wherever NumPy would share."""

    def program(xp: Any, x: Any, keep: Callable[[Any], Any]) -> list[Any]:
        seen = []
        for number in range(12):
            old = keep(x)
            alias = x
            x += 1
            x *= 2 if number % 3 else 1
            x[number % 4] = -5
            x[1:3] = old[0:2] * 0.5
            x[x < -4] = number
            seen += [keep(old), keep(alias[::-1]), xp.sum(x)]
            x = keep(x) - old
            x -= xp.sum(old) * 0.125
        return [*seen, x]

    start = np.arange(4.0, dtype=np.float32)
    found = program(gw, gw.asarray(start, device=dev), lambda x: x[...])
    wanted = program(np, start.copy(), lambda x: x.copy())
    for one, values in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), values, rtol=1e-5, atol=1e-5)


def test_in_place_in_a_loop_that_is_replayed(dev: gw.Device) -> None:
    """Enough repetition for the loop to be run by id, with every old value still referenced."""
    x, held = gw.zeros(3, device=dev), []
    for number in range(40):
        held.append(x[...])
        x += 1.0
        x[0] = float(number)
    for number, old in enumerate(held[:: len(held) // 8]):
        count = number * (len(held) // 8)
        wanted = [0.0, 0.0, 0.0] if count == 0 else [count - 1.0, count, count]
        np.testing.assert_array_equal(np.asarray(old), np.float32(wanted))
