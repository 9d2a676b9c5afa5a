"""Many events in little room: what each says once, and rows of numbers.

A busy device host tells a thousand events a second. As records they cost it 1 ms a snapshot, the
front 2 and the page as much again; as rows that nobody takes apart on the way, a tenth of that.

A row is 28 bytes, little-endian: moment f64, waited f32, seconds f32, frame u32, session u32, name
u16, and two bytes unused. `waited` is the time between the frame's arrival and `moment`, negative
where the arrival is not known; `name` is an index into `names`.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Container, Iterator
from dataclasses import replace

from gpuwire.errors import MalformedMessage
from gpuwire.telemetry.snapshots import EventBlock, EventName, OpEvent

ROW = struct.Struct("<dffIIHxx")
_U32_HIGHEST = (1 << 32) - 1


class EventRows:
    """Collects rows. Used from one thread."""

    __slots__ = ("_names", "_places", "_rows")

    def __init__(self) -> None:
        self._names: list[EventName] = []
        self._places: dict[int, int] = {}
        """By the identity of a name, which `_names` keeps: its hash takes as long as the rest."""
        self._rows: list[bytes] = []

    def add(
        self,
        moment: float,
        waited: float,
        seconds: float,
        frame: int,
        session: int,
        name: EventName,
    ) -> int:
        """One event; how many there are now, which must stay below 65,536. Numbers of frames and
        sessions count modulo 2^32."""
        place = self._places.get(id(name))
        if place is None:
            place = self._places[id(name)] = len(self._names)
            self._names.append(name)
        rows = self._rows
        frame &= _U32_HIGHEST
        rows.append(ROW.pack(moment, waited, seconds, frame, session & _U32_HIGHEST, place))
        return len(rows)

    def take(self) -> tuple[EventBlock, int]:
        """What was added since the call before, and how many."""
        names, self._names = tuple(self._names), []
        rows, self._rows = self._rows, []
        self._places = {}
        return EventBlock(names, b64encode(b"".join(rows)).decode("ascii")), len(rows)


def unpacked(block: EventBlock) -> Iterator[OpEvent]:
    """The events of a block, in order. `MalformedMessage` for a block that is none."""
    for moment, waited, seconds, frame, session, index in ROW.iter_unpack(_rows(block)):
        if index >= len(block.names):
            raise MalformedMessage(f"an event names {index} of {len(block.names)}", what="event")
        name = block.names[index]
        arrived = moment - waited if waited >= 0 else 0.0
        yield OpEvent(
            *(moment, session, name.kind, name.name, name.shape, name.nbytes),
            *(frame, arrived, seconds),
        )


def only(block: EventBlock, sessions: Container[int]) -> EventBlock:
    """Those events that are of some sessions."""
    data = _rows(block)
    kept = [
        data[start : start + ROW.size]
        for start in range(0, len(data), ROW.size)
        if ROW.unpack_from(data, start)[4] in sessions
    ]
    used = {ROW.unpack(row)[5] for row in kept}
    # Names say what others compute: those of no own event are blank.
    names = tuple(name if index in used else _BLANK for index, name in enumerate(block.names))
    return replace(block, names=names, rows=b64encode(b"".join(kept)).decode("ascii"))


_BLANK = EventName("", "", "", 0)


def _rows(block: EventBlock) -> bytes:
    try:
        data = b64decode(block.rows, validate=True)
    except ValueError as error:
        raise MalformedMessage(f"events: {error}", what="events") from error
    if len(data) % ROW.size:
        raise MalformedMessage(f"{len(data)} bytes of events are no rows", what="events")
    return data
