"""The `gpuwire` command: its sub-commands, and how errors leave it.

Exit codes: 0 done, 1 something failed, 2 used wrongly, 130 interrupted. An error is one line on
stderr. The commands import what they need when they run, so that `--help` stays quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version as version_of

import typer

from gpuwire.cli import bench, devices, ping, serve, tokens, top, tune
from gpuwire.cli.printing import print_json
from gpuwire.errors import GpuwireError

# typer carries its own click in some versions and shares the real one in others; either way this
# is the class of everything that is wrong with a command line.
UsageError: type[typer.BadParameter] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="gpuwire",
    help="""Use a GPU in another machine from Python as if it were plugged in.

    On the machine with the GPU: `gpuwire serve`. It prints a ticket.

    On the laptop: `gpuwire ping TICKET`, then in Python
    `gpuwire.connect(TICKET)`.""",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("devices")(devices.devices)
app.command("ping")(ping.ping)
app.command("top")(top.top)
app.command("bench")(bench.bench)
app.command("tune")(tune.tune)
app.add_typer(tokens.app, name="token")


@app.command("version")
def version(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """Print the versions of gpuwire, of Python and of the libraries under it.

    Example: `gpuwire version --json`
    """
    versions = {"gpuwire": version_of("gpuwire"), "python": sys.version.split()[0]}
    versions |= {name: version_of(name) for name in ("aioquic", "numpy", "wgpu")}
    if as_json:
        print_json(versions)
        return
    for name, number in versions.items():
        typer.echo(f"{name} {number}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code; `arguments` None is `sys.argv`."""
    try:
        code = app(args=arguments, prog_name="gpuwire", standalone_mode=False)
    except UsageError as error:
        return _used_wrongly(error)
    except GpuwireError as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `gpuwire devices | head -1`
        sys.stdout = None
        return 1
    except OSError as error:
        return _failed(str(error))
    return code if isinstance(code, int) else 0


def _failed(message: str) -> int:
    typer.echo(f"gpuwire: {_one_line(message)}", err=True)
    return 1


def _used_wrongly(error: typer.BadParameter) -> int:
    context = error.ctx
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)
        return 2
    command = context.command_path if context is not None else "gpuwire"
    message = _one_line(error.format_message()).rstrip(".")
    typer.echo(f"gpuwire: {message}; see {command} --help", err=True)
    return 2


def _one_line(text: str) -> str:
    return " ".join(text.split())
