"""One self-contained page about a search: no file beside it, nothing from another host."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from gpuwire.cli.tuning.candidates import DEFAULT
from gpuwire.cli.tuning.formatting import toml_value
from gpuwire.cli.tuning.search import Finding, Outcome, Search
from gpuwire.cli.tuning.standings import standings
from gpuwire.cli.tuning.tables import headings, rows, sentence, today_sentence
from gpuwire.cli.tuning.workloads import Workload
from gpuwire.errors import ArgumentError

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --soft: #5b6470; --line: #dde1e6;
  --card: #f5f6f8; --good: #12703f; }
@media (prefers-color-scheme: dark) { :root { --paper: #181b1f; --ink: #e8eaed; --soft: #a3abb5;
  --line: #353b43; --card: #22262b; --good: #6cd09a; } }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 3rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.verdict { border-left: .3rem solid var(--soft); background: var(--card); padding: .8rem 1rem; }
.verdict.better { border-color: var(--good); }
.verdict p { margin: .3rem 0; }
pre { background: var(--card); padding: .7rem 1rem; overflow-x: auto; }
img { width: 100%; min-width: 44rem; height: auto; display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .35rem .9rem .35rem 0;
  border-bottom: 1px solid var(--line); white-space: pre-line; }
td { white-space: pre; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
footer { color: var(--soft); margin-top: 2rem; font-size: .88rem; }
"""

METHOD = (
    "Each run opens a session of its own with its own settings, warms it up, and measures every "
    "workload once: throughput over many steps and one wait, latency as the median of single "
    "answers. Runs of the default lie between the others, and every run is compared with its "
    "neighbours, so that a machine that changes its speed does so for both. Successive halving "
    "drops two thirds of the candidates at each rung and measures the rest more often. The winner "
    "and the default are then measured in turns once more, and only these fresh pairs decide "
    "(Fisher's sign-flip test, 5 %, and at least 2 % better). ± is half of the interquartile range."
)


def page(
    search: Search,
    outcome: Outcome,
    workloads: Sequence[Workload],
    facts: Sequence[tuple[str, str]],
    light: bytes,
    dark: bytes,
) -> str:
    """HTML. `facts` are names and values about server and run; `light` and `dark` are the heat
    maps as PNG."""
    assert search.thresholds is not None
    later = today_sentence(search, outcome)
    kind = "better" if outcome.finding == Finding.BETTER else "same"
    links = standings(search.link)
    parts = [
        f'<section class="verdict {kind}"><p>{escape(sentence(outcome))}</p>',
        f"<p>{escape(later)}</p>" if later else "",
        "</section>",
        _setting(outcome),
        "<h2>What was measured</h2>",
        _list([(workload.name, workload.title) for workload in workloads]),
        "<h2>Throughput and latency by threshold</h2>",
        _picture(light, dark, _alternative(outcome)),
        "<h2>Every pair of thresholds</h2>",
        _table(headings(workloads), rows(standings(search.thresholds), search, workloads)),
    ]
    if links:
        parts += [
            "<h2>Ways of sending, at the default thresholds</h2>",
            _table(headings(workloads, link=True), rows(links, search, workloads, link=True)),
        ]
    parts += ["<h2>Where and how</h2>", _list(facts), f"<p>{METHOD}</p>"]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>gpuwire tune</title>\n"
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        "<h1>Which flush thresholds suit this link</h1>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def save_page(text: str, file: Path) -> None:
    """Writes a page. Raises `ArgumentError`."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"{file}: cannot be written: {error.strerror}") from error


def _setting(outcome: Outcome) -> str:
    changes = outcome.recommended.changes_from(DEFAULT)
    if not changes:
        return ""
    lines = "".join(
        f"{key} = {toml_value(value)}\n" for key, value in changes.items() if value is not None
    )
    return f"<p>In <code>gpuwire.toml</code>:</p>\n<pre>[remote]\n{escape(lines)}</pre>"


def _alternative(outcome: Outcome) -> str:
    best = outcome.best
    return (
        "Heat maps of throughput and latency for each workload by flush_threshold and "
        f"flush_bytes_threshold; best at {best.flush_threshold} tasks and "
        f"{best.flush_bytes_threshold} bytes. The table below has the same numbers."
    )


def _picture(light: bytes, dark: bytes, alternative: str) -> str:
    return (
        '<div class="wide" tabindex="0"><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="{_inline(dark)}">'
        f'<img src="{_inline(light)}" alt="{escape(alternative)}"></picture></div>'
    )


def _inline(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in line) + "</tr>" for line in lines
    )
    return (
        f'<div class="wide" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _list(facts: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<dl>{items}</dl>"
