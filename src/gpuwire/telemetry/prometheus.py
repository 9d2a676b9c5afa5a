"""A server's metrics in Prometheus' text format. Needs prometheus-client (extra `dashboard`).

Names follow Prometheus' conventions: base units in the name, `_total` for what only grows. All are
since the server's start, except those of a device host, which begin anew when it does.
deploy/README.md lists them.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpuwire.telemetry.snapshots import DeviceSnapshot, ServerSnapshot

CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposition(snapshot: ServerSnapshot) -> bytes:
    """The metrics of one moment."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(snapshot))
    text: bytes = generate_latest(registry)
    return text


class _Snapshot(Collector):
    def __init__(self, snapshot: ServerSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        yield from _front(self._snapshot)
        yield from _links(self._snapshot)
        yield from _devices(self._snapshot.devices)


def _front(snapshot: ServerSnapshot) -> Iterator[Metric]:
    totals = snapshot.totals
    yield CounterMetricFamily("gpuwire_sessions_opened", "Sessions opened.", totals.sessions)
    yield CounterMetricFamily("gpuwire_refusals", "Connections refused.", totals.refusals)
    yield CounterMetricFamily("gpuwire_tasks", "Tasks received.", totals.tasks)
    frames = CounterMetricFamily("gpuwire_frames", "Frames, by direction.", labels=["direction"])
    frames.add_metric(["in"], totals.frames_in)
    frames.add_metric(["out"], totals.frames_out)
    yield frames
    link = CounterMetricFamily(
        "gpuwire_link_bytes", "UDP payload, by direction.", labels=["direction"]
    )
    link.add_metric(["in"], totals.bytes_in)
    link.add_metric(["out"], totals.bytes_out)
    yield link
    announced = CounterMetricFamily(
        "gpuwire_announced_uploads", "Uploads announced by hash.", labels=["found"]
    )
    announced.add_metric(["yes"], totals.upload_hits)
    announced.add_metric(["no"], totals.upload_misses)
    yield announced
    yield CounterMetricFamily(
        "gpuwire_upload_bytes_not_sent",
        "Bytes of uploads that the server had.",
        totals.upload_bytes_not_sent,
    )
    kept = GaugeMetricFamily(
        "gpuwire_upload_cache_bytes", "Uploads kept, by place.", labels=["place"]
    )
    kept.add_metric(["memory"], totals.upload_memory_bytes)
    kept.add_metric(["disk"], totals.upload_disk_bytes)
    yield kept
    yield GaugeMetricFamily("gpuwire_viewers", "Dashboards and terminals open.", snapshot.viewers)


def _links(snapshot: ServerSnapshot) -> Iterator[Metric]:
    sessions = GaugeMetricFamily("gpuwire_sessions", "Sessions open.", labels=["device"])
    count = Counter(session.device for session in snapshot.sessions)
    for device in snapshot.devices:
        sessions.add_metric([str(device.index)], count[device.index])
    yield sessions
    backlog = sum(session.backlog_bytes for session in snapshot.sessions)
    yield GaugeMetricFamily("gpuwire_backlog_bytes", "Tasks on their way to device hosts.", backlog)
    trips = [s.rtt_seconds for s in snapshot.sessions if s.rtt_seconds is not None]
    if trips:
        rtt = GaugeMetricFamily(
            "gpuwire_link_rtt_seconds", "Smoothed round trips of open sessions.", labels=["stat"]
        )
        rtt.add_metric(["median"], statistics.median(trips))
        rtt.add_metric(["max"], max(trips))
        yield rtt


def _devices(devices: tuple[DeviceSnapshot, ...]) -> Iterator[Metric]:
    up = GaugeMetricFamily(
        "gpuwire_device_up", "1 while the device takes sessions.", labels=["device", "name"]
    )
    restarts = GaugeMetricFamily(
        "gpuwire_device_restarts", "Deaths of its host in ten minutes.", labels=["device"]
    )
    memory = GaugeMetricFamily(
        "gpuwire_pool_bytes", "Device memory by pool.", labels=["device", "pool", "state"]
    )
    counters = {
        name: CounterMetricFamily(f"gpuwire_{name}", text, labels=["device"])
        for name, text in (
            ("operation_failures", "Operations that failed."),
            ("graph_runs", "Op-graphs executed by id: hits."),
            ("graph_registrations", "Op-graphs registered."),
            ("graph_misses", "Op-graphs asked for again."),
            ("graph_evictions", "Op-graphs given up for lack of room."),
            ("graph_saved_bytes", "Bytes that op-graphs saved on the link."),
        )
    }
    operations = CounterMetricFamily(
        "gpuwire_operations",
        "Operations run, by class, in a kernel shared with others or their own.",
        labels=["device", "class", "kernel"],
    )
    for device in devices:
        label = str(device.index)
        up.add_metric([label, device.name], device.state in ("ready", "busy"))
        restarts.add_metric([label], device.restarts)
        for pool in device.pools:
            memory.add_metric([label, pool.name, "in_use"], pool.in_use_bytes)
            memory.add_metric([label, pool.name, "reserved"], pool.reserved_bytes)
            memory.add_metric([label, pool.name, "high_water"], pool.high_water_bytes)
        cache = device.cache
        counters["operation_failures"].add_metric([label], device.failures)
        counters["graph_runs"].add_metric([label], cache.runs)
        counters["graph_registrations"].add_metric([label], cache.registrations)
        counters["graph_misses"].add_metric([label], cache.misses)
        counters["graph_evictions"].add_metric([label], cache.evictions)
        for kernel, counts in (("shared", device.fused), ("own", device.unfused)):
            for count in counts:
                operations.add_metric([label, count.kind, kernel], count.count)
        counters["graph_saved_bytes"].add_metric([label], cache.saved_bytes)
    yield from (up, restarts, memory, operations, *counters.values())
