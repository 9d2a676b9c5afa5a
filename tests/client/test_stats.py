"""The counts of a session, those that only the server can make among them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.client.stats import CacheUse, OpCounts
from gpuwire.config import load_config
from gpuwire.ir.operations import OpClass


def layer(x: gw.Array, w: gw.Array) -> gw.Array:
    return gw.sum(gw.maximum(x @ w, 0.0) * 0.5 + x)


def test_there_is_a_count_for_every_class_of_operations() -> None:
    names = [field.name for field in dataclasses.fields(OpCounts)]
    assert names == [op_class.value for op_class in OpClass]
    assert OpCounts(1, 2, 3, 4, 5, 6).total == 21


def test_operations_are_known_by_class_after_a_sync(server_ticket: str) -> None:
    with gw.connect(server_ticket) as dev:
        x, w = gw.ones((4, 4), device=dev), gw.ones((4, 4), device=dev)
        dev.sync()
        before = dev.stats()
        for count in range(1, 6):
            y = layer(x, w)
            dev.sync()
            after = dev.stats()
            ran = after.fused_ops.total + after.unfused_ops.total
            assert ran - before.fused_ops.total - before.unfused_ops.total == 5 * count
        fused, unfused = after.fused_ops, after.unfused_ops
        assert fused.matmul + unfused.matmul == 5
        assert fused.reduction + unfused.reduction == 5
        elementwise = fused.elementwise + unfused.elementwise
        assert elementwise - before.unfused_ops.elementwise == 15
        assert fused.elementwise >= 9, "once it has come again"
        assert float(y) == 4 * 4 * 3.0


def test_without_the_cache_every_operation_is_by_itself(server_ticket: str) -> None:
    config = load_config(remote={"graph_cache": False})
    with gw.connect(server_ticket, config=config) as dev:
        x = gw.ones((4, 4), device=dev)
        before = dev.stats().unfused_ops
        assert float(layer(x, x)) == 48.0
        stats = dev.stats()
        assert stats.unfused_ops.elementwise - before.elementwise == 3
        assert (stats.unfused_ops.matmul, stats.unfused_ops.reduction) == (1, 1)
        assert stats.fused_ops == OpCounts()
        assert stats.client_cache == stats.server_cache == CacheUse()


def test_sessions_do_not_see_each_others_counts(server_ticket: str) -> None:
    with gw.connect(server_ticket) as one, gw.connect(server_ticket) as other:
        for _ in range(3):
            x = gw.ones((4, 4), device=one)
            layer(x, x)
            one.sync()
            other.sync()
        assert one.stats().unfused_ops.total + one.stats().fused_ops.total >= 15
        assert other.stats().fused_ops == other.stats().unfused_ops == OpCounts()
        assert other.stats().server_cache == CacheUse()


def test_the_caches_count_hits_and_misses(server_ticket: str) -> None:
    with gw.connect(server_ticket) as dev:
        x = gw.ones((4, 4), device=dev)
        for _ in range(10):
            float(layer(x, x))
        stats = dev.stats()
        runs, registered = stats.graph_executions, stats.graphs_registered
        assert runs == 10
        assert stats.client_cache == CacheUse(runs - registered, registered, 0)
        assert stats.server_cache == CacheUse(runs - registered, 0, 0)


def test_counts_come_in_a_few_bytes_of_a_reply(server_ticket: str) -> None:
    with gw.connect(server_ticket) as dev:
        x = gw.ones((4, 4), device=dev)
        received = []
        for _ in range(20):
            at = dev.stats().bytes_received
            float(layer(x, x))
            received.append(dev.stats().bytes_received - at)
        # A frame, a float and the counts; a heartbeat may come between.
        assert sorted(received)[10] <= 60


def test_offload_and_why_are_told(server_ticket: str) -> None:
    with gw.connect(server_ticket) as dev:
        segmentation = dev.stats().segmentation
        assert segmentation == dev.path.offload
        assert segmentation.state == "off"
        assert "segmentation_offload" in segmentation.reason


@pytest.mark.parametrize("face", ["repr", "html"])
def test_a_device_shows_how_its_operations_ran(server_ticket: str, face: str) -> None:
    with gw.connect(server_ticket) as dev:
        x = gw.asarray(np.ones((4, 4), np.float32), device=dev)
        for _ in range(4):
            float(layer(x, x))
        shown = repr(dev) if face == "repr" else dev._repr_html_()
        ops = dev.stats().fused_ops.total + dev.stats().unfused_ops.total
        assert f"{ops} operations" in shown
        if face == "html":
            assert "here 3 hits, 1 miss, 0 given up; on the server 3 hits, 0 misses" in shown
