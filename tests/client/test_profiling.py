"""`gpuwire.profile`: a file that Perfetto reads, of a real session, on one clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.client.timeline import SentFrame, Span, Timeline
from gpuwire.client.timeline_file import ServerSide, trace_file
from gpuwire.errors import ArgumentError
from gpuwire.telemetry.snapshots import KernelSample, OpEvent

CLIENT, LINK, HOST, DEVICE = 1, 2, 3, 4


def events(document: dict[str, Any], process: int, phase: str = "X") -> list[dict[str, Any]]:
    return [
        event
        for event in document["traceEvents"]
        if (event["pid"], event["ph"]) == (process, phase)
    ]


def test_a_block_becomes_a_timeline_of_all_that_took_part(
    server_ticket: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    with gw.connect(server_ticket) as dev:
        before = gw.asarray(np.ones(8, np.float32), device=dev) + 1.0
        np.asarray(before)
        with gw.profile(path, device=dev):
            x = gw.asarray(np.ones((4, 4), np.float32), device=dev)
            assert np.asarray(gw.tanh(x)).shape == (4, 4)
            with pytest.raises(ArgumentError, match="already"), dev.timeline(tmp_path / "other"):
                pass
        assert np.asarray(x + 1.0)[0, 0] == 2.0, "the device goes on as before"
    document = json.loads(path.read_text())
    names = [event["name"] for event in events(document, HOST)]
    assert names == ["upload", "tanh", "read", "sync"], "the block's own, and no others"
    recorded = [e for e in events(document, CLIENT) if e["name"].startswith("record")]
    assert recorded
    frames = [e for e in events(document, CLIENT) if e["name"].startswith("frame")]
    assert sum(frame["args"]["tasks"] for frame in frames) >= 4
    waits = [e for e in events(document, CLIENT) if e["name"] == "read from the device"]
    assert len(waits) == 2, "a read, and the sync at the end"
    work = next(event for event in events(document, HOST) if event["name"] == "tanh")
    ended = max(wait["ts"] + wait["dur"] for wait in waits)
    assert 0 < work["ts"] < ended, "both clocks are one"
    assert events(document, LINK, "b"), "frames are seen on the link"
    facts = document["otherData"]
    uncertainty = facts["clock_offset_uncertainty_seconds"]
    assert 0 < uncertainty < 1
    assert abs(facts["clock_offset_seconds"]) <= uncertainty, "it is one machine"


def test_a_failing_block_leaves_a_file_and_its_own_error(
    server_ticket: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    with gw.connect(server_ticket) as dev:
        with pytest.raises(ZeroDivisionError), gw.profile(path, device=dev):
            gw.asarray(np.ones(4, np.float32), device=dev)
            raise ZeroDivisionError
        with gw.profile(path, device=dev):
            pass
    assert "traceEvents" in json.loads(path.read_text())


def test_a_file_that_cannot_be_written_is_known_before_the_block(
    server_ticket: str, tmp_path: Path
) -> None:
    with (
        gw.connect(server_ticket) as dev,
        pytest.raises(FileNotFoundError),
        gw.profile(tmp_path / "absent" / "run.json", device=dev),
    ):
        raise AssertionError("the block has begun")


def test_the_servers_times_are_put_on_the_clients_clock() -> None:
    timeline = Timeline()
    timeline.began = 1000.0
    timeline.spans.append(Span("recording: main", "record", 1000.5, 1000.6, 3))
    timeline.frames.append(SentFrame(7, 3, 100, 1000.6, 1000.7))
    # The server's clock is 50 s ahead: the frame arrived at 1001.0 by ours.
    server = ServerSide(
        50.0,
        [OpEvent(1051.5, 1, "matmul", "matmul", "float32[2]", 8, 7, 1051.0, 0.25)],
        [KernelSample(1052.0, 1, "matmul f32", 0.5)],
    )
    document = json.loads(trace_file(timeline, server, "a device"))
    assert events(document, CLIENT)[0] | {"args": None} == {
        "ph": "X",
        "name": "record 3",
        "pid": CLIENT,
        "tid": 1,
        "ts": 500_000.0,
        "dur": 100_000.0,
        "args": None,
    }
    (link_begin,), (link_end,) = events(document, LINK, "b"), events(document, LINK, "e")
    assert (link_begin["ts"], link_end["ts"]) == (700_000.0, 1_000_000.0)
    (queue_begin,), (queue_end,) = events(document, HOST, "b"), events(document, HOST, "e")
    assert (queue_begin["ts"], queue_end["ts"]) == (1_000_000.0, 1_250_000.0)
    (work,) = events(document, HOST)
    assert (work["ts"], work["dur"]) == (1_250_000.0, 250_000.0)
    (kernel,) = events(document, DEVICE)
    assert (kernel["ts"], kernel["dur"]) == (1_500_000.0, 500_000.0)
