"""`gpuwire bench`: how fast a server is from here, and what limits it."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn

from gpuwire.cli.options import ConfigOption, JsonOption
from gpuwire.cli.printing import print_facts, print_json, print_table, progress_console
from gpuwire.config import load_config, ticket_from_environment
from gpuwire.errors import TicketError
from gpuwire.telemetry.quantities import in_seconds, in_thousands

if TYPE_CHECKING:
    from gpuwire.cli.benching.phases import Phase, RoundTrips
    from gpuwire.client import Device


HEADINGS = ("", "rate", "client", "front", "device", "GPU", "limit")
"""Client, front and device host in cores."""


def bench(
    ticket: Annotated[
        str | None,
        typer.Argument(metavar="[TICKET]", help="A server's ticket; by default $GPUWIRE_URL."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long each of the three phases lasts.")
    ] = 3.0,
    device: Annotated[int, typer.Option(min=0, help="The device to measure.")] = 0,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure round trip, upload, download and operations per second, and say what limits each.

    Processor times come from this process and, over a second connection, from the server's own.
    The link is found by exclusion: where neither side nor the GPU was busy.

    Example: `gpuwire bench "gpuwire://gpu-box:4433?fp=…&token=…"`
    """
    from gpuwire.cli.benching.limits import Place
    from gpuwire.cli.benching.phases import download, operations, round_trips, upload
    from gpuwire.cli.benching.watching import watching
    from gpuwire.client import connect
    from gpuwire.transport import Ticket

    ticket = ticket or ticket_from_environment()
    if ticket is None:
        raise TicketError("no ticket: give one, or put it into GPUWIRE_URL")
    loaded = load_config(config, remote__progress="off")
    with (
        connect(ticket, device=device, config=loaded) as opened,
        watching(Ticket.parse(ticket), loaded.remote, device) as watcher,
        _progress() as progress,
    ):
        place = Place(
            is_one_machine=ipaddress.ip_address(opened.path.host).is_loopback,
            cores=os.cpu_count() or 1,
            is_software=opened.info.kind == "cpu",
        )
        task = progress.add_task("round trips")
        trips = round_trips(opened)
        phases = []
        for phase in (upload, download, operations):
            progress.update(task, description=phase.__name__)
            phases.append(phase(opened, watcher, place, seconds))
        facts = _path_facts(opened)
        refusal = watcher.refusal
    if as_json:
        print_json(
            {
                **facts,
                "round_trip_seconds": asdict(trips),
                "phases": [asdict(phase) for phase in phases],
                "server_tells_nothing": refusal,
            }
        )
        return
    _print(trips, phases, facts, refusal)


def _print(
    trips: RoundTrips, phases: list[Phase], facts: dict[str, str | int | float], refusal: str | None
) -> None:
    print_facts(
        [
            ("device", str(facts["device"])),
            ("path", f"{facts['address']} by {facts['engine']}, {facts['datagram_bytes']} bytes"),
            (
                "round trip",
                f"min {in_seconds(trips.minimum)}, median {in_seconds(trips.median)}, "
                f"jitter {in_seconds(trips.jitter)}",
            ),
            ("loss", f"{facts['loss']:.2%}"),
        ]
    )
    typer.echo()
    print_table(HEADINGS, [_row(phase, bool(facts["is_software"])) for phase in phases])
    typer.echo()
    for phase in phases:
        typer.echo(f"{phase.name}, limit {phase.finding.limit}: {phase.finding.reason}.")
    if refusal is not None:
        typer.echo(f"The server tells nothing of itself: {refusal}")


def _row(phase: Phase, is_software: bool) -> tuple[str, ...]:
    busy = phase.busy
    if phase.wire_rate is None:
        rate = f"{phase.rate / 1e6:.0f} MB/s"
    else:
        rate = f"{in_thousands(phase.rate)}/s in {in_thousands(phase.wire_rate)} tasks/s"
    told = (busy.client, busy.front, busy.host)
    cores = ("?" if each is None else f"{each:.2f}" for each in told)
    gpu = "none" if is_software else "?" if busy.gpu is None else f"{busy.gpu:.0%}"
    return (phase.name, rate, *cores, gpu, phase.finding.limit.value)


def _path_facts(device: Device) -> dict[str, str | int | float]:
    path = device.path
    return {
        "device": device.info.name,
        "is_software": device.info.kind == "cpu",
        "address": path.address,
        "engine": path.engine,
        "datagram_bytes": path.datagram_bytes,
        "loss": path.loss,
    }


def _progress() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=progress_console(), transient=True)
