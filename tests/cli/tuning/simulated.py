"""A machine that is not there: what each setting would measure, with noise and drift."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from gpuwire.cli.tuning.candidates import Candidate
from gpuwire.cli.tuning.comparing import Sample, Samples
from gpuwire.cli.tuning.search import Search

WORKLOADS = ("chain", "upload")


class Machine:
    """Measures a candidate: its own `effect` (an advantage), one machine's drift, and noise."""

    def __init__(
        self,
        effect: Callable[[Candidate], float],
        *,
        noise: float,
        drift: float = 0.0,
        seed: int = 0,
    ) -> None:
        """`noise` is the deviation of a logarithm; `drift` how far the machine's speed swings."""
        self.measured: list[Candidate] = []
        self._effect = effect
        self._noise = noise
        self._drift = drift
        self._random = random.Random(seed)

    def measure(self, candidate: Candidate) -> Samples:
        swing = self._drift * math.sin(len(self.measured) / 9)
        self.measured.append(candidate)
        speed = self._effect(candidate) + swing
        return {
            name: Sample(
                throughput=1e4 * math.exp(speed + self._random.gauss(0, self._noise)),
                latency=1e-3 * math.exp(-speed + self._random.gauss(0, self._noise)),
            )
            for name in WORKLOADS
        }


def searched(search: Search, machine: Machine) -> Search:
    """A search at its end."""
    while (candidate := search.next()) is not None:
        search.take(machine.measure(candidate))
    return search
