"""A training loop over a long link: what reading a value costs, waited for and not.

    python tests/bench/bench_loop.py [--rounds N] [--steps N] [--rtt-ms MS] [--json PATH]

A two-layer network for pictures of 28 × 28 is trained with a compiled step, on a server in
processes of its own; on a GPU it is a wider one over more pictures, so that a step takes 1 ms or
more. The *GPU time* of a step is that of the same loop, in the same run, over loopback without a
relay and without a read: so many steps and one sync at the end, divided by their number; it is
what the server and its adapter do at their own pace. Then the same through `tests/relay.py` in a
process of its own, which holds each datagram back for half of the round trip:

- without a read,
- with a scalar read and waited for every ten steps: one round trip is to be paid for each,
- with every step's scalar asked for by `copy_to_host_async` and looked at two round trips' worth of
  steps later: the loop is to wait for nothing.

The sides take turns, and each ratio is of one turn. The link's round trip, *RTT*, is what a bare
datagram takes through such a relay to an echo and back. An empty sync stands beside it: the round
trip with our own share.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from report import Report

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gpuwire as gw
from gpuwire.transport import Ticket
from relay import relay_process
from servers import ServerProcess

INPUTS, CLASSES = 28 * 28, 10
EVERY = 10
LEAST_BEHIND = 16


@gw.compile
def step(params: dict[str, gw.Array], x: gw.Array, target: gw.Array, rate: float) -> gw.Array:
    hidden = gw.maximum(x @ params["w1"] + params["b1"], 0.0)
    error = hidden @ params["w2"] - target
    back = (error @ params["w2"].T) * gw.astype(hidden > 0.0, gw.float32)
    params["w2"] -= rate * (hidden.T @ error)
    params["w1"] -= rate * (x.T @ back)
    params["b1"] -= rate * gw.sum(back, axis=0)
    return gw.mean(error * error)


class Training:
    """The loop, on one device."""

    def __init__(self, dev: gw.Device) -> None:
        self.dev = dev
        random = np.random.default_rng(0)

        rows, hidden = (128, 128) if dev.info.kind == "cpu" else (8192, 2048)

        def normal(*shape: int) -> gw.Array:
            return gw.asarray(random.normal(0, 0.05, shape).astype(np.float32), device=dev)

        self.x, self.target = normal(rows, INPUTS), normal(rows, CLASSES)
        self.params = {
            "w1": normal(INPUTS, hidden),
            "b1": normal(hidden),
            "w2": normal(hidden, CLASSES),
        }
        self.first = self.read_every(1, 1)

    def next(self) -> gw.Array:
        return step(self.params, self.x, self.target, 1e-3)

    def read_every(self, steps: int, every: int) -> float:
        """The last loss; one is read, and waited for, every so many steps."""
        loss = 0.0
        for number in range(1, steps + 1):
            value = self.next()
            if number % every == 0:
                loss = float(value)
        self.dev.sync()
        return loss

    def read_behind(self, steps: int, behind: int) -> float:
        """The last loss; each is asked for at once and looked at so many steps later."""
        asked: deque[gw.Array] = deque()
        loss = 0.0
        for _ in range(steps):
            value = self.next()
            value.copy_to_host_async()
            asked.append(value)
            if len(asked) > behind:
                loss = float(asked.popleft())
        while asked:
            loss = float(asked.popleft())
        return loss

    def read_nothing(self, steps: int) -> None:
        for _ in range(steps):
            self.next()
        self.dev.sync()

    def empty_round_trip(self) -> float:
        began = time.perf_counter()
        self.dev.sync()
        return time.perf_counter() - began


def delay(rtt_ms: float) -> tuple[str, str]:
    """What tells a relay so."""
    return "--delay-ms", str(rtt_ms / 2)


def bare_trips(rtt_ms: float, count: int) -> list[float]:
    """Milliseconds that datagrams take through a relay to an echo and back, one after another."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking,
    ):
        echo.bind(("127.0.0.1", 0))
        with relay_process(echo.getsockname()[1], *delay(rtt_ms)) as port:
            asking.connect(("127.0.0.1", port))
            trips = []
            for _ in range(count):
                began = time.perf_counter()
                asking.send(bytes(64))
                echo.sendto(*echo.recvfrom(64))
                asking.recv(64)
                trips.append((time.perf_counter() - began) * 1e3)
    return trips


def per_step(work: Callable[[], object], steps: int) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) / steps * 1e3


def measure(
    report: Report, near: Training, far: Training, rounds: int, steps: int, rtt_ms: float
) -> None:
    near.read_nothing(steps)
    usual = per_step(lambda: near.read_nothing(steps), steps)
    behind = max(LEAST_BEHIND, round(2 * rtt_ms / usual))
    sides: dict[str, Callable[[], object]] = {
        "GPU time: loopback, nothing read": lambda: near.read_nothing(steps),
        "through the relay, nothing read": lambda: far.read_nothing(steps),
        f"through the relay, a scalar read every {EVERY} steps": lambda: far.read_every(
            steps, EVERY
        ),
        "through the relay, every step by copy_to_host_async": lambda: far.read_behind(
            steps, behind
        ),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for work in sides.values():
        work()
    for _ in range(rounds):
        for name, work in sides.items():
            found[name].append(per_step(work, steps))
    for name, values in found.items():
        report.add(name, values, "ms")
    gpu, _, every, asked = found.values()
    share = rtt_ms / EVERY
    bound = [g + 1.2 * share for g in gpu]
    report.add(f"GPU time + RTT/{EVERY} × 1.2", bound, "ms")
    ratios = [e / b for e, b in zip(every, bound, strict=True)]
    report.add(f"read every {EVERY}: over GPU time + RTT/{EVERY} × 1.2", ratios, "×", at_most=1)
    paid = [(e - g) / share for e, g in zip(every, gpu, strict=True)]
    report.add(f"read every {EVERY}: round trips paid for one read", paid, "", at_most=1.2)
    ratios = [a / g for a, g in zip(asked, gpu, strict=True)]
    report.add("copy_to_host_async: over GPU time", ratios, "×", at_most=1.2)
    more = [a - g for a, g in zip(asked, gpu, strict=True)]
    report.add("copy_to_host_async: what it adds to a step", more, "ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rtt-ms", type=float, default=30.0)
    arguments, _ = parser.parse_known_args()
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        server = running.enter_context(ServerProcess(directory / "server"))
        near = Training(running.enter_context(gw.connect(server.ticket)))
        port = Ticket.parse(server.ticket).port
        relay_port = running.enter_context(relay_process(port, *delay(arguments.rtt_ms)))
        behind_relay = server.ticket.replace(f":{port}", f":{relay_port}", 1)
        far = Training(running.enter_context(gw.connect(behind_relay)))
        assert near.first == far.first
        report = Report(
            f"a training loop on {near.dev.info.name}, {arguments.rtt_ms:g} ms round trip, "
            f"{far.dev.link.engine}"
        )
        bare = bare_trips(arguments.rtt_ms, 20)
        report.add("RTT: a bare datagram through the relay and back", bare, "ms")
        trips = [far.empty_round_trip() * 1e3 for _ in range(20)]
        report.add("an empty sync through the relay", trips, "ms")
        rtt_ms = statistics.median(bare)
        measure(report, near, far, arguments.rounds, arguments.steps, rtt_ms)
        assert far.read_every(EVERY, EVERY) < far.first, "it does not learn"
    report.finish()


if __name__ == "__main__":
    main()
