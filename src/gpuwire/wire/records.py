"""Between exceptions and the records in which they travel."""

from __future__ import annotations

from gpuwire.errors import GpuwireError
from gpuwire.wire.messages import ErrorRecord


def to_record(error: BaseException) -> ErrorRecord:
    """An error and the chain of its `__cause__`s, ready to travel.

    Foreign exceptions travel as `GpuwireError` with their class named in the text. Long texts are
    cut, and a chain ends after `MAX_CAUSES`.
    """
    raise NotImplementedError


def from_record(record: ErrorRecord) -> GpuwireError:
    """The error again, of its own class, its causes chained as `__cause__`."""
    raise NotImplementedError
