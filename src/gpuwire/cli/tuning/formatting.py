"""Numbers as people read them."""

from __future__ import annotations

from gpuwire.cli.tuning.candidates import Candidate, Value
from gpuwire.cli.tuning.comparing import Spread, percent
from gpuwire.telemetry.quantities import in_bytes


def gain(advantage: Spread) -> str:
    """`+12.3 % ± 1.1`."""
    around = f" ± {percent(advantage.half_width):.1f}" if advantage.count > 1 else ""
    return f"{percent(advantage.median):+.1f} %{around}"


def spelled(candidate: Candidate, other: Candidate) -> str:
    """What a candidate sets otherwise than another, as `gpuwire.toml` would say it."""
    changes = candidate.changes_from(other)
    return ", ".join(
        f"{key} = {toml_value(value)}" if value is not None else f"no {key}"
        for key, value in changes.items()
    )


def toml_value(value: Value) -> str:
    """Not None. As it stands in a TOML file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def link_name(candidate: Candidate) -> str:
    """The way of sending, in a few words."""
    offload = " with offload" if candidate.segmentation_offload else ""
    size = candidate.datagram_bytes
    datagrams = f", datagrams of {size:,} bytes" if size is not None else ""
    return f"{candidate.quic_engine}{offload}{datagrams}"


def thresholds_name(candidate: Candidate) -> str:
    """`64 tasks, 1 MiB`."""
    return f"{candidate.flush_threshold} tasks, {in_bytes(candidate.flush_bytes_threshold)}"
