"""What both faces of a device tell without waiting."""

from __future__ import annotations

from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.client.session import Session
from gpuwire.errors import DeviceClosed, GpuwireError
from gpuwire.ids import LocationId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import OpGraph
from gpuwire.wire.messages import DeviceInfo


class DeviceFacts:
    """The device behind a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # Every operation asks these, so they are plain attributes.
        self.info: DeviceInfo = session.info
        """The adapter: name, backend, data types, limits."""
        self._dtypes = session.dtypes
        self.default_float: DType = _first(session.dtypes, dt.float32, dt.float16, dt.float64)
        """float32 wherever the device has it."""
        self.default_int: DType = _first(session.dtypes, dt.int64, dt.int32)
        """int64 where the device has it, else int32."""

    @property
    def address(self) -> str:
        """`host:port` of the server, as the ticket names it."""
        return self._session.address

    @property
    def closed(self) -> bool:
        """Whether it was closed. A device whose link was lost is not: its arrays still say so."""
        return isinstance(self._session.ended, DeviceClosed)

    @property
    def ended(self) -> GpuwireError | None:
        """Why nothing can be done with it any more; None while all is well."""
        return self._session.ended

    def supports(self, dtype: DType) -> bool:
        """Whether arrays may have that data type here."""
        return dtype in self._dtypes

    def require(self, dtype: DType, operation: str) -> None:
        """Raises `UnsupportedDType`, with what to use instead, if arrays may not have that data
        type here; `operation` is who asks."""
        self._session.recorder.check_dtype(dtype, operation)

    def location(self) -> LocationId:
        """The line of the program that calls into gpuwire."""
        return self._session.recorder.location()

    def line(self, location: LocationId) -> str | None:
        """`file:line` of a location."""
        return self._session.recorder.line(location)

    def recorded_graph(self, graph: OpGraph, locations: tuple[LocationId, ...]) -> RecordedGraph:
        """A graph to be run by `run_graph`, its nodes recorded at `locations`. `ArgumentError` if
        it is larger than a server takes."""
        return self._session.recorder.recorded(graph, locations)

    def __repr__(self) -> str:
        info = self.info
        ended = self._session.ended
        state = "" if ended is None else ", closed" if self.closed else f", {type(ended).__name__}"
        return (
            f"Device('{info.name}' at {self.address}, index {info.index}, {info.backend}, "
            f"{info.kind}{state})"
        )


def _first(available: frozenset[DType], *wanted: DType) -> DType:
    return next((dtype for dtype in wanted if dtype in available), wanted[-1])
