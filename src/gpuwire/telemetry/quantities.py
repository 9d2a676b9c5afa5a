"""Sizes, times and counts as people read them, three digits each."""

from __future__ import annotations


def in_bytes(count: float) -> str:
    """`134217728` → `128 MiB`, `1500` → `1.46 KiB`; 0 is `0 B`."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.4g} {units[0]}"


def in_seconds(seconds: float) -> str:
    """`0.0123` → `12.3 ms`, `0.000874` → `874 µs`, `1.2` → `1.20 s`."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= 0.9995 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds * 1e6)} µs"


def in_thousands(value: float) -> str:
    """`20134` → `20.1k`, `874` → `874`, `3.02` → `3.02`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.9995 * size:
            return f"{_digits(value / size)}{unit}"
    return _digits(value)


def _digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
