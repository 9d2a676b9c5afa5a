"""When the poller asks the device: soon after work has ended, and not much more often than that."""

from __future__ import annotations

import pytest

from gpuwire.compute.polling import LAST_PAUSE_SECONDS, Pace


class Waits:
    """Waits one after the other, on a clock of their own."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.now = 100.0

    def wait(self, seconds: float) -> tuple[float, int]:
        """For work of so many seconds: how late its end is noticed, after how many questions."""
        began, questions = self.now, 1
        self.pace.begin(began)
        while self.now - began < seconds:
            self.now += self.pace.pause(self.now)
            questions += 1
        self.pace.ended(self.now)
        return self.now - began - seconds, questions


@pytest.mark.parametrize("seconds", (50e-6, 300e-6, 1.5e-3, 12e-3, 0.3))
def test_work_that_takes_as_long_as_before_is_noticed_at_its_end(seconds: float) -> None:
    waits = Waits()
    first, asked = waits.wait(seconds)
    assert first <= max(30e-6, min(0.35 * seconds, LAST_PAUSE_SECONDS))
    for _ in range(3):
        waits.wait(seconds)
    for varied in (1.0, 1.02, 0.98, 1.05, 0.95):
        late, again = waits.wait(varied * seconds)
        assert late <= min(max(30e-6, seconds / 30), LAST_PAUSE_SECONDS)
        assert again <= max(1.1 * asked, 18)


def test_what_is_short_after_something_long_is_noticed_soon() -> None:
    waits = Waits()
    waits.wait(1.0)
    late, _ = waits.wait(10e-6)
    assert late <= 200e-6
    late, _ = waits.wait(10e-6)
    assert late <= 60e-6


def test_what_is_long_after_something_short_costs_few_questions() -> None:
    waits = Waits()
    waits.wait(10e-6)
    late, asked = waits.wait(0.1)
    assert late <= LAST_PAUSE_SECONDS
    assert asked <= 220
