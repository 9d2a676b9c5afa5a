"""Windows in which launches are recorded into a graph instead of run.

A window belongs to one stream: to one thread of a program. Everything else that the thread asks of
the device meanwhile is refused by its name, and spoils the window: a graph that lacks a step would
be wrong at every replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwire.client.kernel_launches import DeviceArray, Launch
from gpuwire.errors import ArgumentError, CaptureError, GpuwireError
from gpuwire.ids import LocationId, StreamId
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.limits import DEFAULT_LIMITS


@dataclass(frozen=True, slots=True)
class CapturedLaunch:
    """One launch of a window, over arrays by their numbers in it."""

    launch: Launch
    slots: tuple[int, ...]
    location: LocationId


class CaptureWindow:
    """One window: a `LaunchRecorder`."""

    def __init__(self, location: Callable[[], LocationId]) -> None:
        """`location` tells the line of the program that is recording."""
        self.launches: list[CapturedLaunch] = []
        self.arrays: list[DeviceArray] = []
        """In order of first use."""
        self.types: list[TensorType] = []
        """Of each of them. It keeps this type."""
        self.written: set[int] = set()
        """Numbers of those that some launch writes."""
        self.cause: GpuwireError | None = None
        """What spoiled it first."""
        self._location = location
        self._numbers: dict[int, int] = {}

    def launch(self, launch: Launch) -> None:
        """Adds a launch. Raises ArgumentError for an array that is written and given twice."""
        if len({id(array) for array in launch.arrays}) < len(launch.arrays):
            written = [a for a, is_written in launch.pairs if is_written]
            if any(sum(one is array for one in launch.arrays) > 1 for array in written):
                raise ArgumentError(
                    f"{launch.name}: in a captured graph an array that it writes cannot be another "
                    "of its arguments too"
                )
        slots = tuple([self._slot(array) for array in launch.arrays])
        for slot, is_written in zip(slots, launch.written, strict=True):
            if is_written:
                self.written.add(slot)
        self.launches.append(CapturedLaunch(launch, slots, self._location()))

    def refused(self, error: GpuwireError) -> None:
        """It cannot become a graph any longer: it would lack a step."""
        self.cause = self.cause or error

    def _slot(self, array: DeviceArray) -> int:
        number = self._numbers.get(id(array))
        if number is None:
            number = len(self.arrays)
            if number >= DEFAULT_LIMITS.max_capture_arrays:
                raise ArgumentError(
                    f"a captured graph works on at most {DEFAULT_LIMITS.max_capture_arrays} arrays"
                )
            self._numbers[id(array)] = number
            self.arrays.append(array)
            self.types.append(array._tensor.type)
        return number


class CaptureWindows:
    """The windows of one session that are open, by stream."""

    def __init__(self) -> None:
        self.open: dict[StreamId, CaptureWindow] = {}

    def begin(self, stream: StreamId, window: CaptureWindow) -> None:
        """Opens a window. Raises CaptureError, and spoils the other, if the stream has one."""
        self.refuse(stream, "another capture")
        self.open[stream] = window

    def end(self, stream: StreamId) -> None:
        """Closes the stream's window."""
        self.open.pop(stream, None)

    def refuse(self, stream: StreamId, name: str) -> None:
        """Raises CaptureError, and spoils the window, if the stream is in one."""
        window = self.open.get(stream)
        if window is not None:
            error = CaptureError(
                f"{name} cannot be captured: only calls of kernels that dev.kernel made can; do it "
                "before or after the block of dev.capture()",
                state="capturing",
            )
            window.refused(error)
            raise error
