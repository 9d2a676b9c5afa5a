"""One trace from a program to the GPU: real processes, and a collector that gets their spans."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector import Collector, ToldSpan
from gpuwire.ids import RequestId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.tensors import TensorType
from gpuwire.wire.codec import encode_task
from gpuwire.wire.messages import Done, RegisterTensor, SyncStream, Task
from plain_client import plain_client
from servers import ServerProcess, clean_environment

TRACING = "[server]\ntracing = true\n"

CONFIGURED = """
import gpuwire as gw, numpy as np
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
span = trace.get_tracer("program").start_as_current_span
with gw.connect() as dev:
    with span("one"):
        x = gw.asarray(np.ones((8, 8), np.float32), device=dev)
    with span("two"):
        y = gw.exp(x)
    with span("three"):
        np.asarray(y)
    z = x + 1.0
    with span("fails"):
        try:
            float(gw.sum(gw.zeros((1 << 40,), device=dev)))
        except gw.errors.ExecutionError:
            pass
    np.asarray(z)
provider.shutdown()
"""

VARIABLES_ALONE = """
import asyncio, gpuwire as gw, numpy as np

async def main():
    async with gw.aio.connect() as dev:
        x = gw.asarray(np.ones((8, 8), np.float32), device=dev)
        await gw.exp(x).to_numpy()
        await dev.sync()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collector, ServerProcess]]:
    """A collector, and a server that tells it."""
    with Collector() as collector, pytest.MonkeyPatch.context() as patch:
        for name, value in collector.variables.items():
            patch.setenv(name, value)
        with ServerProcess(tmp_path_factory.mktemp("traced"), config=TRACING) as server:
            yield collector, server


