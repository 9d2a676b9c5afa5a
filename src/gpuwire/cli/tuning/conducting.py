"""`gpuwire tune` from its options to its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuwire.cli.tuning.candidates import (
    FLUSH_BYTES_THRESHOLDS,
    FLUSH_THRESHOLDS,
    Candidate,
    Space,
)
from gpuwire.cli.tuning.comparing import Objective
from gpuwire.cli.tuning.measuring import Measurer
from gpuwire.cli.tuning.running import Links, find_links, run
from gpuwire.cli.tuning.search import Outcome, Search
from gpuwire.cli.tuning.state import Settings, State, read_state, replay
from gpuwire.cli.tuning.workloads import Workload, load_workload, standard_workloads
from gpuwire.config import Config
from gpuwire.telemetry.quantities import in_seconds
from gpuwire.transport import Ticket


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be searched."""

    ticket: str
    device: int
    config: Config
    workloads: tuple[Workload, ...]
    objective: Objective
    flush_thresholds: tuple[int, ...]
    flush_bytes_thresholds: tuple[int, ...]
    with_link: bool
    seconds: float
    state: Path | None


@dataclass(frozen=True, slots=True)
class Result:
    """A search at its end."""

    search: Search
    outcome: Outcome
    refused: tuple[str, ...]
    """Ways of sending that do not work here, and why."""
    device: str
    """Name of the adapter."""
    path: str
    """Address, round trip and engine of today's setting."""


def workloads_named(names: Sequence[str]) -> tuple[Workload, ...]:
    """The standard ones by name, others from their scripts; all standard ones if none is named.
    Raises `ArgumentError`."""
    standard = {workload.name: workload for workload in standard_workloads()}
    if not names:
        return tuple(standard.values())
    found = [standard[name] if name in standard else load_workload(name) for name in names]
    return tuple({workload.name: workload for workload in found}.values())


def conduct(request: Request) -> Result:
    """Searches. Raises as `connect` at the start, and as `running.run`."""
    measurer = Measurer(request.ticket, request.device, request.config, request.workloads)
    today = Candidate.of(request.config.remote)
    with measurer.open(today) as opened:
        round_trip = min(opened.ping() for _ in range(5))
        name, path = opened.info.name, opened.path
    links = find_links(measurer) if request.with_link else Links((), ())
    space = Space(
        tuple(sorted({*(request.flush_thresholds or FLUSH_THRESHOLDS)})),
        tuple(sorted({*(request.flush_bytes_thresholds or FLUSH_BYTES_THRESHOLDS)})),
        links.usable,
    )
    settings = _settings(request, today, space)
    state = State(settings=settings)
    search = Search(space, today, request.objective)
    if request.state is not None:
        state = read_state(request.state, settings)
        replay(state, search)
    run(search, measurer, state, request.state, request.seconds)
    reached = f"{path.address}, round trip {in_seconds(round_trip)}, {path.engine}"
    return Result(search, search.outcome(), links.refused, name, reached)


def _settings(request: Request, today: Candidate, space: Space) -> Settings:
    ticket = Ticket.parse(request.ticket)
    return Settings(
        server=f"{ticket.host}:{ticket.port} {ticket.fingerprint or ''}".strip(),
        device=request.device,
        workloads=tuple(workload.identity for workload in request.workloads),
        objective=request.objective,
        today=today,
        space=space,
    )
