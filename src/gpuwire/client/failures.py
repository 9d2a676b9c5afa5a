"""From a failed reply to the exception that its caller gets."""

from __future__ import annotations

from gpuwire.client.locations import LocationTable
from gpuwire.errors import CaptureError, ExecutionError, GpuwireError
from gpuwire.wire.messages import Failed
from gpuwire.wire.records import from_record


def failure(failed: Failed, locations: LocationTable) -> GpuwireError:
    """The server's error, with the line that recorded the operation: its number came back, and only
    this side knows its text. The device's own error is the `__cause__`."""
    error = from_record(failed.error)
    line = locations.text(failed.location)
    if line is None:
        return error
    if isinstance(error, ExecutionError):
        located = ExecutionError(
            f"{error.message}; recorded at {line}",
            operation=error.operation,
            place=error.place,
            location=line,
        )
        located.__cause__ = error.__cause__
        return located
    if isinstance(error, CaptureError):
        spoiled = CaptureError(f"{error.message}; recorded at {line}", state=error.state)
        spoiled.__cause__ = error.__cause__
        return spoiled
    error.add_note(f"recorded at {line}")
    return error
