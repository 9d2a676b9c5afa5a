"""When compressing pays: the decision, without a link."""

from __future__ import annotations

import pytest

from gpuwire.bulk.sending import (
    FAST_BYTES_PER_SECOND,
    LEARNING_BYTES,
    LEARNING_SECONDS,
    BulkLink,
    Mode,
)
from gpuwire.wire.compression import PieceKind, Trial

HALF = Trial(PieceKind.ZSTD, 0.5, 4e-9)
"""Half as long, at 250 MB/s there and back."""
SMALLER = Trial(PieceKind.GROUPED, 0.4, 12e-9)
NOTHING = Trial(PieceKind.ZSTD, 1.0, 0.5e-9)


def link(mode: Mode, megabytes_per_second: float) -> BulkLink:
    made = BulkLink(mode, lambda: megabytes_per_second * 1e6)
    made.learned(LEARNING_BYTES, 0.0)
    return made


@pytest.mark.parametrize(
    ("megabytes_per_second", "kind"),
    [
        (1, PieceKind.GROUPED),
        (6, PieceKind.GROUPED),
        (15, PieceKind.ZSTD),
        (50, PieceKind.ZSTD),
        (119, PieceKind.STORED),
    ],
)
def test_what_ends_soonest_depends_on_the_link(
    megabytes_per_second: float, kind: PieceKind
) -> None:
    """By hand, at 15 MB/s: 66.7 ns a byte as it is, 37.3 the one way, 38.7 the other."""
    assert link("auto", megabytes_per_second).best((HALF, SMALLER)) is kind


def test_what_does_not_get_smaller_is_sent_as_it_is() -> None:
    assert link("auto", 1).best((NOTHING,)) is PieceKind.STORED


def test_a_gain_that_the_estimates_do_not_bear_is_none() -> None:
    barely = Trial(PieceKind.ZSTD, 0.96, 0.0)
    assert link("auto", 1).best((barely,)) is PieceKind.STORED


def test_fast_links_are_left_alone() -> None:
    fast = FAST_BYTES_PER_SECOND / 1e6
    assert link("auto", fast - 1).may_compress
    assert not link("auto", fast + 1).may_compress
    assert not link("off", 1).may_compress
    assert link("on", fast + 1).may_compress
    assert link("on", fast + 1).best((HALF, SMALLER)) is PieceKind.GROUPED


def test_nothing_is_known_before_enough_has_arrived_or_taken_long() -> None:
    rate = 1e6
    made = BulkLink("auto", lambda: rate)
    made.learned(LEARNING_BYTES - 1, 0.01)
    assert not made.is_rate_known
    made.learned(1, 0.01)
    assert made.is_rate_known
    made.forget_rate()
    assert not made.is_rate_known
    made.learned(1, LEARNING_SECONDS)
    assert made.is_rate_known
    assert BulkLink("auto", lambda: 0.0).best((HALF,)) is PieceKind.STORED
