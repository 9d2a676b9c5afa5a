"""What both faces of a device tell without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpuwire.client.describing import as_html, facts, summary
from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.client.session import Session
from gpuwire.client.stats import Stats
from gpuwire.errors import DeviceClosed, GpuwireError
from gpuwire.ids import LocationId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import OpGraph
from gpuwire.transport import PathInfo
from gpuwire.wire.messages import DeviceInfo

T = TypeVar("T")


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
        """A graph to be run by `run_graph`, its nodes recorded at `locations`. `ArgumentError` for
        a node that is larger than a server takes."""
        return self._session.recorder.recorded(graph, locations)

    @property
    def path(self) -> PathInfo:
        """The way to the server: address, datagram size, round trips, datagram bytes."""
        return self._on_loop(lambda: self._session.path)

    @property
    def link(self) -> PathInfo:
        """The same, to be printed: engine, round trips, congestion window, loss, datagram size and
        how it was found, offload and why, datagram bytes each way."""
        return self.path

    def stats(self) -> Stats:
        """What has been sent and received since the session was opened."""
        return self._on_loop(self._session.stats)

    def __repr__(self) -> str:
        info = self.info
        state = "" if self._state() == "open" else f"{self._state()}; "
        return (
            f"Device('{info.name}' at {self.address}, index {info.index}, {info.backend}, "
            f"{info.kind}; {state}{summary(self.stats(), self.path)})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows, for the last line of a cell."""
        rows = facts(self.info, self._state(), self.stats(), self.path)
        return as_html(f"gpuwire device at {self.address}", rows)

    def _state(self) -> str:
        if self.ended is None:
            return "link lost, another is sought" if self._session.is_away else "open"
        return "closed" if self.closed else type(self.ended).__name__

    def _on_loop(self, function: Callable[[], T]) -> T:
        """Asks where the session's counts are not changing meanwhile."""
        return function()


def _first(available: frozenset[DType], *wanted: DType) -> DType:
    return next((dtype for dtype in wanted if dtype in available), wanted[-1])
