"""Works over a link that is cut again and again, and compares all that comes back.

    python tests/property/sweep_cuts.py [--seconds 60] [--seed N] [--loss 0.0] [--upload-cache]
        [--compression auto] [--engine auto]

Threads count, run compiled steps, and send and read arrays of up to 4 MiB, while the link is cut
at random times for up to 1.5 s, which is longer or shorter than what counts as silence, or is given
other addresses. Whatever differs from what was sent, or is counted twice or not at all, is an
assertion. The seed is printed, so that a failure can be looked for again.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import gpuwire as gw
from gpuwire.config import load_config
from gpuwire.transport.ticket import Ticket
from relay import LinkProfile, Relay
from servers import ServerProcess

SERVER = "[remote]\nheartbeat_seconds = 0.15\n"
LARGEST_BYTES = 4 * 1024 * 1024
READ_BACK_EVERY = 20
Turn = Callable[[], None]


@gw.compile
def step(state: dict[str, gw.Array], rate: float) -> gw.Array:
    state["x"] += 1
    return gw.sum(state["x"] * rate)


def counting(dev: gw.Device, chance: random.Random) -> Turn:
    x, expected = gw.zeros((16,), device=dev), 0

    def turn() -> None:
        nonlocal x, expected
        for _ in range(chance.randint(1, READ_BACK_EVERY)):
            x += 1
            expected += 1
        np.testing.assert_array_equal(np.asarray(x), expected)

    return turn


def compiled(dev: gw.Device, chance: random.Random) -> Turn:
    state, expected = {"x": gw.zeros((8,), device=dev)}, 0

    def turn() -> None:
        nonlocal expected
        sums = []
        for _ in range(READ_BACK_EVERY):
            sums.append(step(state, 0.5))
            sums[-1].copy_to_host_async()
        for total in sums:
            expected += 1
            assert float(total) == 4.0 * expected, (float(total), expected)

    return turn


def sending(dev: gw.Device, chance: random.Random) -> Turn:
    numbers = np.random.default_rng(chance.randrange(1 << 30))
    often = numbers.integers(0, 8, LARGEST_BYTES, np.uint8)

    def turn() -> None:
        size = int(LARGEST_BYTES ** chance.random())
        values = often[:size]
        if chance.random() < 0.5:
            values = numbers.integers(0, 255, size, np.uint8)
        array = gw.asarray(values, device=dev)
        np.testing.assert_array_equal(np.asarray(array), values)

    return turn


def disturb(relay: Relay, chance: random.Random, until: float) -> int:
    cuts = 0
    while (now := time.monotonic()) < until:
        time.sleep(min(chance.expovariate(1.0), until - now))
        if chance.random() < 0.2:
            relay.move_clients()
            continue
        relay.cut()
        time.sleep(chance.random() ** 2 * 1.5)
        relay.mend()
        cuts += 1
    return cuts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--upload-cache", action="store_true")
    parser.add_argument("--compression", default="auto")
    parser.add_argument("--engine", default="auto")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}")
    remote = {
        "heartbeat_seconds": 0.15,
        "upload_cache": chosen.upload_cache,
        "compression": chosen.compression,
        "quic_engine": chosen.engine,
    }
    directory = Path(tempfile.mkdtemp())
    with ServerProcess(directory, config=SERVER) as server:
        ticket = Ticket.parse(server.ticket)
        profile = LinkProfile(delay_seconds=0.002, loss=chosen.loss)
        with Relay((ticket.host, ticket.port), profile, seed=chosen.seed) as relay:
            there = replace(ticket, port=relay.port).format()
            with gw.connect(there, config=load_config(remote=remote)) as dev:
                run(dev, relay, chosen.seconds, chosen.seed)


def run(dev: gw.Device, relay: Relay, seconds: float, seed: int) -> None:
    until = time.monotonic() + seconds
    failures: list[BaseException] = []
    turns = [0] * 5

    def work(index: int, make: Callable[[gw.Device, random.Random], Turn]) -> None:
        try:
            turn = make(dev, random.Random(seed + index))
            while time.monotonic() < until and not failures:
                turn()
                turns[index] += 1
        except BaseException as error:
            failures.append(error)
            raise

    makers = (counting, compiled, sending, sending, counting)
    threads = [threading.Thread(target=work, args=(i, make)) for i, make in enumerate(makers)]
    for thread in threads:
        thread.start()
    cuts = disturb(relay, random.Random(seed - 1), until)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "somebody waits for ever"
    if failures:
        raise failures[0]
    dev.sync()
    print(f"{cuts} cuts, {dev.link.resumptions} resumptions, turns of work: {turns}")


if __name__ == "__main__":
    main()
