"""Numbers as people read them."""

from __future__ import annotations

from gpuwire.cli.printing import in_bytes
from gpuwire.cli.tuning.candidates import Candidate
from gpuwire.cli.tuning.comparing import Spread, percent


def number(value: float) -> str:
    """Three digits: `20.1k`, `874`, `3.02`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:
            return f"{_digits(value / size)}{unit}"
    return _digits(value)


def duration(seconds: float) -> str:
    """`12.3 ms`, `874 µs`, `1.20 s`."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= 0.9995 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds * 1e6)} µs"


def gain(advantage: Spread) -> str:
    """`+12.3 % ± 1.1`."""
    around = f" ± {percent(advantage.half_width):.1f}" if advantage.count > 1 else ""
    return f"{percent(advantage.median):+.1f} %{around}"


def spelled(candidate: Candidate, other: Candidate) -> str:
    """What a candidate sets otherwise than another, as `gpuwire.toml` would say it."""
    changes = candidate.changes_from(other)
    return ", ".join(f"{key} = {toml_value(value)}" for key, value in changes.items())


def toml_value(value: int | str) -> str:
    """As it stands in a TOML file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def link_name(candidate: Candidate) -> str:
    """The way of sending, in a few words."""
    offload = " with offload" if candidate.segmentation_offload else ""
    return f"{candidate.quic_engine}{offload}"


def thresholds_name(candidate: Candidate) -> str:
    """`64 tasks, 1 MiB`."""
    return f"{candidate.flush_threshold} tasks, {in_bytes(candidate.flush_bytes_threshold)}"


def _digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
