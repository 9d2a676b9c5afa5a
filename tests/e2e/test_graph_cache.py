"""The op-graph cache over real QUIC and a real device: ordinary programs, with it and without."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.config import Config, load_config
from gpuwire.errors import ExecutionError
from servers import ServerProcess

OP_BY_OP = load_config(remote={"graph_cache": False})
ITERATIONS = 12


def lists(rng: np.random.Generator, dev: gw.Device, *shape: int) -> gw.Array:
    return gw.asarray(rng.standard_normal(shape).astype(np.float32), device=dev)


# --- Programs; each gives the arrays that it ends with ---------------------------------------


def training(dev: gw.Device) -> list[gw.Array]:
    """A two-layer network by gradient descent, with momentum and a rate that decays."""
    rng = np.random.default_rng(1)
    x, target = lists(rng, dev, 8, 4), lists(rng, dev, 8, 2)
    w1, w2 = lists(rng, dev, 4, 6), lists(rng, dev, 6, 2)
    m1, m2 = gw.zeros_like(w1), gw.zeros_like(w2)
    for step in range(ITERATIONS):
        hidden = gw.maximum(x @ w1, 0.0)
        error = hidden @ w2 - target
        rate = 0.05 / (1 + step)
        slope = (error @ w2.T) * gw.astype(hidden > 0, gw.float32)
        m1 = 0.9 * m1 + x.T @ slope
        m2 = 0.9 * m2 + hidden.T @ error
        w1 = w1 - rate * m1
        w2 = w2 - rate * m2
    return [w1, w2, error]


def differing_bodies(dev: gw.Device) -> list[gw.Array]:
    rng = np.random.default_rng(2)
    h, w = lists(rng, dev, 4, 4), lists(rng, dev, 4, 4)
    kept = []
    for step in range(20):
        h = gw.tanh(h @ w) * 0.5 + h
        if step % 3 == 2:
            h = h - gw.mean(h)
        if step % 7 == 0:
            kept.append(h)
    return [h, *kept]


def nested_loops(dev: gw.Device) -> list[gw.Array]:
    rng = np.random.default_rng(3)
    layers = [lists(rng, dev, 4, 4) for _ in range(3)]
    h = lists(rng, dev, 4, 4)
    total = gw.zeros((), device=dev)
    for _ in range(ITERATIONS):
        for w in layers:
            h = gw.maximum(h @ w, 0.1) / (1.0 + gw.abs(h))
        total = total + gw.sum(h)
    return [h, total]


def uploads_and_reads(dev: gw.Device) -> list[gw.Array]:
    rng = np.random.default_rng(4)
    w = lists(rng, dev, 4)
    seen = []
    for step in range(ITERATIONS):
        batch = lists(rng, dev, 8, 4)
        w = w * 0.9 + gw.mean(batch, axis=0)
        if step % 2:
            seen.append(float(gw.sum(w)))
    return [w, gw.asarray(np.array(seen, np.float32), device=dev)]


def views_and_integers(dev: gw.Device) -> list[gw.Array]:
    x = gw.reshape(gw.arange(24, dtype=gw.int32, device=dev), (4, 6))
    for step in range(ITERATIONS):
        left, right = x[:, :3], x[:, 3:]
        x = gw.concat([right + left, left * 3 - step], axis=1)
        x = gw.bitwise_and(x, 0xFFFF)
    return [x, left.T]


def chains(dev: gw.Device) -> list[gw.Array]:
    """Elementwise work that is fused, with numbers that change, and a condition."""
    rng = np.random.default_rng(5)
    x, y = lists(rng, dev, 6, 5), lists(rng, dev, 5)
    for step in range(20):
        x = (x * 1.1 + y) / (1.0 + 0.1 * step)
        x = gw.where(x > 0.5, x - y, gw.abs(x) * 0.75)
        y = gw.astype(gw.astype(x[0, :] * 8.0, gw.int32), gw.float32) * 0.125 - y
    return [x, y]


def one_line_of_many_kinds(dev: gw.Device) -> list[gw.Array]:
    """The same lines over other shapes, data types and attributes at each turn."""
    found = []
    for step in range(ITERATIONS):
        shape = (3, 4) if step % 2 else (2, 3, 4)
        dtype = (gw.int32, gw.uint32, gw.int32)[step % 3]
        x = gw.reshape(gw.arange(int(np.prod(shape)), dtype=dtype, device=dev), shape)
        x = gw.permute_dims(x, tuple(range(len(shape)))[:: -1 if step % 4 else 1]) * 3 + step
        found.append(gw.sum(x + x, axis=step % 2, dtype=dtype))
    return found


PROGRAMS = (
    *(training, differing_bodies, nested_loops, uploads_and_reads),
    *(views_and_integers, chains, one_line_of_many_kinds),
)
TO_THE_BIT = (views_and_integers, chains, one_line_of_many_kinds)
"""Where no sum of floats is taken, which a fused kernel may take in another order."""
Program = Callable[[gw.Device], list[gw.Array]]


def outcome(program: Program, dev: gw.Device) -> list[np.ndarray]:
    return [np.asarray(array) for array in program(dev)]


@pytest.fixture(scope="module")
def op_by_op(server_ticket: str) -> dict[Program, list[np.ndarray]]:
    """What every program gives without the cache."""
    with gw.connect(server_ticket, config=OP_BY_OP) as dev:
        outcomes = {program: outcome(program, dev) for program in PROGRAMS}
        assert dev.stats().graph_executions == 0
        return outcomes


def same(program: Program, found: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    """To the bit, or so close that one operation left out, or run over something else, shows."""
    if program in TO_THE_BIT:
        return [one.tobytes() for one in found] == [one.tobytes() for one in wanted]
    pairs = zip(found, wanted, strict=True)
    return all(np.allclose(a, b, rtol=2e-4, atol=1e-5) for a, b in pairs)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_gives_what_it_gives_op_by_op(
    program: Program, server_ticket: str, op_by_op: dict[Program, list[np.ndarray]]
) -> None:
    with gw.connect(server_ticket) as dev:
        assert same(program, outcome(program, dev), op_by_op[program])
        assert dev.stats().graph_executions > 0


def test_threads_and_sessions_run_their_own_graphs(
    server_ticket: str, op_by_op: dict[Program, list[np.ndarray]]
) -> None:
    wrong: list[str] = []

    def work(dev: gw.Device, programs: list[Program]) -> None:
        wrong.extend(
            program.__name__
            for program in programs
            if not same(program, outcome(program, dev), op_by_op[program])
        )

    with gw.connect(server_ticket) as one, gw.connect(server_ticket) as other:
        threads = [
            threading.Thread(target=work, args=(dev, [PROGRAMS[n], PROGRAMS[-1 - n]]))
            for dev in (one, other)
            for n in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_threads_that_pass_arrays_to_each_other(server_ticket: str) -> None:
    with gw.connect(server_ticket) as dev:
        handed: list[gw.Array] = [gw.ones((4,), device=dev)]
        turns = [threading.Semaphore(1), threading.Semaphore(0)]

        def work(number: int) -> None:
            for _ in range(20):
                turns[number].acquire()
                x = handed[-1]
                y = x * 1.5 - x / 2.0
                handed.append(y + 1.0)
                turns[1 - number].release()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(np.asarray(handed[-1]), 41.0)


def test_a_settled_loop_is_a_few_bytes_a_step(server_ticket: str) -> None:
    with gw.connect(server_ticket) as dev:
        x = gw.ones((4, 4), device=dev)
        weights = [gw.full((4, 4), 0.1 * n, device=dev) for n in range(20)]

        def step(h: gw.Array) -> gw.Array:
            for n in range(99):
                h = (h + weights[n % 20]) * 0.5
            return gw.tanh(h) - 0.25

        for _ in range(5):
            x = step(x)
        dev.flush()
        before = dev.stats()
        for _ in range(100):  # Where this process is held up, a step is cut, which costs 2 KB.
            x = step(x)
        dev.flush()
        after = dev.stats()
        assert (after.bytes_sent - before.bytes_sent) / 100 <= 400
        assert after.saved_bytes - before.saved_bytes > 100_000
        assert np.all(np.isfinite(np.asarray(x)))


def test_a_server_that_keeps_few_graphs_is_told_them_again(tmp_path: Path) -> None:
    few = "[server]\nmax_graphs = 2\n"
    with ServerProcess(tmp_path, config=few) as server:
        with gw.connect(server.ticket, config=OP_BY_OP) as dev:
            wanted = outcome(training, dev)
        with gw.connect(server.ticket) as dev:
            x = gw.asarray(np.arange(4, dtype=np.float32), device=dev)
            for _ in range(6):
                for factor in (1, 2, 3, 4):
                    y = x
                    for _ in range(factor):
                        y = y * 2.0 + 1.0
                    expected = np.arange(4) * 2.0**factor + 2**factor - 1
                    np.testing.assert_array_equal(np.asarray(y), expected)
            assert same(training, outcome(training, dev), wanted)
            stats = dev.stats()
            assert stats.graph_misses >= 10
            assert stats.graphs_registered < stats.graph_executions
            there = stats.server_cache
            assert there.misses == stats.graph_misses
            assert there.evictions >= there.misses
            runs = stats.graph_executions
            assert there.hits + there.misses + stats.graphs_registered == runs
            assert stats.client_cache.hits + stats.client_cache.misses == runs


def test_a_failure_on_the_thousandth_run_names_the_operation_and_its_line(tmp_path: Path) -> None:
    limit = "[server]\nmax_memory_bytes = 1048576\n"
    with ServerProcess(tmp_path, config=limit) as server, gw.connect(server.ticket) as dev:
        small = gw.ones((64,), device=dev)
        hoard = []
        line = _line_of("grown = gw.exp(")
        with pytest.raises(ExecutionError) as caught:
            for step in range(1200):
                small = small * 0.5 + 0.5
                wide = gw.broadcast_to(small, (64, 64))
                grown = gw.exp(wide)
                summed = gw.sum(grown)
                if step >= 1000:
                    hoard.append(grown)
                    assert float(summed) > 0
        assert len(hoard) > 50
        assert caught.value.operation == "exp"
        assert caught.value.location == f"{__file__}:{line}"
        assert isinstance(caught.value.__cause__, MemoryError)
        hoard.clear()
        np.testing.assert_allclose(np.asarray(small), 1.0)


def test_both_logs_tell_what_was_saved_and_how_it_ran(tmp_path: Path) -> None:
    log = tmp_path / "client.log"
    config: Config = load_config(remote={"logger": {"file": str(log), "level": "full"}})

    @gw.compile
    def step(x: gw.Array, n: float) -> gw.Array:
        for _ in range(300):
            x = x * 0.5 + 1.0
        return gw.sum(x @ x) * n + x

    with ServerProcess(tmp_path / "server", config='[server.logger]\nlevel = "full"\n') as server:
        with gw.connect(server.ticket, config=config) as dev:
            x = gw.ones((4, 4), device=dev)
            for number in range(1000):
                x = step(x, 0.0)
                if number % 100 == 99:
                    dev.sync()
                    if dev.stats().saved_bytes > 2.1 * 2**20:
                        break
            np.testing.assert_allclose(np.asarray(x), 2.0)
            stats = dev.stats()
        there = server.log.read_text()
    here = log.read_text()
    for text in (here, there):
        for mib in (1, 2):
            assert text.count(f"op-graph cache: {mib} MiB saved") == 1
        assert "graph 1 of 604 ops registered and run: " in text
        assert text.count("graph 1 of 604 ops run again: ") == stats.graph_executions - 1
    session = here.split(" opened on ")[0].split()[-1][:8]
    assert f"session {session} graph 1 of 604 ops run again: " in there
    ran = re.search(r"run again: (\d+) bytes of (\d+) sent; (.+)", there)
    assert ran is not None
    sent, full, classes = ran.groups()
    assert int(sent) < 60 < 1000 < int(full)
    assert "elementwise 602" in classes.split("; alone")[0]
    assert "matmul 1" in classes and "reduction 1" in classes
    assert "the server ran: fused elementwise " in here


def test_at_basic_only_the_savings_are_told(server_ticket: str, tmp_path: Path) -> None:
    log = tmp_path / "client.log"
    config: Config = load_config(remote={"logger": {"file": str(log), "level": "basic"}})
    with gw.connect(server_ticket, config=config) as dev:
        x = gw.ones((4,), device=dev)
        for _ in range(20):
            for _ in range(60):
                x = x * 0.5 + 1.0
            dev.flush()
        dev.sync()
        assert dev.stats().graph_executions > 5
    assert "run again" not in log.read_text()


def _line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.strip().startswith(text))
