"""Driving a search: measure, keep, show how long it will take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from gpuwire.cli.printing import progress_console
from gpuwire.cli.tuning.candidates import DEFAULT, Candidate, links_here
from gpuwire.cli.tuning.formatting import link_name, thresholds_name
from gpuwire.cli.tuning.measuring import Measurer
from gpuwire.cli.tuning.search import Search, Stage
from gpuwire.cli.tuning.state import Run, State, write_state
from gpuwire.client import Device
from gpuwire.errors import ConfigError, ConnectError, NotSupported, SessionError
from gpuwire.transport import PathInfo

RUNS_OF_A_LENGTH = 10
SETTLING_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Links:
    """Ways of sending."""

    usable: tuple[Candidate, ...]
    refused: tuple[str, ...]
    """Why the others are not tried, a sentence each."""


def find_links(measurer: Measurer) -> Links:
    """The ways of sending that work between here and the server, and differ from the default one.
    Raises as `connect` where not even the default one works."""
    with measurer.open(DEFAULT) as device:
        path = _settled(device)
        known = {(path.engine, False, path.datagram_bytes)}
    usable, refused = [], []
    for candidate in links_here():
        try:
            with measurer.open(candidate) as device:
                path = _settled(device)
        except (ConfigError, NotSupported) as error:
            refused.append(f"{link_name(candidate)}: {error}")
            continue
        wants, has = candidate.segmentation_offload, path.offload.state in ("on", "on trial")
        if wants and not has:
            refused.append(f"{link_name(candidate)}: {path.offload.reason}")
        elif (path.engine, has, path.datagram_bytes) not in known:
            known.add((path.engine, has, path.datagram_bytes))
            usable.append(candidate)
    return Links(tuple(usable), tuple(refused))


def _settled(device: Device) -> PathInfo:
    """The path once something long has gone over it: by then it has found its datagram size, and
    whether offload works."""
    device.upload(np.zeros(SETTLING_BYTES, np.uint8))
    device.sync()
    return device.path


def run(
    search: Search, measurer: Measurer, state: State, file: Path | None, seconds: float
) -> State:
    """Measures until the search is at its end, in about `seconds`.

    The state is written to `file` after each run, so that Ctrl-C loses at most one. Raises
    `SessionError` if the server went away, `ArgumentError` if a workload raised.
    """
    ends = time.monotonic() + seconds
    length, until = 0.0, 0
    with _progress(search) as shown:
        try:
            if search.next() is not None:
                shown.say("finding the pace")
                measurer.calibrate(DEFAULT)
            while (candidate := search.next()) is not None:
                if len(state.runs) >= until:
                    # Not for each run: those that are compared should be of one length.
                    until = len(state.runs) + RUNS_OF_A_LENGTH
                    length = max(ends - time.monotonic(), 0.0) / search.runs_left
                shown.say(_describe(search.stage, candidate))
                samples = measurer.measure(candidate, length)
                search.take(samples)
                state = state.model_copy(update={"runs": (*state.runs, Run.of(candidate, samples))})
                if file is not None:
                    write_state(file, state)
                shown.advance(search.runs_left)
        except KeyboardInterrupt:
            typer.echo(f"gpuwire: stopped {_how_far(state, search, file)}", err=True)
            raise
        except (SessionError, ConnectError) as error:
            raise SessionError(
                f"the server went away {_how_far(state, search, file)}: {error}"
            ) from error
    return state


class _Shown:
    """A bar on stderr, if that is a terminal."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._began = time.monotonic()
        self._done = 0

    def say(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def advance(self, left: int) -> None:
        self._done += 1
        seconds = (time.monotonic() - self._began) / self._done * left
        self._progress.update(
            self._task,
            completed=self._done,
            total=self._done + left,
            left=f"{int(seconds) // 60}:{int(seconds) % 60:02} left",
        )


@contextmanager
def _progress(search: Search) -> Iterator[_Shown]:
    columns = (
        BarColumn(),
        TextColumn("{task.completed}/{task.total} runs, {task.fields[left]}"),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=progress_console(), transient=True) as progress:
        task = progress.add_task("", total=search.runs_left, left="…")
        yield _Shown(progress, task)


def _describe(stage: Stage, candidate: Candidate) -> str:
    what = link_name(candidate) if stage == Stage.LINK else thresholds_name(candidate)
    return f"{stage.value}: {what}"


def _how_far(state: State, search: Search, file: Path | None) -> str:
    runs = len(state.runs)
    how = (
        f"the same command with --state {file} goes on from there"
        if file is not None
        else "with --state FILE it could go on from there"
    )
    return f"after {runs} of about {runs + search.runs_left} runs ({how})"
