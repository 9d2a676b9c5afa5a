"""`gpuwire serve`: run a server until it is told to stop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwire.cli.options import ConfigOption, JsonOption, StateDirOption
from gpuwire.cli.printing import print_json
from gpuwire.config import load_config
from gpuwire.errors import ServerStartError

if TYPE_CHECKING:
    from gpuwire.dashboard.serving import Dashboard


def serve(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address to listen on; by default 0.0.0.0, all."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="UDP port, by default 4433; 0 takes a free one."),
    ] = None,
    device: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            help="Serve only this adapter (a number from `gpuwire devices`); may be repeated.",
        ),
    ] = None,
    config: ConfigOption = None,
    ticket_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the ticket here when the server is ready."),
    ] = None,
    state_dir: StateDirOption = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name or address that the ticket carries; needed behind NAT or a name service.",
        ),
    ] = None,
    dashboard: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS:]PORT",
            help="Serve a page about this server, and /metrics, here: for this machine only, or "
            "on an address of a network, by TLS and behind the token.",
        ),
    ] = None,
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes",
            hidden=True,
            help="Stop when standard input ends: a parent that holds it is never outlived.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Lend this machine's GPUs to whoever holds the ticket, which is printed when all is ready.

    The ticket is a secret: it holds a token. Ctrl-C or SIGTERM ends the server; its clients are
    told. The log goes to stderr.

    Example: `gpuwire serve --port 4433 --device 0 --dashboard 8433`
    """
    from gpuwire.loops import loop_factory
    from gpuwire.server import Server, run

    arguments: dict[str, Any] = {
        "host": host,
        "port": port,
        "devices": tuple(device) if device else None,
        "state_dir": state_dir,
        "advertise": advertise,
    }
    given = {name: value for name, value in arguments.items() if value is not None}
    server = Server(load_config(config, server=given))

    page = _dashboard(dashboard) if dashboard is not None else None

    def announce(ready: Server) -> None:
        if page is not None:
            typer.echo(f"gpuwire: the dashboard is at {page.url}", err=True)
        if as_json:
            print_json({"ticket": ready.ticket, "port": ready.port})
        else:
            typer.echo(ready.ticket)

    serving = run(
        server,
        ticket_file=ticket_file,
        on_ready=announce,
        until_eof_of=0 if until_stdin_closes else None,
        beside=page.serve if page is not None else None,
    )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serving)


def _dashboard(text: str) -> Dashboard:
    try:
        from gpuwire.dashboard.address import Address
        from gpuwire.dashboard.serving import Dashboard
    except ImportError as error:
        raise ServerStartError(
            f"the dashboard needs {error.name}, which is not installed: "
            "pip install 'gpuwire[dashboard]'",
            reason=str(error),
        ) from error
    return Dashboard(Address.parse(text))
