"""`gpuwire tune`: which settings suit this link, by measuring."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwire.cli.options import ConfigOption, JsonOption
from gpuwire.cli.printing import print_json, print_table
from gpuwire.cli.tuning.comparing import Objective
from gpuwire.config import find_config_file, load_config, ticket_from_environment
from gpuwire.config.loading import FILE_NAME
from gpuwire.errors import TicketError

if TYPE_CHECKING:
    from gpuwire.cli.tuning.conducting import Request, Result


def tune(
    ticket: Annotated[
        str | None,
        typer.Argument(metavar="[TICKET]", help="A server's ticket; by default $GPUWIRE_URL."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE:FUNCTION",
            help="chain, training or upload (all three by default), or script.py:function, which "
            "is called with the device; may be repeated.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="About how long all of it may take.")
    ] = 120.0,
    objective: Annotated[
        Objective, typer.Option(help="What is to become better; balanced is both alike.")
    ] = Objective.BALANCED,
    flush_threshold: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="TASKS", help="A value to try; may be repeated."),
    ] = None,
    flush_bytes_threshold: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="BYTES", help="A value to try; may be repeated."),
    ] = None,
    link: Annotated[
        bool, typer.Option("--link/--no-link", help="Try other engines and offload as well.")
    ] = True,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep the search here; if it is there, go on where it stopped."
        ),
    ] = None,
    plot: Annotated[Path, typer.Option(metavar="FILE", help="The heat maps, a PNG.")] = Path(
        "gpuwire-tune.png"
    ),
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Draw no heat maps.")] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one self-contained HTML page.")
    ] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Put what is recommended into gpuwire.toml."),
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Show every pair, not the best.")] = False,
    device: Annotated[int, typer.Option(min=0, help="The device to measure on.")] = 0,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search for the flush thresholds, engine and offload that suit a link, by measuring.

    Nothing is changed without `--write`. Ctrl-C stops; with `--state FILE` the same command goes
    on where it stopped. `script.py:function` is called as `function(dev)`, again and again; give
    `device=dev` to what it creates.

    Example: `gpuwire tune "gpuwire://gpu-box:4433?fp=…&token=…" --write --report tune.html`
    """
    from gpuwire.cli.tuning.conducting import Request, conduct, workloads_named

    ticket = ticket or ticket_from_environment()
    if ticket is None:
        raise TicketError("no ticket: give one, or put it into GPUWIRE_URL")
    written = config or find_config_file() or Path(FILE_NAME)
    picture = None if no_plot else plot
    _require(written if write else None, picture, report)
    request = Request(
        ticket=ticket,
        device=device,
        config=load_config(config),
        workloads=workloads_named(workload or ()),
        objective=objective,
        flush_thresholds=tuple(flush_threshold or ()),
        flush_bytes_thresholds=tuple(flush_bytes_threshold or ()),
        with_link=link,
        seconds=seconds,
        state=state,
    )
    result = conduct(request)
    if as_json:
        _print_as_json(result, request)
    else:
        _print(result, request, every)
    notes = _pictures(result, request, picture, report)
    if write:
        notes.append(_write(result, written))
    for note in notes:
        typer.echo(note, err=as_json)


def _require(written: Path | None, picture: Path | None, report: Path | None) -> None:
    """What would fail in the end fails before minutes are spent on measuring."""
    from gpuwire.cli.tuning.heat_maps import require_matplotlib
    from gpuwire.cli.tuning.writing import require_directory, require_writable

    if picture is not None or report is not None:
        require_matplotlib()
    for file in (picture, report):
        if file is not None:
            require_directory(file)
    if written is not None:
        require_writable(written)


def _print(result: Result, request: Request, every: bool) -> None:
    from gpuwire.cli.tuning.standings import standings, worth_a_row
    from gpuwire.cli.tuning.tables import headings, rows, sentence, today_sentence

    search, workloads = result.search, request.workloads
    assert search.thresholds is not None
    if links := standings(search.link):
        print_table(headings(workloads, link=True), rows(links, search, workloads, link=True))
        typer.echo()
    for note in result.refused:
        typer.echo(f"Not tried: {note}")
    shown = [each for each in standings(search.thresholds) if every or worth_a_row(each, search)]
    print_table(headings(workloads), rows(shown, search, workloads))
    typer.echo("Throughput over latency: medians ± half of the interquartile range.")
    typer.echo()
    typer.echo(sentence(result.outcome))
    if today := today_sentence(search, result.outcome):
        typer.echo(today)


def _print_as_json(result: Result, request: Request) -> None:
    from gpuwire.cli.tuning.tables import as_json

    facts = as_json(result.search, result.outcome, request.workloads)
    print_json({**facts, "device": result.device, "not_tried": result.refused})


def _pictures(
    result: Result, request: Request, picture: Path | None, report: Path | None
) -> list[str]:
    """Writes what was asked for, and tells so."""
    from gpuwire.cli.tuning.heat_maps import DARK, LIGHT, Mark, draw, save
    from gpuwire.cli.tuning.report import page, save_page
    from gpuwire.cli.tuning.standings import standings

    search = result.search
    assert search.thresholds is not None
    shown = standings(search.thresholds)
    marks = (
        Mark(search.today.with_link_of(search.base), "today", "o"),
        Mark(search.thresholds.best(), "best", "*"),
    )
    title = f"{result.device}, {result.path}"
    notes = []
    if picture is not None:
        save(draw(shown, request.workloads, marks, title, LIGHT), picture)
        notes.append(f"Heat maps: {picture}")
    if report is not None:
        light, dark = (
            draw(shown, request.workloads, marks, title, theme) for theme in (LIGHT, DARK)
        )
        facts = (
            ("device", result.device),
            ("path", result.path),
            ("client", f"gpuwire {version('gpuwire')}"),
            ("objective", search.objective.value),
            *(("not tried", note) for note in result.refused),
        )
        text = page(search, result.outcome, request.workloads, facts, light, dark)
        save_page(text, report)
        notes.append(f"Report: {report}")
    return notes


def _write(result: Result, file: Path) -> str:
    from gpuwire.cli.tuning.candidates import Candidate
    from gpuwire.cli.tuning.writing import write_setting

    recommended = result.outcome.recommended
    changed = write_setting(file, recommended)
    if not file.exists():
        return f"{file}: not there, and not needed for the default"
    said = f"{file}: changed {', '.join(changed)}" if changed else f"{file}: says so already"
    differing = Candidate.of(load_config(file).remote).changes_from(recommended)
    if differing:
        said += f"; a variable of the environment overrides {', '.join(differing)}"
    return said
