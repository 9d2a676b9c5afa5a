"""The outcome of a search in words, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpuwire.cli.tuning.candidates import DEFAULT, Candidate
from gpuwire.cli.tuning.comparing import Spread, percent
from gpuwire.cli.tuning.formatting import gain, link_name, spelled
from gpuwire.cli.tuning.search import Finding, Outcome, Search, Verdict
from gpuwire.cli.tuning.standings import Figure, Standing, standings
from gpuwire.cli.tuning.workloads import Workload
from gpuwire.telemetry.quantities import in_bytes, in_seconds, in_thousands

Row = tuple[str, ...]


def sentence(outcome: Outcome) -> str:
    """What to do, and how sure that is."""
    verdict = outcome.best_verdict
    match outcome.finding:
        case Finding.BETTER:
            assert verdict is not None
            return (
                f"Recommended: {spelled(outcome.recommended, DEFAULT)}. {_better(verdict)} than "
                f"the default over {verdict.advantage.count} pairs of runs; chance alone does that "
                f"in {_chance(verdict)} of searches."
            )
        case Finding.NOISE:
            assert verdict is not None
            return (
                "Recommended: the default. The best other setting, "
                f"{spelled(outcome.best, DEFAULT)}, came to {gain(verdict.advantage)} over "
                f"{verdict.advantage.count} pairs of runs, which is inside the noise (chance "
                f"alone: {_chance(verdict)})."
            )
        case Finding.DEFAULT:
            return "Recommended: the default. No other setting measured better."


def today_sentence(search: Search, outcome: Outcome) -> str | None:
    """How today's setting does against the default; None if it is the default, or the best."""
    verdict = outcome.today_verdict
    if verdict is None or search.today == outcome.recommended:
        return None
    return (
        f"Today's setting, {spelled(search.today, DEFAULT)}: {gain(verdict.advantage)} against the "
        "default."
    )


def headings(workloads: Sequence[Workload], *, link: bool = False) -> Row:
    """Of `rows`."""
    what = ("engine",) if link else ("tasks", "bytes")
    return (*what, "", "runs", "against default", *(workload.name for workload in workloads))


def rows(
    shown: Iterable[Standing], search: Search, workloads: Sequence[Workload], *, link: bool = False
) -> list[Row]:
    """A row for each candidate: medians, and half of the interquartile range."""
    return [
        (
            *_what(standing.candidate, link),
            names(standing.candidate, search),
            str(standing.advantage.count),
            ""
            if standing.advantage.half_width == standing.advantage.median == 0.0
            else gain(standing.advantage),
            *(cell(standing, workload) for workload in workloads),
        )
        for standing in shown
    ]


def cell(standing: Standing, workload: Workload) -> str:
    """Throughput over latency."""
    throughput = standing.throughput[workload.name]
    latency = standing.latency[workload.name]
    return (
        f"{in_thousands(throughput.value)} {workload.unit}{_around(throughput)}\n"
        f"{in_seconds(latency.value)}{_around(latency)}"
    )


def names(candidate: Candidate, search: Search) -> str:
    """What a candidate is, besides one of many."""
    known = {
        "default": DEFAULT.with_link_of(search.base),
        "today": search.today.with_link_of(search.base),
    }
    if search.thresholds is not None:
        known["best"] = search.thresholds.best()
    return ", ".join(name for name, other in known.items() if candidate == other)


def as_json(search: Search, outcome: Outcome, workloads: Sequence[Workload]) -> dict[str, Any]:
    """Everything that was found. Seconds, and each workload's unit; ratios in per cent."""
    assert search.thresholds is not None
    return {
        "finding": outcome.finding.value,
        "recommended": outcome.recommended.settings(),
        "best": outcome.best.settings(),
        "today": search.today.settings(),
        "default": DEFAULT.settings(),
        "objective": search.objective.value,
        "best_against_default": _verdict_facts(outcome.best_verdict),
        "today_against_default": _verdict_facts(outcome.today_verdict),
        "workloads": {workload.name: workload.unit for workload in workloads},
        "link": [_standing_facts(each) for each in standings(search.link)],
        "thresholds": [_standing_facts(each) for each in standings(search.thresholds)],
    }


def _better(verdict: Verdict) -> str:
    low = percent(verdict.advantage.median)
    return f"{low:.1f} % better (± {percent(verdict.advantage.half_width):.1f})"


def _chance(verdict: Verdict) -> str:
    return f"{verdict.chance * 100:.2g} %"


def _what(candidate: Candidate, link: bool) -> Row:
    if link:
        return (link_name(candidate),)
    return (str(candidate.flush_threshold), in_bytes(candidate.flush_bytes_threshold))


def _around(figure: Figure) -> str:
    return f" ± {figure.spread_percent:.0f} %" if figure.spread_percent else ""


def _standing_facts(standing: Standing) -> dict[str, Any]:
    return {
        **standing.candidate.settings(),
        "runs": standing.advantage.count,
        "is_finalist": standing.is_finalist,
        "against_default": _spread_facts(standing.advantage),
        "throughput": {name: _figure_facts(each) for name, each in standing.throughput.items()},
        "latency": {name: _figure_facts(each) for name, each in standing.latency.items()},
    }


def _verdict_facts(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {
        **_spread_facts(verdict.advantage),
        "pairs": verdict.advantage.count,
        "chance": verdict.chance,
        "throughput": {name: _spread_facts(each) for name, each in verdict.throughput.items()},
        "latency": {name: _spread_facts(each) for name, each in verdict.latency.items()},
    }


def _spread_facts(advantage: Spread) -> dict[str, float]:
    return {
        "percent": percent(advantage.median),
        "spread_percent": percent(advantage.half_width),
    }


def _figure_facts(figure: Figure) -> dict[str, float]:
    return {"median": figure.value, "spread_percent": figure.spread_percent}
