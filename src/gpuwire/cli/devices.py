"""`gpuwire devices`: what there is to compute on, here or on a server."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwire.cli.options import ConfigOption, JsonOption
from gpuwire.cli.printing import in_bytes, print_json, print_table
from gpuwire.config import load_config

if TYPE_CHECKING:
    from gpuwire.wire.messages import DeviceInfo

TicketArgument = Annotated[
    str | None,
    typer.Argument(metavar="[TICKET]", help="A server's ticket; without one, this machine."),
]


def devices(
    ticket: TicketArgument = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the devices of this machine, or those that a server lends.

    The index is what `gpuwire serve --device` and `gpuwire.connect(device=…)` take.

    Example: `gpuwire devices`
    """
    loaded = load_config(config)
    if ticket is None:
        from gpuwire.host.probe import probe

        found = asyncio.run(probe(loaded))
    else:
        from gpuwire.client import list_devices

        found = list_devices(ticket, config=loaded)
    if as_json:
        print_json([asdict(device) for device in found])
        return
    print_table(
        ("#", "name", "backend", "kind", "f16", "f64", "int64", "buffer", "binding"),
        [_row(device) for device in found],
    )


def _row(device: DeviceInfo) -> tuple[str, ...]:
    dtypes = (dtype in device.dtypes for dtype in ("float16", "float64", "int64"))
    return (
        str(device.index),
        device.name,
        device.backend,
        device.kind,
        *("yes" if there else "no" for there in dtypes),
        in_bytes(device.max_buffer_bytes),
        in_bytes(device.max_binding_bytes),
    )
