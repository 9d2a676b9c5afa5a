"""What `gpuwire top` shows: one snapshot and a little past, as text for a terminal."""

from __future__ import annotations

from collections import Counter, deque

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpuwire.cli.printing import in_bytes
from gpuwire.telemetry.snapshots import (
    DeviceSnapshot,
    ServerSnapshot,
    SessionSnapshot,
    TrafficPoint,
)

KEPT_POINTS = 60
KERNELS = 6
GRAPHS = 4
LOG_LINES = 5
BAR_CELLS = 24
_LEVELS = " ▁▂▃▄▅▆▇█"


class Screen:
    """Takes snapshots, shows the newest."""

    def __init__(self) -> None:
        self._points: deque[TrafficPoint] = deque(maxlen=KEPT_POINTS)
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._now: ServerSnapshot | None = None

    @property
    def has_rates(self) -> bool:
        """Whether there is more than a beginning."""
        return bool(self._points)

    def take(self, snapshot: ServerSnapshot) -> None:
        """The server's next moment."""
        self._now = snapshot
        self._points.extend(snapshot.traffic)
        self._log.extend(snapshot.log)

    def rendered(self) -> RenderableType:
        """All of it."""
        now = self._now
        if now is None:
            return Text("waiting for the server…")
        parts: list[RenderableType] = [_title(now), self._traffic(), *map(_device, now.devices)]
        parts.append(_sessions(now.sessions))
        kernels = _kernels(now.devices)
        if kernels is not None:
            parts.append(kernels)
        parts.append(_cache(now))
        if self._log:
            parts.append(Text("\n".join(self._log), style="dim", overflow="ellipsis", no_wrap=True))
        return Group(*parts)

    def _traffic(self) -> RenderableType:
        points = tuple(self._points)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        grid.add_column(justify="right", min_width=11)
        grid.add_column(no_wrap=True)
        for name, values, text in (
            ("operations/s", _operations(points), _number),
            ("tasks/s", [point.tasks for point in points], _number),
            ("frames/s", [point.frames for point in points], _number),
            ("in", [point.bytes_in for point in points], _rate),
            ("out", [point.bytes_out for point in points], _rate),
            ("saved", [point.saved_bytes for point in points], _rate),
        ):
            last = values[-1] if values else 0.0
            grid.add_row(name, text(last), Text(sparkline(values), style="cyan"))
        if points and points[-1].ops:
            classes = "  ".join(f"{count.kind} {count.count}" for count in points[-1].ops)
            grid.add_row("by class", "", Text(classes, style="dim"))
        return grid


def sparkline(values: list[float]) -> str:
    """One letter for each value, from empty to full."""
    most = max(values, default=0.0)
    if most <= 0:
        return " " * len(values)
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[round(value / most * top)] for value in values)


def bar(used: int, reserved: int, high: int, whole: int) -> str:
    """Used `█`, reserved `▒`, the high water `|`, of `whole`."""
    if whole <= 0:
        return "·" * BAR_CELLS
    cells = [
        "█"
        if cell < used * BAR_CELLS / whole
        else "▒"
        if cell < reserved * BAR_CELLS / whole
        else "·"
        for cell in range(BAR_CELLS)
    ]
    cells[min(BAR_CELLS - 1, max(0, round(high * BAR_CELLS / whole) - 1))] = "|"
    return "".join(cells)


def _operations(points: tuple[TrafficPoint, ...]) -> list[float]:
    rates = []
    for before, point in zip((None, *points), points, strict=False):
        seconds = max(0.05, point.moment - before.moment) if before is not None else 0.25
        rates.append(sum(count.count for count in point.ops) / seconds)
    return rates


def _title(now: ServerSnapshot) -> Text:
    title = Text(now.server, style="bold")
    if not now.whole:
        title.append("  your sessions only", style="yellow")
    if now.missed:
        title.append(f"  {now.missed} moments missed", style="yellow")
    title.append("  q ends", style="dim")
    return title


