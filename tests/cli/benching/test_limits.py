"""What limits, from who was busy."""

from __future__ import annotations

import pytest

from gpuwire.cli.benching.limits import Busy, Limit, Place, find_limit

REMOTE = Place(is_one_machine=False, cores=8, is_software=False)
IDLE = Busy(client=0.1, front=0.1, host=0.1, waited=0.02, gpu=0.1)


def busy(**of: float | None) -> Busy:
    """Nobody, but who is named."""
    return Busy(**{**{name: getattr(IDLE, name) for name in Busy.__slots__}, **of})


@pytest.mark.parametrize(
    ("who", "place", "limit", "words"),
    [
        (busy(client=0.97), REMOTE, Limit.CLIENT_CPU, "0.97 cores busy here"),
        (busy(front=0.9), REMOTE, Limit.SERVER_CPU, "network process"),
        (busy(host=1.1, client=0.85), REMOTE, Limit.SERVER_CPU, "the device's process"),
        (busy(gpu=0.95), REMOTE, Limit.GPU, "95%"),
        (IDLE, REMOTE, Limit.LINK, "nobody was busy"),
        (busy(waited=0.9), REMOTE, Limit.OTHER_PROGRAMS, "0.90 waited for"),
        (busy(waited=0.4), REMOTE, Limit.LINK, "nobody was busy"),
        (busy(front=None, host=None, gpu=None), REMOTE, Limit.LINK_OR_SERVER, "does not tell"),
        (busy(client=0.9, front=None, host=None, gpu=None), REMOTE, Limit.CLIENT_CPU, "0.90"),
        (busy(waited=None), REMOTE, Limit.LINK, "nobody"),
        (
            busy(client=0.7, front=0.7, host=0.3, waited=0.2),
            Place(is_one_machine=True, cores=2, is_software=False),
            Limit.SHARED_CPU,
            "1.7 of 2 cores",
        ),
        (
            busy(client=0.2, front=0.2, host=0.1, waited=0.4),
            Place(is_one_machine=True, cores=2, is_software=False),
            Limit.OTHER_PROGRAMS,
            "0.20 cores used here, and 0.40 waited for",
        ),
        (
            busy(host=1.8, gpu=1.0),
            Place(is_one_machine=False, cores=8, is_software=True),
            Limit.SERVER_CPU,
            "the adapter is a software one",
        ),
    ],
)
def test_who_was_busiest_limits_and_the_link_by_exclusion(
    who: Busy, place: Place, limit: Limit, words: str
) -> None:
    finding = find_limit(who, place)
    assert finding.limit == limit
    assert words in finding.reason
