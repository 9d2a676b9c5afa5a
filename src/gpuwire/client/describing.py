"""A device in words: one line for a prompt, a table for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape

from gpuwire.client.stats import Stats
from gpuwire.telemetry.quantities import in_bytes, in_seconds
from gpuwire.transport import PathInfo
from gpuwire.wire.messages import DeviceInfo


def summary(stats: Stats, path: PathInfo) -> str:
    """`0.41 ms away by aioquic, 31 operations, 12 tasks in 4 frames, 1.2 MiB sent, 3 KiB
    received`."""
    tasks = _count(stats.tasks_sent, "task")
    ops = _count(stats.fused_ops.total + stats.unfused_ops.total, "operation")
    return (
        f"{_distance(path)}, {ops}, {tasks} in {_count(stats.frames_sent, 'frame')}, "
        f"{in_bytes(stats.bytes_sent)} sent, {in_bytes(stats.bytes_received)} received"
    )


def facts(info: DeviceInfo, state: str, stats: Stats, path: PathInfo) -> list[tuple[str, str]]:
    """Names and values, for people. `state` is "open", or why the session ended."""
    trip = path.rtt_seconds
    found = [
        ("device", f"{info.index}: {info.name}"),
        ("adapter", f"{info.backend}, {info.kind}, {info.driver}".rstrip(", ")),
        ("data types", ", ".join(info.dtypes)),
        ("largest buffer", in_bytes(info.max_buffer_bytes)),
        ("session", state),
        ("path", f"{path.address} by {path.engine}"),
    ]
    if trip.minimum is not None and trip.smoothed is not None:
        jitter = f", jitter {in_seconds(trip.jitter)}" if trip.jitter else ""
        found.append(
            ("round trip", f"{in_seconds(trip.smoothed)}, least {in_seconds(trip.minimum)}{jitter}")
        )
    found += [
        ("datagrams", f"{path.datagram_bytes:,} bytes: {path.datagram_search}"),
        ("offload", f"{path.offload.state}: {path.offload.reason}".rstrip(": ")),
        ("loss", f"{path.loss:.2%} of {_count(path.packets_sent, 'packet')}"),
        ("sent", f"{in_bytes(stats.bytes_sent)}, in datagrams {in_bytes(path.bytes_sent)}"),
        (
            "received",
            f"{in_bytes(stats.bytes_received)}, in datagrams {in_bytes(path.bytes_received)}",
        ),
        ("tasks", f"{stats.tasks_sent:,} in {_count(stats.frames_sent, 'frame')}"),
        ("operations", _operations(stats)),
        (
            "op-graphs",
            f"{_count(stats.graph_executions, 'run')} of {stats.graphs_registered:,}, "
            f"{in_bytes(stats.saved_bytes)} saved",
        ),
        ("op-graph caches", _caches(stats)),
        ("waiting for", _count(stats.replies_pending, "reply", "replies")),
        ("links lost", f"{stats.resumptions:,} and found again"),
    ]
    return found


def as_html(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A table without colours of its own, so that it suits a light and a dark notebook."""
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{body}</tbody></table>"


def _distance(path: PathInfo) -> str:
    seconds = path.rtt_seconds.smoothed
    return f"{in_seconds(seconds)} away by {path.engine}" if seconds is not None else path.engine


def _operations(stats: Stats) -> str:
    """`22 operations, 18 fused: elementwise 16 of 18, matmul 2 of 4`."""
    fused, alone = asdict(stats.fused_ops), asdict(stats.unfused_ops)
    classes = [
        f"{name} {fused[name]:,} of {fused[name] + alone[name]:,}"
        for name in fused
        if fused[name] or alone[name]
    ]
    total = _count(stats.fused_ops.total + stats.unfused_ops.total, "operation")
    shared = f"{total}, {stats.fused_ops.total:,} fused"
    return f"{shared}: {', '.join(classes)}" if classes else shared


def _caches(stats: Stats) -> str:
    """`here 98 hits, 2 misses, 0 given up; on the server 98 hits, 0 misses, 0 given up`."""
    here, there = stats.client_cache, stats.server_cache
    return "; ".join(
        f"{place} {_count(use.hits, 'hit')}, {_count(use.misses, 'miss', 'misses')}, "
        f"{use.evictions:,} given up"
        for use, place in ((here, "here"), (there, "on the server"))
    )


def _count(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
