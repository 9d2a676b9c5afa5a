"""Snapshots on the channel: events as bare rows, which take a third of the time of named fields."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from operator import attrgetter

from gpuwire.host.channel_messages import Payload
from gpuwire.telemetry.plain import from_json, to_json
from gpuwire.telemetry.snapshots import HostSnapshot, OpEvent

_row = attrgetter(*(field.name for field in fields(OpEvent)))


def pack_snapshot(snapshot: HostSnapshot) -> bytes:
    """A snapshot as a payload."""
    rows = json.dumps([*map(_row, snapshot.events)], separators=(",", ":"))
    return b"\n".join((rows.encode(), to_json(replace(snapshot, events=()))))


def unpack_snapshot(payload: Payload) -> HostSnapshot:
    """The snapshot that `pack_snapshot` packed."""
    rows, _, rest = bytes(payload).partition(b"\n")
    events = tuple([OpEvent(*row) for row in json.loads(rows)])
    return replace(from_json(HostSnapshot, rest), events=events)
