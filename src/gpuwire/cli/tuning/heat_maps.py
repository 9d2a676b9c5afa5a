"""Heat maps of a search: for each workload one of throughput and one of latency."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuwire.cli.tuning.candidates import Candidate
from gpuwire.cli.tuning.standings import Figure, Standing
from gpuwire.cli.tuning.workloads import Workload
from gpuwire.errors import ArgumentError
from gpuwire.telemetry.quantities import in_bytes, in_seconds, in_thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

COLOURS = "viridis"
"""Even steps look even, to colour-blind eyes and in grey too; bright is better in every map."""


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours around the maps."""

    paper: str
    ink: str
    empty: str


LIGHT = Theme(paper="#ffffff", ink="#1c2024", empty="#e6e8eb")
DARK = Theme(paper="#181b1f", ink="#e8eaed", empty="#2c3137")


@dataclass(frozen=True, slots=True)
class Mark:
    """A point that every map marks."""

    candidate: Candidate
    label: str
    symbol: str


def require_matplotlib() -> None:
    """Raises `ArgumentError`, with what to install, where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ArgumentError(
            "heat maps need matplotlib: pip install 'gpuwire[tune]', or give --no-plot"
        ) from None


def draw(
    standings: Sequence[Standing],
    workloads: Sequence[Workload],
    marks: Sequence[Mark],
    title: str,
    theme: Theme = LIGHT,
) -> bytes:
    """A PNG with a row for each workload. Cells that were not measured are left empty."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = sorted({each.candidate.flush_threshold for each in standings})
    rows = sorted({each.candidate.flush_bytes_threshold for each in standings})
    grid = _Grid(columns, rows)
    width = 2 * max(3.6, 0.95 * len(columns) + 1.6)
    height = len(workloads) * max(2.2, 0.62 * len(rows) + 1.3) + 1.1
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    drawing = Drawing(figsize=(width, height), layout=layout, facecolor=theme.paper)
    axes = drawing.subplots(len(workloads), 2, squeeze=False)
    for workload, (left, right) in zip(workloads, axes, strict=True):
        name = workload.name
        throughput = {each.candidate: each.throughput[name] for each in standings}
        latency = {each.candidate: each.latency[name] for each in standings}
        _map(
            left, grid, throughput, f"{name}: {workload.unit}, more is better", theme, in_thousands
        )
        _map(right, grid, latency, f"{name}: latency, less is better", theme, in_seconds, less=True)
        for each in (left, right):
            _mark(each, grid, marks)
    _legend(drawing, marks, title, theme)
    FigureCanvasAgg(drawing)
    data = io.BytesIO()
    drawing.savefig(data, format="png", dpi=144, facecolor=theme.paper)
    return data.getvalue()


def save(picture: bytes, file: Path) -> None:
    """Writes a picture. Raises `ArgumentError`."""
    try:
        file.write_bytes(picture)
    except OSError as error:
        raise ArgumentError(f"{file}: cannot be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Grid:
    columns: list[int]
    rows: list[int]

    def place(self, candidate: Candidate) -> tuple[int, int] | None:
        """Column and row; None outside of the grid."""
        try:
            return (
                self.columns.index(candidate.flush_threshold),
                self.rows.index(candidate.flush_bytes_threshold),
            )
        except ValueError:
            return None


def _map(
    axes: Axes,
    grid: _Grid,
    figures: Mapping[Candidate, Figure],
    title: str,
    theme: Theme,
    spell: Callable[[float], str],
    *,
    less: bool = False,
) -> None:
    import numpy as np
    from matplotlib import colormaps

    values = np.full((len(grid.rows), len(grid.columns)), np.nan)
    texts: dict[tuple[int, int], str] = {}
    for candidate, figure in figures.items():
        place = grid.place(candidate)
        assert place is not None
        values[place[1], place[0]] = figure.value
        spread = f"±{figure.spread_percent:.0f} %" if figure.spread_percent else ""
        texts[place] = f"{spell(figure.value)}\n{spread}"
    colours = colormaps[COLOURS + ("_r" if less else "")].with_extremes(bad=theme.empty)
    image = axes.imshow(values, cmap=colours, aspect="auto", origin="lower")
    for (column, row), text in texts.items():
        red, green, blue, _ = image.to_rgba(values[row, column])
        is_bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
        axes.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=7.5,
            color="#101418" if is_bright else "#ffffff",
        )
    axes.set_title(title, fontsize=9.5, color=theme.ink)
    axes.set_xticks(range(len(grid.columns)), [str(each) for each in grid.columns])
    axes.set_yticks(range(len(grid.rows)), [in_bytes(each) for each in grid.rows])
    axes.set_xlabel("flush_threshold, tasks", fontsize=8, color=theme.ink)
    axes.set_ylabel("flush_bytes_threshold", fontsize=8, color=theme.ink)
    axes.tick_params(labelsize=8, colors=theme.ink, length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _mark(axes: Axes, grid: _Grid, marks: Sequence[Mark]) -> None:
    """In the cell's upper corners, so that a point may be both."""
    for number_, mark in enumerate(marks):
        place = grid.place(mark.candidate)
        if place is None:
            continue
        axes.plot(place[0] - 0.38 + 0.76 * number_, place[1] + 0.3, **_style(mark))


def _style(mark: Mark) -> dict[str, Any]:
    """Seen on every colour: white inside, dark around."""
    return {
        "marker": mark.symbol,
        "markersize": 14 if mark.symbol == "*" else 9,  # a star is mostly points
        "color": "#ffffff",
        "markeredgecolor": "#101418",
        "markeredgewidth": 1.1,
    }


def _legend(drawing: Drawing, marks: Sequence[Mark], title: str, theme: Theme) -> None:
    from matplotlib.lines import Line2D

    drawing.suptitle(title, fontsize=11, color=theme.ink)
    handles = [Line2D([], [], linestyle="none", label=each.label, **_style(each)) for each in marks]
    drawing.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles),
        fontsize=8.5,
        frameon=False,
        labelcolor=theme.ink,
    )
