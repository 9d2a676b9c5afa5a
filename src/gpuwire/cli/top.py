"""`gpuwire top`: what a server does, live in a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from gpuwire.cli.options import ConfigOption, JsonOption
from gpuwire.cli.printing import PIPE_WIDTH, print_json
from gpuwire.config import Config, load_config, ticket_from_environment
from gpuwire.errors import TicketError
from gpuwire.telemetry.event_block import unpacked
from gpuwire.telemetry.plain import to_plain
from gpuwire.telemetry.snapshots import ServerSnapshot


def top(
    ticket: Annotated[
        str | None,
        typer.Argument(metavar="[TICKET]", help="A server's ticket; by default $GPUWIRE_URL."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one moment and end; so it is without a terminal.")
    ] = False,
    authority: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Certificate authorities (PEM), where the ticket pins no key."
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show live what a server does: devices, memory, sessions, operations, kernels.

    With the server's own ticket everything is shown, with another token the sessions opened with
    it. `q` or Ctrl-C ends. `--json` prints one moment for programs.

    Example: `gpuwire top "gpuwire://gpu-box:4433?fp=…&token=…"`
    """
    ticket = ticket or ticket_from_environment()
    if ticket is None:
        raise TicketError("no ticket: give one, or put it into GPUWIRE_URL")
    loaded = load_config(config)
    if as_json:
        asyncio.run(_print_json(ticket, loaded, authority))
    elif once or not sys.stdout.isatty():
        asyncio.run(_print_once(ticket, loaded, authority))
    else:
        # Ctrl-C is how people leave.
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_show(ticket, loaded, authority))


async def _print_json(ticket: str, config: Config, authority: Path | None) -> None:
    from gpuwire.client.watching import watch
    from gpuwire.transport import Ticket

    async with watch(Ticket.parse(ticket), config.remote, authority) as viewer:
        await viewer.next()  # Rates and operations are those between two moments.
        print_json(_legible(await viewer.next()))


def _legible(snapshot: ServerSnapshot) -> dict[str, Any]:
    """A snapshot for programs, its events one by one."""
    events = [event for _, block in snapshot.events for event in unpacked(block)]
    plain = to_plain(replace(snapshot, events=()))
    assert isinstance(plain, dict)
    return {**plain, "events": to_plain(tuple(events))}


async def _print_once(ticket: str, config: Config, authority: Path | None) -> None:
    from gpuwire.cli.top_screen import Screen
    from gpuwire.client.watching import watch
    from gpuwire.transport import Ticket

    screen = Screen()
    async with watch(Ticket.parse(ticket), config.remote, authority) as viewer:
        while not screen.has_rates:
            screen.take(await viewer.next())
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    with console.capture() as captured:
        console.print(screen.rendered())
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


async def _show(ticket: str, config: Config, authority: Path | None) -> None:
    from gpuwire.cli.top_screen import Screen
    from gpuwire.client.watching import watch
    from gpuwire.transport import Ticket

    screen = Screen()
    async with watch(Ticket.parse(ticket), config.remote, authority) as viewer:
        with _until_q(), Live(screen=True, auto_refresh=False) as live:
            while True:
                screen.take(await viewer.next())
                live.update(screen.rendered(), refresh=True)


@contextlib.contextmanager
def _until_q() -> Iterator[None]:
    """Ends the block at `q`; without a terminal to type at, Ctrl-C is left."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    showing = asyncio.current_task()
    assert showing is not None
    told = False

    def typed() -> None:
        nonlocal told
        data = os.read(descriptor, 64)
        if not data or b"q" in data.lower():
            told = True
            showing.cancel()

    loop.add_reader(descriptor, typed)
    try:
        yield
    except asyncio.CancelledError:
        if not told:
            raise
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
