"""What `gpuwire top` says of a snapshot."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from gpuwire.cli.top_screen import Screen
from gpuwire.telemetry.snapshots import CacheCounts, Count
from telemetry.test_plain import SERVER
from telemetry.test_prometheus import DEVICE


def test_operations_by_class_and_what_became_of_graphs() -> None:
    cache = CacheCounts(runs=50, registrations=4, misses=1, evictions=2)
    fused = (Count("elementwise", 1900), Count("matmul", 10))
    unfused = (Count("matmul", 40), Count("reduction", 50))
    devices = (
        replace(DEVICE, cache=cache, fused=fused, unfused=unfused),
        replace(DEVICE, cache=CacheCounts(), fused=(Count("elementwise", 100),), unfused=()),
    )
    screen = Screen()
    screen.take(replace(SERVER, devices=devices))
    console = Console(width=160)
    with console.capture() as captured:
        console.print(screen.rendered())
    shown = captured.get()
    assert "op-graphs: 45 hits, 4 registered, 1 misses, 2 given up" in shown
    assert (
        "operations: 2,100 run, 96% fused: elementwise 2,000 of 2,000, matmul 10 of 50, "
        "reduction 0 of 50"
    ) in shown