def _device(device: DeviceSnapshot) -> RenderableType:
    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"device {device.index}: {device.name}, {device.backend}  {device.state}",
        title_justify="left",
        title_style="bold green" if device.state == "ready" else "bold yellow",
        pad_edge=False,
    )
    for heading in ("pool", "memory", "in use", "reserved", "high water"):
        table.add_column(heading, justify="left" if heading in ("pool", "memory") else "right")
    for pool in device.pools:
        if pool.high_water_reserved_bytes:
            whole = pool.high_water_reserved_bytes
            table.add_row(
                pool.name,
                Text(bar(pool.in_use_bytes, pool.reserved_bytes, pool.high_water_bytes, whole)),
                in_bytes(pool.in_use_bytes),
                in_bytes(pool.reserved_bytes),
                in_bytes(pool.high_water_bytes),
            )
    table.add_row("all", "", in_bytes(device.in_use_bytes), in_bytes(device.reserved_bytes), "")
    return table


def _sessions(sessions: tuple[SessionSnapshot, ...]) -> RenderableType:
    if not sessions:
        return Text("no session is open", style="dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("session", "state", "client", "address", "token", "round trip", "tasks"):
        table.add_column(heading, overflow="ellipsis", no_wrap=True)
    for heading in ("in", "out", "arrays"):
        table.add_column(heading, justify="right", no_wrap=True)
    for session in sessions:
        rtt = session.rtt_seconds
        table.add_row(
            session.name,
            Text(_link_state(session), style="green" if session.state == "open" else "yellow"),
            Text(session.client),
            session.address,
            Text(session.token),
            "–" if rtt is None else _seconds(rtt),
            f"{session.tasks:,}",
            in_bytes(session.bytes_in),
            in_bytes(session.bytes_out),
            f"{session.tensors:,}, {in_bytes(session.memory_bytes)}",
        )
    return table


def _link_state(session: SessionSnapshot) -> str:
    """`away, resumed 2×`."""
    resumed = f", resumed {session.resumptions}×" if session.resumptions else ""
    return f"{session.state}{resumed}"


def _kernels(devices: tuple[DeviceSnapshot, ...]) -> RenderableType | None:
    kernels = sorted(
        (kernel for device in devices for kernel in device.kernels),
        key=lambda kernel: kernel.device_seconds,
        reverse=True,
    )
    if not kernels:
        return None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("kernel", overflow="ellipsis", no_wrap=True)
    for heading in ("launches", "mean", "device time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for kernel in kernels[:KERNELS]:
        timed = kernel.samples > 0
        table.add_row(
            Text(kernel.name),
            f"{kernel.launches:,}",
            _seconds(kernel.mean_seconds) if timed else "–",
            _seconds(kernel.device_seconds) if timed else "–",
        )
    return table


def _cache(now: ServerSnapshot) -> RenderableType:
    caches = [device.cache for device in now.devices]
    runs, misses = sum(c.runs for c in caches), sum(c.misses for c in caches)
    registered = sum(c.registrations for c in caches)
    saved = sum(c.saved_bytes for c in caches)
    given_up = sum(c.evictions for c in caches)
    lines = [
        f"op-graphs: {max(0, runs - registered - misses):,} hits, {registered:,} registered, "
        f"{misses:,} misses, {given_up:,} given up, {in_bytes(saved)} saved",
        f"operations: {_fused(now)}",
    ]
    busiest = sorted(now.graphs, key=lambda graph: graph.runs, reverse=True)[:GRAPHS]
    for graph in busiest:
        error = f"  last error: {graph.last_error}" if graph.last_error else ""
        classes = ", ".join(f"{count.count} {count.kind}" for count in graph.classes)
        lines.append(
            f"  graph {graph.graph}: {graph.nodes} operations ({classes}), "
            f"{graph.runs:,} runs{error}"
        )
    return Text("\n".join(lines), overflow="ellipsis", no_wrap=True)


def _fused(now: ServerSnapshot) -> str:
    """`1,204 run, 95% fused: elementwise 1,100 of 1,150, matmul 44 of 54`."""
    fused: Counter[str] = Counter()
    run: Counter[str] = Counter()
    for device in now.devices:
        for count in device.fused:
            fused[count.kind] += count.count
            run[count.kind] += count.count
        for count in device.unfused:
            run[count.kind] += count.count
    total = run.total()
    if not total:
        return "none yet"
    classes = ", ".join(f"{kind} {fused[kind]:,} of {count:,}" for kind, count in run.items())
    return f"{total:,} run, {fused.total() / total:.0%} fused: {classes}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _rate(value: float) -> str:
    return f"{in_bytes(round(value))}/s"


def _seconds(value: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1 or unit == "µs":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError("unreachable")
