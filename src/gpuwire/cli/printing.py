"""How facts reach the terminal: tables for people, JSON for programs, on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from gpuwire.telemetry.quantities import in_bytes as in_bytes

PIPE_WIDTH = 240
"""Columns where there is no terminal to ask: nothing that is piped on is folded or cut."""


def print_json(facts: Any) -> None:
    """One JSON document on one line."""
    typer.echo(json.dumps(facts, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table that a terminal shows with colours and a pipe gets as plain columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    _print(table)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Names and values, one pair a line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    _print(table)


def progress_console() -> Console:
    """Where progress is shown: stderr, and only if it is a terminal."""
    console = Console(stderr=True)
    console.quiet = not console.is_terminal
    return console


def _print(table: Table) -> None:
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        console.print(table)
        return
    wide = Console(width=PIPE_WIDTH, highlight=False, markup=False)
    with wide.capture() as captured:
        wide.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
