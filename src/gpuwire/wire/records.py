"""Between exceptions and the records in which they travel."""

from __future__ import annotations

from gpuwire.errors import FieldValue, GpuwireError, VersionMismatch, error_classes
from gpuwire.wire.fields import I64_HIGHEST, I64_LOWEST
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import ErrorRecord

MAX_CAUSES = DEFAULT_LIMITS.max_causes
"""Errors of a chain that travel below the first."""

_CHAIN_BYTES = 64 * 1024
"""Texts and bytes of one chain: a compiler's output fits, and an item's limit holds."""
_TEXT_BYTES = 16 * 1024
"""One text of it."""
_CUT = " […]"


def to_record(error: BaseException) -> ErrorRecord:
    """An error and the chain of its `__cause__`s, ready to travel.

    Foreign exceptions travel as `GpuwireError` with their class named in the text. Long texts are
    cut, and a chain ends after `MAX_CAUSES`.
    """
    chain: list[BaseException] = [error]
    while len(chain) <= MAX_CAUSES and chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    room = _Room(_CHAIN_BYTES)
    parts = [_link(link, room) for link in chain]
    record: ErrorRecord | None = None
    for code, message, fields in reversed(parts):
        record = ErrorRecord(code, message, fields, record)
    assert record is not None
    return record


def from_record(record: ErrorRecord) -> GpuwireError:
    """The error again, of its own class, its causes chained as `__cause__`.

    A code that this version does not know becomes a plain `GpuwireError`, and a field that its
    class does not declare is left out: a newer peer may have more of both.
    """
    classes = error_classes()
    first = error = _restored(record, classes)
    cause = record.cause
    while cause is not None:
        error.__cause__ = _restored(cause, classes)
        error = error.__cause__
        cause = cause.cause
    return first


class _Room:
    """How many bytes of text a chain may still have."""

    def __init__(self, size: int) -> None:
        self._left = size

    def text(self, text: str) -> str:
        """The text, cut to the room there is; lone surrogates, which UTF-8 lacks, are escaped."""
        encoded = text.encode("utf-8", "backslashreplace")
        most = min(self._left, _TEXT_BYTES)
        if len(encoded) > most:
            kept = encoded[: max(most - len(_CUT.encode()), 0)].decode("utf-8", "ignore")
            encoded = (kept + _CUT).encode()
        self._left = max(self._left - len(encoded), 0)
        return encoded.decode()

    def octets(self, data: bytes) -> bytes:
        kept = data[: min(self._left, _TEXT_BYTES)]
        self._left -= len(kept)
        return kept


_Link = tuple[int, str, tuple[tuple[str, FieldValue], ...]]


def _link(error: BaseException, room: _Room) -> _Link:
    """One error without its causes."""
    if not isinstance(error, GpuwireError):
        return GpuwireError.code, room.text(f"{type(error).__name__}: {error}"), ()
    message = room.text(error.message)
    named = tuple(
        (name, _portable(value, room)) for name, value in error.fields.items() if value is not None
    )
    return error.code, message, named


def _portable(value: FieldValue, room: _Room) -> FieldValue:
    """A field's value as the wire can carry it: integers keep to 64 bits, what is not of a
    declared kind becomes text."""
    match value:
        case bool() | None:
            return value
        case int():
            return min(max(int(value), I64_LOWEST), I64_HIGHEST)
        case float():
            return float(value)
        case bytes():
            return room.octets(value)
    return room.text(str(value))


def _restored(record: ErrorRecord, classes: dict[int, type[GpuwireError]]) -> GpuwireError:
    error_class = classes.get(record.code, GpuwireError)
    known = {name: value for name, value in record.fields if name in error_class.field_names}
    if error_class is VersionMismatch:
        # The two sides change places on the way.
        known = {"ours": known.get("theirs"), "theirs": known.get("ours")}
    return error_class(record.message, **known)
