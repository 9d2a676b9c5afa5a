"""The metrics are those that are documented, and the Grafana dashboard asks for no others."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from gpuwire.telemetry.prometheus import exposition
from gpuwire.telemetry.snapshots import (
    CacheCounts,
    Count,
    DeviceSnapshot,
    PoolSnapshot,
    ServerSnapshot,
    Totals,
)
from telemetry.test_plain import SERVER, SESSION

ROOT = Path(__file__).parent.parent.parent
POOL = PoolSnapshot("small", "sliced", 1, 2, 3, 4)
DEVICE = DeviceSnapshot(
    *(0, 'a "GPU"\\', "Vulkan", "cpu", "ready", 2, "device", 1, 2, 5, (POOL,)),
    CacheCounts(7, 1, 0, 900, 100, 3),
    (),
    0.0,
    (Count("elementwise", 40),),
    (Count("matmul", 2),),
)
TOTALS = Totals(3, 1, 10, 20, 30, 4000, 5000)
SNAPSHOT: ServerSnapshot = replace(
    SERVER, devices=(DEVICE,), totals=TOTALS, sessions=(replace(SESSION, rtt_seconds=0.25),)
)


def test_every_metric_is_documented_and_every_documented_one_is_there() -> None:
    told = set(re.findall(r"^# TYPE (\S+) ", exposition(SNAPSHOT).decode(), re.MULTILINE))
    documented = set(
        re.findall(r"^\| `(gpuwire_\w+)", (ROOT / "deploy/README.md").read_text(), re.MULTILINE)
    )
    assert told == documented


def test_values_and_labels() -> None:
    text = exposition(SNAPSHOT).decode()
    for line in (
        "gpuwire_tasks_total 30.0",
        'gpuwire_frames_total{direction="in"} 10.0',
        'gpuwire_link_bytes_total{direction="out"} 5000.0',
        'gpuwire_sessions{device="0"} 1.0',
        'gpuwire_pool_bytes{device="0",pool="small",state="reserved"} 2.0',
        'gpuwire_device_up{device="0",name="a \\"GPU\\"\\\\"} 1.0',
        'gpuwire_graph_saved_bytes_total{device="0"} 800.0',
        'gpuwire_link_rtt_seconds{stat="max"} 0.25',
        'gpuwire_graph_evictions_total{device="0"} 3.0',
        'gpuwire_operations_total{class="elementwise",device="0",kernel="shared"} 40.0',
        'gpuwire_operations_total{class="matmul",device="0",kernel="own"} 2.0',
    ):
        assert line in text.splitlines(), line


def test_grafana_asks_for_metrics_that_there_are() -> None:
    board = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"gpuwire_\w+", target["expr"])
    }
    text = exposition(SNAPSHOT).decode()
    assert asked
    assert asked <= set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
