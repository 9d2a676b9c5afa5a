"""Uploads that are announced or compressed, over links that are cut."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.config import Config, load_config
from gpuwire.transport import Ticket
from relay import LinkProfile, Relay
from servers import ServerProcess

MIB = 1024 * 1024
HEARTBEAT = 0.15
CONFIG = f"""
[remote]
heartbeat_seconds = {HEARTBEAT}
compression = "on"
"""


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, runtime_directory: None
) -> Iterator[ServerProcess]:
    """A server that soon notices silence, and compresses whatever is read."""
    with ServerProcess(tmp_path_factory.mktemp("server"), config=CONFIG) as server:
        yield server


class LostLinks(logging.Handler):
    """Hears of links that the client has found to be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.one = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        if "lost its link" in record.getMessage():
            self.one.release()


@pytest.fixture
def lost() -> Iterator[LostLinks]:
    links, logger = LostLinks(), logging.getLogger("gpuwire.client")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(links)
    yield links
    logger.removeHandler(links)
    logger.setLevel(before)


def cut_link(relay: Relay, lost: LostLinks, *, up: int = 0, down: int = 0) -> threading.Thread:
    """Cuts a link once it has carried so many bytes more, until the client has noticed."""
    began = relay.up.counters.passed_bytes, relay.down.counters.passed_bytes

    def work() -> None:
        while (
            relay.up.counters.passed_bytes - began[0] < up
            or relay.down.counters.passed_bytes - began[1] < down
        ):
            os.sched_yield()
        relay.cut()
        assert lost.one.acquire(timeout=30)
        relay.mend()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def configuration(**remote: object) -> Config:
    logger = {"log": "info", "level": "basic"}
    return load_config(
        remote={"heartbeat_seconds": HEARTBEAT, "upload_cache": True, "logger": logger, **remote}
    )


def numbers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1000, 2 * MIB, np.int32)


def test_compressed_tensors_go_on_from_where_they_were(
    server: ServerProcess, lost: LostLinks
) -> None:
    ticket = Ticket.parse(server.ticket)
    line = LinkProfile(bytes_per_second=16e6)
    config = configuration(compression="on")
    values = numbers(1)
    with Relay((ticket.host, ticket.port), line) as relay:
        there = replace(ticket, port=relay.port).format()
        with gw.connect(there, config=config) as dev:
            cut = cut_link(relay, lost, up=MIB)
            array = gw.asarray(values, device=dev)
            cut.join()
            cut = cut_link(relay, lost, down=MIB // 4)
            np.testing.assert_array_equal(np.asarray(array), values)
            cut.join()
            stats = dev.stats()
            assert stats.resumptions >= 2
            assert stats.upload_hits == 0 < stats.upload_misses
        with gw.connect(there, config=config) as dev:
            # What came in two parts was taken note of all the same.
            again = gw.asarray(values, device=dev)
            np.testing.assert_array_equal(np.asarray(again), values)
            assert dev.stats().upload_hits == 1
            assert dev.stats().compression_saved_bytes > values.nbytes // 2


def test_an_announcement_that_was_lost_with_its_link_is_made_again(
    server: ServerProcess, lost: LostLinks
) -> None:
    values = numbers(3)
    config = configuration()
    with gw.connect(server.ticket, config=config) as dev:
        gw.asarray(values, device=dev)
        dev.sync()
    ticket = Ticket.parse(server.ticket)
    with Relay((ticket.host, ticket.port)) as relay:
        there = replace(ticket, port=relay.port).format()
        with gw.connect(there, config=config) as dev:
            dev.ping()
            cut = cut_link(relay, lost)
            array = gw.asarray(values, device=dev)
            cut.join()
            np.testing.assert_array_equal(np.asarray(array), values)
            assert dev.stats().upload_hits == 1
