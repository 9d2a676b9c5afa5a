"""A profile as a file for Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing).

The Trace Event Format: complete events (`X`) on tracks where nothing overlaps, asynchronous ones
(`b`, `e`) where things do. Processes are the client, the link, the device host and the device; all
times are in microseconds of the client's clock since the profile began.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gpuwire.client.timeline import Timeline
from gpuwire.telemetry.snapshots import KernelSample, OpEvent

_CLIENT, _LINK, _HOST, _DEVICE = 1, 2, 3, 4
_ENCODING = 1000
_PROCESSES = {
    _CLIENT: "client",
    _LINK: "link and front: frames to the device host",
    _HOST: "device host",
    _DEVICE: "device: launches that were timed",
}
_QUEUE_TRACK, _WORK_TRACK = 1, 2


@dataclass(slots=True)
class ServerSide:
    """What the server told of one session while the profile was taken, by its own clock."""

    clock_offset: float = 0.0
    """Seconds that the server's clock is ahead."""
    events: list[OpEvent] = field(default_factory=list)
    samples: list[KernelSample] = field(default_factory=list)
    dropped: int = 0
    """Operations, of all sessions, that were counted and not told one by one."""
    clock_uncertainty: float = 0.0
    """By how much the offset may be wrong at most."""


def trace_file(timeline: Timeline, server: ServerSide, device: str) -> bytes:
    """The whole file."""
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "device": device,
            "clock_offset_seconds": server.clock_offset,
            "clock_offset_uncertainty_seconds": server.clock_uncertainty,
            "operations_not_told": server.dropped,
            "spans_left_out": timeline.left_out,
        },
        "traceEvents": [*_names(timeline), *_client(timeline), *_server(timeline, server)],
    }
    return json.dumps(document).encode()


def _names(timeline: Timeline) -> Iterator[dict[str, Any]]:
    for process, name in _PROCESSES.items():
        yield _meta("process_name", process, 0, name)
    for track, number in _tracks(timeline).items():
        yield _meta("thread_name", _CLIENT, number, track)
    yield _meta("thread_name", _CLIENT, _ENCODING, "encoding frames")
    yield _meta("thread_name", _HOST, _QUEUE_TRACK, "frames that wait")
    yield _meta("thread_name", _HOST, _WORK_TRACK, "handing work to the device")
    yield _meta("thread_name", _DEVICE, 1, "kernels")


def _tracks(timeline: Timeline) -> dict[str, int]:
    names = dict.fromkeys(span.track for span in timeline.spans)
    return {name: number for number, name in enumerate(names, start=1)}


def _client(timeline: Timeline) -> Iterator[dict[str, Any]]:
    tracks, start = _tracks(timeline), timeline.began
    for span in timeline.spans:
        facts = {"count": span.count} if span.count > 1 else {}
        name = f"{span.name} {span.count}" if span.count > 1 else span.name
        times = (span.began - start, span.ended - start)
        yield _span(_CLIENT, tracks[span.track], name, *times, facts)
    for frame in timeline.frames:
        facts = {"tasks": frame.tasks, "bytes": frame.nbytes}
        times = (frame.began - start, frame.sent - start)
        yield _span(_CLIENT, _ENCODING, f"frame {frame.number}", *times, facts)


def _server(timeline: Timeline, server: ServerSide) -> Iterator[dict[str, Any]]:
    shift = timeline.began + server.clock_offset
    sent = {frame.number: frame for frame in timeline.frames}
    begun: dict[int, tuple[float, float]] = {}
    for event in server.events:
        began = event.moment - event.seconds
        if event.frame in sent and event.frame not in begun and event.arrived:
            begun[event.frame] = (event.arrived, began)
        facts = {"result": event.shape, "bytes": event.nbytes, "frame": event.frame}
        times = (began - shift, event.moment - shift)
        yield _span(_HOST, _WORK_TRACK, event.name, *times, facts)
    for number, (arrived, began) in begun.items():
        frame = sent[number]
        yield from _overlapping(
            _LINK, 1, f"frame {number}", number, frame.sent - timeline.began, arrived - shift
        )
        yield from _overlapping(
            _HOST, _QUEUE_TRACK, f"frame {number}", number, arrived - shift, began - shift
        )
    for sample in server.samples:
        ended = sample.moment - shift
        yield _span(_DEVICE, 1, sample.name, ended - sample.seconds, ended, {})


def _meta(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _span(
    process: int, thread: int, name: str, began: float, ended: float, facts: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": round(began * 1e6, 3),
        "dur": round(max(0.0, ended - began) * 1e6, 3),
        "args": facts,
    }


def _overlapping(
    process: int, thread: int, name: str, number: int, began: float, ended: float
) -> Iterator[dict[str, Any]]:
    both = {
        "name": name,
        "cat": _PROCESSES[process],
        "id": number,
        "pid": process,
        "tid": thread,
    }
    yield {**both, "ph": "b", "ts": round(began * 1e6, 3)}
    # The offset of the clocks is an estimate: nothing ends before it began.
    yield {**both, "ph": "e", "ts": round(max(began, ended) * 1e6, 3)}