def run(program: str, ticket: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that traces, as a user does."""
    variables = {"GPUWIRE_REMOTE__TRACING": "true", "GPUWIRE_URL": ticket, **variables}
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return result


def only(spans: list[ToldSpan], name: str, **facts: object) -> ToldSpan:
    """The one span of that name and those facts."""
    (found,) = [
        span
        for span in spans
        if span.name == name
        and all(span.facts.get(f"gpuwire.{key}") == value for key, value in facts.items())
    ]
    return found


def below(spans: list[ToldSpan], parent: ToldSpan) -> list[ToldSpan]:
    return [span for span in spans if span.parent == parent.id]


def test_a_program_that_has_configured_opentelemetry_sees_one_trace_down_to_the_kernel(
    traced: tuple[Collector, ServerProcess],
) -> None:
    collector, server = traced
    run(CONFIGURED, server.ticket, **collector.variables, OTEL_SERVICE_NAME="the program")
    spans = collector.wait("three", "fails", "gpuwire.kernel exp*", "gpuwire.run sum")

    one, two, three = (only(spans, name) for name in ("one", "two", "three"))
    assert three.service == "the program"
    upload = next(span for span in below(spans, one) if span.name == "gpuwire.upload")
    (read,) = below(spans, three)
    assert (read.name, read.facts["gpuwire.tensor"]) == ("gpuwire.read", "float32[8, 8]")

    (frame,) = below(spans, read)
    assert frame.name == "gpuwire.frame"
    assert set(frame.links) == {upload.id, two.id}, "the others for which the frame was sent"
    (session,) = below(spans, frame)
    assert (session.name, session.service) == ("gpuwire.session", "gpuwire-server")
    assert session.facts["gpuwire.session"] == frame.facts["gpuwire.session"]
    (host,) = below(spans, session)
    assert (host.name, host.service) == ("gpuwire.host", "gpuwire-device-host")
    tasks = {span.name: span for span in below(spans, host)}
    assert tasks.keys() == {"gpuwire.upload", "gpuwire.run exp", "gpuwire.read"}
    (kernel,) = below(spans, tasks["gpuwire.run exp"])
    assert kernel.name.startswith("gpuwire.kernel exp")
    assert kernel.facts["gpuwire.timing"] in ("device", "system")
    assert kernel.ended_ns - kernel.began_ns == round(kernel.facts["gpuwire.seconds"] * 1e9)
    whole = [read, frame, session, host, *tasks.values(), kernel]
    assert {span.trace for span in whole} == {three.trace}
    assert all(span.ended_ns >= span.began_ns for span in whole)
    assert not any(span.failure for span in whole)

    # What fails there is an error on both sides, in its own trace.
    fails = only(spans, "fails")
    (failed,) = [span for span in below(spans, fails) if span.name == "gpuwire.read"]
    assert "failed" in failed.failure
    work = [span for span in spans if span.trace == fails.trace and span.failure]
    assert any(span.service == "gpuwire-device-host" for span in work)


def test_variables_alone_make_traces_of_an_asyncio_programs_waits(
    traced: tuple[Collector, ServerProcess],
) -> None:
    collector, server = traced
    result = run(VARIABLES_ALONE, server.ticket, **collector.variables)
    assert result.stderr == ""
    spans = [span for span in collector.wait("gpuwire.sync") if span.service == "gpuwire-client"]
    waits = [span for span in spans if not span.parent]
    assert [span.name for span in waits] == ["gpuwire.upload", "gpuwire.read", "gpuwire.sync"]
    (frame,) = below(spans, waits[1])
    assert frame.links == (waits[0].id,)


def test_a_frame_has_the_time_of_its_first_launches_only(
    traced: tuple[Collector, ServerProcess],
) -> None:
    collector, server = traced
    program = '''
import gpuwire as gw, numpy as np
with gw.connect() as dev:
    x = gw.ones((3, 5), device=dev)
    for _ in range(70):
        x = x * 1.5
    np.asarray(x)
    twice = dev.kernel("""
      @group(0) @binding(0) var<storage, read_write> x: array<f32>;
      @compute @workgroup_size(16) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
          x[id.x] = 2.0 * x[id.x];
      }""", name="twice")
    twice(x, grid=15)
    np.asarray(x)
'''
    run(
        program,
        server.ticket,
        **collector.variables,
        OTEL_SERVICE_NAME="many launches",
        GPUWIRE_REMOTE__GRAPH_CACHE="false",
        GPUWIRE_REMOTE__FLUSH_THRESHOLD="1000",
    )
    spans = collector.wait("gpuwire.kernel multiply*", "gpuwire.kernel twice", "gpuwire.run kernel")
    frame = next(s for s in spans if s.service == "many launches" and s.name == "gpuwire.frame")
    runs = [s for s in spans if s.trace == frame.trace and s.name == "gpuwire.run multiply"]
    kernels = [s for s in spans if s.trace == frame.trace and "kernel" in s.name]
    assert len(runs) == 70
    assert 60 <= len(kernels) <= 64
    own = next(s for s in collector.wait("gpuwire.kernel twice") if s.name.endswith(" twice"))
    assert next(s for s in spans if s.id == own.parent).name == "gpuwire.run kernel"


@pytest.mark.parametrize(
    "traceparent",
    [
        "no trace at all",
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
    ],
)
def test_a_malformed_traceparent_is_ignored_and_the_work_is_done(
    traced: tuple[Collector, ServerProcess], traceparent: str
) -> None:
    collector, server = traced
    good = "00-0af7651916cd43dd8448eb211c8031ff-b7ad6b7169203331-01"

    async def work() -> None:
        async with plain_client(server.ticket) as client:
            for number, text in enumerate((traceparent, good)):
                tasks: list[Task] = [
                    RegisterTensor(
                        StreamId(0),
                        RequestId(10 + number),
                        TensorId(20 + number),
                        TensorType(dt.float32, (1,)),
                        bytes(4),
                    ),
                    SyncStream(None, RequestId(30 + number)),
                ]
                encoded = [encode_task(task) for task in tasks]
                client.control.writer.write_nowait(
                    client.wire.send_tasks(encoded, traceparent=text)
                )
                assert await client.reply(30 + number) == Done(RequestId(30 + number))

    asyncio.run(work())
    known = good.split("-")[1]
    spans = collector.wait("gpuwire.session")
    while not (told := [s for s in spans if s.trace == known and s.name == "gpuwire.session"]):
        spans = collector.wait_more(spans)
    assert told[0].parent == good.split("-")[2]
    ignored = traceparent.split("-")[1:2]
    assert not [span for span in spans if [span.trace] == ignored]


def test_an_unreachable_collector_disturbs_nothing_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    program = """
import gpuwire as gw, numpy as np, sys
with gw.connect() as dev:
    x = gw.ones((4,), device=dev)
    for _ in range(20):
        assert np.asarray(x + x)[0] == 2.0
"""
    with ServerProcess(tmp_path / "server", config=TRACING) as server:
        log = tmp_path / "client.log"
        result = run(
            program,
            server.ticket,
            GPUWIRE_REMOTE__LOGGER__LEVEL="basic",
            GPUWIRE_REMOTE__LOGGER__FILE=str(log),
        )
        assert result.stderr == ""
    lines = [line for line in server.log.read_text().splitlines() if "traces" in line]
    assert len(lines) == 1, lines
    assert "until a collector takes them" in lines[0]
    assert log.read_text().count("until a collector takes them") <= 1


def test_what_is_off_imports_nothing_and_what_is_missing_is_named(server_ticket: str) -> None:
    program = """
import gpuwire as gw, numpy as np, sys
import gpuwire.cli.serve, gpuwire.server, gpuwire.host.worker
with gw.connect() as dev:
    np.asarray(gw.ones((2,), device=dev))
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    run(program, server_ticket, GPUWIRE_REMOTE__TRACING="false")
    program = """
import sys
sys.modules["opentelemetry"] = None
import gpuwire as gw
try:
    gw.connect()
except gw.errors.ConfigError as error:
    assert error.key == "remote.tracing", error
    print(error)
"""
    said = run(program, server_ticket).stdout
    assert "pip install 'gpuwire[otel]'" in said
