"""`gpuwire ping`: is the server there, how far away is it, and by which path."""

from __future__ import annotations

import statistics
from typing import Annotated

import typer
from rich.progress import track

from gpuwire.cli.options import ConfigOption, JsonOption
from gpuwire.cli.printing import print_facts, print_json, progress_console
from gpuwire.config import load_config, ticket_from_environment
from gpuwire.errors import TicketError


def ping(
    ticket: Annotated[
        str | None,
        typer.Argument(metavar="[TICKET]", help="A server's ticket; by default $GPUWIRE_URL."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Round trips to measure.")] = 10,
    device: Annotated[int, typer.Option(min=0, help="The device to open a session on.")] = 0,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure round trips to a server, through its whole front, and show the path.

    Example: `gpuwire ping "gpuwire://gpu-box:4433?fp=…&token=…" --count 20`
    """
    from gpuwire.client import connect, list_devices

    ticket = ticket or ticket_from_environment()
    if ticket is None:
        raise TicketError("no ticket: give one, or put it into GPUWIRE_URL")
    loaded = load_config(config)
    lent = list_devices(ticket, config=loaded)
    with connect(ticket, device=device, config=loaded) as opened:
        rounds = track(range(count), "round trips", console=progress_console(), transient=True)
        seconds = [opened.ping() for _ in rounds]
        path = opened.path
    facts = {
        "minimum_ms": min(seconds) * 1e3,
        "median_ms": statistics.median(seconds) * 1e3,
        "maximum_ms": max(seconds) * 1e3,
        "count": count,
        "address": path.address,
        "engine": path.engine,
        "quic_round_trip_ms": {
            name: None if seconds is None else seconds * 1e3
            for name, seconds in (
                ("minimum", path.rtt_seconds.minimum),
                ("median", path.rtt_seconds.median),
                ("jitter", path.rtt_seconds.jitter),
            )
        },
        "congestion_window_bytes": path.congestion_window_bytes,
        "windows": {
            "stream_bytes": path.windows.stream_bytes,
            "connection_bytes": path.windows.connection_bytes,
        },
        "packets_sent": path.packets_sent,
        "packets_lost": path.packets_lost,
        "datagram_bytes": path.datagram_bytes,
        "datagram_search": path.datagram_search,
        "offload": {"state": path.offload.state, "reason": path.offload.reason},
        "bytes_sent": path.bytes_sent,
        "bytes_received": path.bytes_received,
        "resumptions": path.resumptions,
        "devices": [{"index": each.index, "name": each.name} for each in lent],
    }
    if as_json:
        print_json(facts)
        return
    print_facts(
        [
            (
                "round trip",
                f"min {facts['minimum_ms']:.2f} ms, median {facts['median_ms']:.2f} ms, "
                f"max {facts['maximum_ms']:.2f} ms over {count}",
            ),
            *path.facts(),
            ("devices", "\n".join(f"{each.index}: {each.name}" for each in lent)),
        ]
    )
