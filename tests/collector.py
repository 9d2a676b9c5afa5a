"""An OpenTelemetry collector for tests: takes spans by OTLP over HTTP and keeps them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class ToldSpan:
    """A span as the collector got it. Ids are in hexadecimal."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    began_ns: int
    ended_ns: int
    failure: str
    facts: dict[str, Any]


class Collector:
    """Listens on a port of its own. `wait` for what is to come."""

    def __init__(self) -> None:
        self._spans: list[ToldSpan] = []
        self._more = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector._take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a program that tells this collector, soon after each span's end."""
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def wait(self, *names: str, seconds: float = 20.0) -> list[ToldSpan]:
        """All spans so far, as soon as there is one of each name (or of each beginning, where it
        ends with a star)."""

        def are_there() -> bool:
            return all(any(_is_called(span, name) for span in self._spans) for name in names)

        with self._more:
            found = self._more.wait_for(are_there, seconds)
            assert found, f"wanted {names}, got {sorted({span.name for span in self._spans})}"
            return list(self._spans)

    def wait_more(self, known: list[ToldSpan], seconds: float = 20.0) -> list[ToldSpan]:
        """All spans so far, as soon as there are more than those."""
        with self._more:
            assert self._more.wait_for(lambda: len(self._spans) > len(known), seconds)
            return list(self._spans)

    def _take(self, request: ExportTraceServiceRequest) -> None:
        with self._more:
            for resource in request.resource_spans:
                about = {one.key: one.value.string_value for one in resource.resource.attributes}
                for scope in resource.scope_spans:
                    self._spans += [_told(span, about["service.name"]) for span in scope.spans]
            self._more.notify_all()

    def __enter__(self) -> Collector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _is_called(span: ToldSpan, name: str) -> bool:
    if name.endswith("*"):
        return span.name.startswith(name[:-1])
    return span.name == name


def _told(span: Any, service: str) -> ToldSpan:
    return ToldSpan(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple(link.span_id.hex() for link in span.links),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.message,
        {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes},
    )
