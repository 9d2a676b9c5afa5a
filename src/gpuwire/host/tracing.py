"""Spans of what the device host does for clients that trace: frames, their tasks, their kernels.

A frame's span runs from its arrival to the moment at which its last task was begun; a task's until
its result is with the device, or its answer on its way; a kernel's is the device's own time, for
the first `TIMED_LAUNCHES` of a frame. Timing a launch costs a hundred times the launch, which only
traced frames pay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from gpuwire.compute.completion import Completion
from gpuwire.errors import GpuwireError
from gpuwire.host.kernel_times import KernelTimes
from gpuwire.host.tensors import Tensor
from gpuwire.host.work import Work
from gpuwire.ids import RequestId
from gpuwire.telemetry.otel import Facts, Span, Tracer
from gpuwire.telemetry.trace_context import TraceContext

TIMED_LAUNCHES = 64
MAX_OPEN_REQUESTS = 1024
"""Requests of one session whose spans wait for the answer; others have none."""


class HostTracing:
    """The spans of one device host."""

    def __init__(self, tracer: Tracer, kernels: KernelTimes, timing: str) -> None:
        """`timing` says where times of kernels come from: device or system."""
        self.tracer = tracer
        self.kernels = kernels
        self.timing = timing

    def frame(self, parent: TraceContext, number: int, count: int) -> TracedFrame:
        """A frame has come."""
        facts = {"frame": number, "tasks": count}
        return TracedFrame(self, self.tracer.begin("gpuwire.host", parent, facts))

    def close(self) -> None:
        """Hands over what is left. Blocks for a moment."""
        self.tracer.close()


class TracedFrame:
    """A frame that is being run; see `work.FrameTrace`."""

    def __init__(self, host: HostTracing, span: Span) -> None:
        self._host = host
        self._span = span
        self._launches_left = TIMED_LAUNCHES

    def task(self, name: str, type_: object = None) -> Span:
        """A task begins that is no operation: read, upload, sync."""
        facts = {} if type_ is None else {"tensor": str(type_)}
        return self._host.tracer.begin(f"gpuwire.{name}", self._span.context, facts)

    @contextmanager
    def working(self, work: Work) -> Iterator[None]:
        """Work is run in the block, and its launches are timed."""
        nodes = work.runnable.graph.nodes
        name = nodes[0].definition.name if work.is_single else "graph"
        facts = {"operations": len(nodes), "place": work.place}
        span = self._host.tracer.begin(f"gpuwire.run {name}", self._span.context, facts)
        with self._timed(span):
            yield
        failure = next((out.failure for out in work.outputs if out.failure is not None), None)
        span.end(failure="" if failure is None else str(failure.error))

    @contextmanager
    def launching(self) -> Iterator[None]:
        """A kernel of the user's is launched in the block, if what it works on is there; if not,
        its launch comes later and is not timed."""
        span = self._host.tracer.begin("gpuwire.run kernel", self._span.context, {})
        try:
            with self._timed(span):
                yield
        finally:
            span.end()

    @contextmanager
    def _timed(self, span: Span) -> Iterator[None]:
        launches = _Launches(self._host, span, self._launches_left)
        with self._host.kernels.told_to(launches):
            yield
        self._launches_left = launches.left

    def ended(self) -> None:
        """Its last task has begun."""
        self._span.end()


class _Launches:
    """The launches of one piece of work; see `kernel_times.LaunchTold`."""

    def __init__(self, host: HostTracing, span: Span, left: int) -> None:
        self._host = host
        self._span = span
        self.left = left

    def wants(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def launched(self, name: str, seconds: Completion[float]) -> None:
        began_ns = time.time_ns()

        def ended() -> None:
            # On the thread that polls the device.
            ended_ns = time.time_ns()
            try:
                lasted_ns = round(seconds.result() * 1e9)
            except GpuwireError:
                return  # Its work failed, which its own span tells.
            # Seen late, as the end may be, it did not begin before it was launched.
            start = max(ended_ns - lasted_ns, began_ns)
            facts: Facts = {"timing": self._host.timing, "seconds": lasted_ns / 1e9}
            kernel = self._host.tracer.begin(
                f"gpuwire.kernel {name}", self._span.context, facts, at_ns=start
            )
            kernel.end(at_ns=start + lasted_ns)

        seconds.when_done(ended)


class OpenRequests:
    """Spans of a session's requests, until they are answered."""

    def __init__(self) -> None:
        self._spans: dict[RequestId, Span] = {}

    def __bool__(self) -> bool:
        return bool(self._spans)

    def begin(self, request: RequestId, span: Span) -> None:
        """Its answer ends the span."""
        if len(self._spans) < MAX_OPEN_REQUESTS:
            self._spans[request] = span

    def answered(self, request: RequestId | None, failure: str) -> None:
        """The answer is on its way."""
        if request is not None and (span := self._spans.pop(request, None)) is not None:
            span.end(failure=failure)


def until_settled(span: Span, tensor: Tensor) -> None:
    """Ends a span once a tensor is there, or has failed."""

    def settled() -> None:
        span.end(failure="" if tensor.failure is None else str(tensor.failure.error))

    if tensor.settled:
        settled()
    else:
        tensor.when_settled(settled)
