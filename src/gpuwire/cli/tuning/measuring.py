"""Measuring candidates: a session of its own for each run, with its own configuration."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuwire.cli.tuning.candidates import Candidate
from gpuwire.cli.tuning.comparing import Sample
from gpuwire.cli.tuning.workloads import Work, Workload, failed
from gpuwire.client import Device, connect
from gpuwire.config import Config

ANSWERS_LEAST = 3
ANSWERS_MOST = 200
THROUGHPUT_SHARE = 0.6
"""Of a run's time; the rest is for answers."""

WARM_UP_SECONDS = 0.05
"""The path finds its datagram size, the device its kernels."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a workload takes at the default setting, in seconds."""

    step: float
    answer: float


@dataclass(frozen=True, slots=True)
class Amount:
    """How much of a workload one run does."""

    steps: int
    answers: int


class Measurer:
    """Runs workloads against one device of one server."""

    def __init__(
        self, ticket: str, device: int, config: Config, workloads: Sequence[Workload]
    ) -> None:
        self.workloads = tuple(workloads)
        self._ticket = ticket
        self._device = device
        self._config = config
        self._paces: dict[str, Pace] = {}
        self._overhead = 0.0

    def open(self, candidate: Candidate) -> Device:
        """A session with a candidate's setting, to be closed by the caller. Raises as `connect`."""
        remote = candidate.applied_to(self._config.remote)
        config = self._config.model_copy(update={"remote": remote})
        return connect(self._ticket, device=self._device, config=config)

    def calibrate(self, candidate: Candidate) -> None:
        """Takes each workload's time, so that runs can be cut to length."""
        with self.open(candidate) as device:
            for workload in self.workloads:
                try:
                    work = workload.prepare(device)
                    _warm_up(work, device)
                    self._paces[workload.name] = _pace(work, device)
                except Exception as error:
                    raise failed(workload, error) from error
        began = time.perf_counter()
        self.measure(candidate, 0.0)
        spent = sum(pace.step + ANSWERS_LEAST * pace.answer for pace in self._paces.values())
        self._overhead = max(time.perf_counter() - began - spent, 0.0)

    def measure(self, candidate: Candidate, seconds: float) -> dict[str, Sample]:
        """One run of every workload, `seconds` long in all as far as steps can be cut. Raises the
        session's error if it ended, `ArgumentError` if a workload raised."""
        share = max(seconds - self._overhead, 0.0) / len(self.workloads)
        samples = {}
        with self.open(candidate) as device:
            for workload in self.workloads:
                amount = amount_of(self._paces[workload.name], share)
                try:
                    samples[workload.name] = _sample(workload, device, amount)
                except Exception as error:
                    raise failed(workload, error) from error
        return samples


def amount_of(pace: Pace, seconds: float) -> Amount:
    """What fits into so many seconds; never nothing."""
    steps = int(seconds * THROUGHPUT_SHARE / pace.step)
    answers = int(seconds * (1 - THROUGHPUT_SHARE) / pace.answer)
    return Amount(max(steps, 1), min(max(answers, ANSWERS_LEAST), ANSWERS_MOST))


def _sample(workload: Workload, device: Device, amount: Amount) -> Sample:
    work = workload.prepare(device)
    _warm_up(work, device)
    return Sample(
        throughput=workload.amount * amount.steps / _steps_seconds(work, device, amount.steps),
        latency=statistics.median(_seconds(work.answer) for _ in range(amount.answers)),
    )


def _warm_up(work: Work, device: Device) -> None:
    until = time.perf_counter() + WARM_UP_SECONDS
    work.answer()
    while True:
        work.step()
        device.sync()
        if time.perf_counter() > until:
            return


def _pace(work: Work, device: Device) -> Pace:
    steps, seconds = 1, _steps_seconds(work, device, 1)
    while seconds < WARM_UP_SECONDS:
        steps *= 2
        seconds = _steps_seconds(work, device, steps)
    return Pace(seconds / steps, statistics.median(_seconds(work.answer) for _ in range(5)))


def _steps_seconds(work: Work, device: Device, steps: int) -> float:
    def all_steps() -> None:
        for _ in range(steps):
            work.step()
        device.sync()

    return _seconds(all_steps)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
