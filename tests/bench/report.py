"""How a benchmark reports: one table for people, one JSON file for machines.

Every benchmark of this folder is a script: `python tests/bench/bench_NAME.py [--json PATH]`. It
measures all that it compares in one run, takes medians over repeats, and puts the number that was
asked beside the one that was reached.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `spread` is half the interquartile range; `asked` is text, such as "≤ 3"."""

    what: str
    median: float
    spread: float
    unit: str
    asked: str = ""
    met: bool | None = None


@dataclass(slots=True)
class Report:
    """The rows of one run, in the order in which they were measured."""

    title: str
    rows: list[Row] = field(default_factory=list)

    def add(
        self,
        what: str,
        values: Sequence[float],
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> float:
        """Adds the median of `values`, with the bound it was asked to keep; returns the median."""
        median = statistics.median(values)
        asked, met = "", None
        if at_most is not None:
            asked, met = f"≤ {at_most:g}", median <= at_most
        if at_least is not None:
            asked, met = f"≥ {at_least:g}", median >= at_least
        self.rows.append(Row(what, median, spread(values), unit, asked, met))
        return median

    def finish(self) -> None:
        """Prints the table and writes the JSON file that `--json` names."""
        arguments = argparse.ArgumentParser(description=self.title)
        arguments.add_argument("--json", type=Path, help="write the rows to this file too")
        path = arguments.parse_known_args()[0].json
        table = Table(title=self.title)
        for heading in ("what", "median", "±", "unit", "asked", ""):
            table.add_column(heading, justify="right" if heading in ("median", "±") else "left")
        for row in self.rows:
            mark = "" if row.met is None else ("met" if row.met else "missed")
            table.add_row(
                row.what, f"{row.median:.4g}", f"{row.spread:.2g}", row.unit, row.asked, mark
            )
        Console(width=110).print(table)
        if path is not None:
            facts = {
                "title": self.title,
                "python": platform.python_version(),
                "machine": platform.machine(),
                "date": time.strftime("%Y-%m-%d", time.gmtime()),
                "rows": [asdict(row) for row in self.rows],
            }
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def spread(values: Sequence[float]) -> float:
    """Half the interquartile range; 0 for fewer than four values."""
    if len(values) < 4:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2


def repeat(work: Callable[[], object], times: int, *, warm_up: int = 1) -> list[float]:
    """Seconds of each of `times` runs, after `warm_up` that do not count."""
    for _ in range(warm_up):
        work()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return seconds
