"""A search on disk: enough to take it up where it was stopped.

The file holds what was searched and every measurement in order; a search that is handed the same
measurements again stands where it stood. It holds no token.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuwire.cli.tuning.candidates import Candidate, Space
from gpuwire.cli.tuning.comparing import Objective, Sample, Samples
from gpuwire.cli.tuning.search import Search
from gpuwire.errors import ArgumentError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Settings(_Strict):
    """What was searched. A search may only be taken up with the same."""

    server: str
    """Address and key fingerprint."""
    device: int
    workloads: tuple[str, ...]
    """Names; a user's own with its file's hash."""
    objective: Objective
    today: Candidate
    space: Space


class Measured(_Strict):
    """One run of every workload."""

    throughput: Positive
    latency: Positive


class Run(_Strict):
    """One candidate, measured once."""

    candidate: Candidate
    workloads: dict[str, Measured]

    @classmethod
    def of(cls, candidate: Candidate, samples: Samples) -> Run:
        return cls(
            candidate=candidate,
            workloads={
                name: Measured(throughput=sample.throughput, latency=sample.latency)
                for name, sample in samples.items()
            },
        )

    def samples(self) -> dict[str, Sample]:
        return {
            name: Sample(measured.throughput, measured.latency)
            for name, measured in self.workloads.items()
        }


class State(_Strict):
    """The file."""

    version: Literal[1] = 1
    settings: Settings
    runs: tuple[Run, ...] = ()


def read_state(file: Path, settings: Settings) -> State:
    """What the file holds; a fresh state if it does not exist. Raises `ArgumentError` where it
    cannot be read, or is of a search for something else, and names the difference."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return State(settings=settings)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ArgumentError(f"{file}: cannot be read: {reason}") from error
    try:
        state = State.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ArgumentError(
            f"{file} is no state of a search: {place}: {first['msg']}; remove it to start anew"
        ) from None
    for name in Settings.model_fields:
        if getattr(state.settings, name) != getattr(settings, name):
            raise ArgumentError(
                f"{file} is of a search with another {name.replace('_', ' ')} than this one: name "
                "another file, or remove it to start anew"
            )
    return state


def write_state(file: Path, state: State) -> None:
    """Replaces the file in one step: a stop at any moment leaves the old or the new one. Raises
    `ArgumentError`."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(state.model_dump_json() + "\n", encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ArgumentError(f"{file}: cannot be written: {error.strerror}") from error


def replay(state: State, search: Search) -> None:
    """Brings a fresh search to where the state was left. Raises `ArgumentError` if the runs are not
    those that this version would have made."""
    for run in state.runs:
        if search.next() != run.candidate:
            raise ArgumentError(
                "the state was made by another version of gpuwire, which searched in another "
                "order: remove the file to start anew"
            )
        search.take(run.samples())
