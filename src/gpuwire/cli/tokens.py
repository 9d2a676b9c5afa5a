"""`gpuwire token`: who may open sessions on this machine's server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwire.cli.options import JsonOption, StateDirOption
from gpuwire.cli.printing import in_bytes, print_json, print_table
from gpuwire.config import load_config, state_directory
from gpuwire.errors import ArgumentError

if TYPE_CHECKING:
    from gpuwire.server import TokenRecord, TokenStore

app = typer.Typer(
    help="Add, list and revoke the tokens of a server on this machine.", no_args_is_help=True
)


@app.command("list")
def list_tokens(state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """List every token, revoked and expired ones too; the tokens themselves are not stored.

    Example: `gpuwire token list`
    """
    records = _store(state_dir).records()
    if as_json:
        print_json([_facts(record) for record in records])
        return
    print_table(
        ("name", "state", "created", "expires", "memory", "upload", "sessions", "devices"),
        [_row(record) for record in records],
    )


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="What to call it, for `list` and `revoke`.")],
    days: Annotated[
        float | None, typer.Option(min=0, help="Days until it expires; by default never.")
    ] = None,
    max_sessions: Annotated[int, typer.Option(min=0, help="Sessions at once; 0 is no limit.")] = 0,
    max_memory: Annotated[
        int, typer.Option(metavar="BYTES", min=0, help="Device memory; 0 is no limit.")
    ] = 0,
    max_upload: Annotated[
        int, typer.Option(metavar="BYTES", min=0, help="Bytes of one upload; 0 is no limit.")
    ] = 0,
    device: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this device; may be repeated.")
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token and print it, once: put it in place of the one in the server's ticket.

    Example: `gpuwire token add alice --days 30 --max-sessions 2`
    """
    from gpuwire.server import TokenLimits

    limits = TokenLimits(
        max_memory_bytes=max_memory,
        max_upload_bytes=max_upload,
        max_sessions=max_sessions,
        devices=tuple(device) if device else None,
    )
    expires = datetime.now(UTC) + timedelta(days=days) if days is not None else None
    secret = _store(state_dir).add(name, limits=limits, expires=expires)
    if as_json:
        print_json({"name": name, "token": secret, "expires": _moment(expires)})
    else:
        typer.echo(secret)


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="A name from `gpuwire token list`.")],
    state_dir: StateDirOption = None,
) -> None:
    """End a token: it opens no further session.

    Example: `gpuwire token revoke alice`
    """
    store = _store(state_dir)
    try:
        store.revoke(name)
    except KeyError:
        names = ", ".join(record.name for record in store.records()) or "none"
        raise ArgumentError(f"no token is named {name!r}; there are: {names}") from None


def _store(state_dir: Path | None) -> TokenStore:
    from gpuwire.server import TokenStore

    return TokenStore(state_dir or load_config().server.state_dir or state_directory())


def _facts(record: TokenRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "state": _state(record),
        "created": _moment(record.created),
        "expires": _moment(record.expires),
        "revoked": _moment(record.revoked),
        "max_memory_bytes": record.limits.max_memory_bytes,
        "max_upload_bytes": record.limits.max_upload_bytes,
        "max_sessions": record.limits.max_sessions,
        "devices": record.limits.devices,
    }


def _row(record: TokenRecord) -> tuple[str, ...]:
    limits = record.limits
    return (
        record.name,
        _state(record),
        f"{record.created:%Y-%m-%d}",
        f"{record.expires:%Y-%m-%d}" if record.expires else "never",
        in_bytes(limits.max_memory_bytes) if limits.max_memory_bytes else "any",
        in_bytes(limits.max_upload_bytes) if limits.max_upload_bytes else "any",
        str(limits.max_sessions or "any"),
        "all" if limits.devices is None else ", ".join(map(str, limits.devices)),
    )


def _state(record: TokenRecord) -> str:
    if record.revoked is not None:
        return "revoked"
    if record.expires is not None and record.expires <= datetime.now(UTC):
        return "expired"
    return "valid"


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="seconds") if moment is not None else None
