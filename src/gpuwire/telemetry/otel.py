"""OpenTelemetry: the only module that names it, imported only where traces are wanted.

A tracer of a program that has configured OpenTelemetry is the program's. Elsewhere (a server, a
device host, a client that only sets variables) it is a pipeline of our own, which nothing waits
for: spans are handed over in batches by a thread, and given up while no collector takes them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode

from gpuwire.telemetry.logs import Logger
from gpuwire.telemetry.trace_context import TraceContext

CLOSE_SECONDS = 1.0
"""How long an end waits for the last spans to be taken."""
AGAIN_SECONDS = 10.0
"""A collector that took nothing is left alone for so long."""
_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
)

Facts = Mapping[str, str | int | float | bool]
"""What a span says besides: attributes, without the `gpuwire.` that is put before each."""

CLIENT, PRODUCER, CONSUMER, INTERNAL = (
    SpanKind.CLIENT,
    SpanKind.PRODUCER,
    SpanKind.CONSUMER,
    SpanKind.INTERNAL,
)


class Span:
    """A piece of work that is being told. Ended once."""

    __slots__ = ("_span", "context")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        found = span.get_span_context()
        self.context = TraceContext(found.trace_id, found.span_id, found.trace_flags)

    def end(
        self, facts: Facts | None = None, *, failure: str = "", at_ns: int | None = None
    ) -> None:
        """Ends it now, or at `at_ns` since 1970; `failure` says what went wrong."""
        if facts:
            self._span.set_attributes(_attributes(facts))
        if failure:
            self._span.set_status(Status(StatusCode.ERROR, failure))
        self._span.end(at_ns)


class Tracer:
    """Makes the spans of this process. Use `tracing.open_tracer`. Safe for threads."""

    def __init__(self, service: str, logger: Logger) -> None:
        provider = trace.get_tracer_provider()
        self._own: _Pipeline | None = None
        if isinstance(provider, trace.ProxyTracerProvider):
            self._own = _Pipeline(service, logger)
            provider = self._own.provider
        self._tracer = provider.get_tracer("gpuwire", version("gpuwire"))

    def current(self) -> TraceContext | None:
        """The caller's span; None if it has none, or one that is not kept."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid or not context.trace_flags.sampled:
            return None
        return TraceContext(context.trace_id, context.span_id, context.trace_flags)

    @contextmanager
    def during(self, name: str, facts: Facts) -> Iterator[None]:
        """A span around the block, in the caller's; its own callees see it as theirs. What the
        block raises is in it."""
        with self._tracer.start_as_current_span(name, kind=CLIENT, attributes=_attributes(facts)):
            yield

    def begin(
        self,
        name: str,
        parent: TraceContext,
        facts: Facts,
        *,
        kind: SpanKind = INTERNAL,
        at_ns: int | None = None,
        links: Sequence[TraceContext] = (),
    ) -> Span:
        """A span of another's trace, from now on, or from `at_ns` since 1970. `links` are others
        for which the same work is done."""
        return Span(
            self._tracer.start_span(
                name,
                context=_context(parent),
                kind=kind,
                attributes=_attributes(facts),
                links=[trace.Link(_span_context(link)) for link in links],
                start_time=at_ns,
            )
        )

    def close(self) -> None:
        """Hands over what is left, for at most `CLOSE_SECONDS`, unless that is the program's own
        affair. Blocks."""
        if self._own is not None:
            self._own.close()


class _Pipeline:
    """A provider of our own, and what becomes of its spans."""

    def __init__(self, service: str, logger: Logger) -> None:
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: service}))
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._exporter = _Exporter(logger)
        self.provider.add_span_processor(BatchSpanProcessor(self._exporter))

    def close(self) -> None:
        # On a thread: the processor waits up to half a minute for an export that goes on.
        ending = threading.Thread(target=self.provider.shutdown, daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)
        self._exporter.shutdown()


class _Exporter(SpanExporter):
    """Hands spans to the collector. One that cannot be reached is told of once, in the log, until
    it can: its library tells of each attempt, which nobody has asked for."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._thread = 0
        """That of an export under way."""
        self._reason = "no answer"
        self._failed_at: float | None = None
        self._is_closed = False
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self._is_others)
        self._exporter = OTLPSpanExporter()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Called by the processor, from one thread at a time."""
        if self._failed_at is not None and time.monotonic() < self._failed_at + AGAIN_SECONDS:
            return SpanExportResult.FAILURE
        self._thread = threading.get_ident()
        try:
            result = self._exporter.export(spans)
        finally:
            self._thread = 0
        if self._is_closed:
            return result
        if result is SpanExportResult.SUCCESS:
            if self._failed_at is not None:
                self._logger.basic("traces: the collector takes spans again")
            self._failed_at = None
        else:
            if self._failed_at is None:
                self._logger.basic(
                    f"traces: spans are lost until a collector takes them: {self._reason}"
                )
            self._failed_at = time.monotonic()
        return result

    def shutdown(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self._is_others)

    def _is_others(self, record: logging.LogRecord) -> bool:
        """Whether a line of the library's is not about an export of ours."""
        if not self._thread:
            return True
        if record.thread == self._thread:
            self._reason = record.getMessage()
            return False
        # A full queue, while an export hangs.
        return record.name != _LOGGERS[1]


def _attributes(facts: Facts) -> dict[str, str | int | float | bool]:
    return {f"gpuwire.{name}": value for name, value in facts.items()}


def _context(parent: TraceContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(_span_context(parent)))


def _span_context(context: TraceContext) -> trace.SpanContext:
    return trace.SpanContext(
        context.trace_id,
        context.span_id,
        is_remote=True,
        trace_flags=trace.TraceFlags(context.flags),
    )
