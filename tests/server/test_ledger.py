"""The books of a bounded store."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.server.ledger import Ledger


def book(limit: int, *sizes: int) -> tuple[Ledger[int], list[int]]:
    """Entries 0, 1, … of those sizes, and what is evicted."""
    evicted: list[int] = []
    ledger: Ledger[int] = Ledger(limit, evicted.append)
    for key, size in enumerate(sizes):
        assert ledger.reserve(size)
        ledger.add(key, size)
    return ledger, evicted


def test_what_was_used_least_lately_goes_first() -> None:
    ledger, evicted = book(100, 40, 40, 20)
    ledger.use(0)
    assert ledger.reserve(41)
    assert evicted == [1, 2]
    assert 0 in ledger and len(ledger) == 1 and ledger.used_bytes == 81


def test_what_is_in_use_stays_and_nothing_goes_in_vain() -> None:
    ledger, evicted = book(100, 40, 40)
    ledger.pin(0)
    assert not ledger.reserve(61)
    assert evicted == [] and ledger.used_bytes == 80
    assert ledger.reserve(60)
    assert evicted == [1]
    ledger.release(60)
    ledger.unpin(0)
    assert ledger.reserve(100) and evicted == [1, 0]


def test_a_bound_of_nothing_takes_nothing() -> None:
    ledger, _ = book(0)
    assert not ledger.reserve(1)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(("come", "settle", "use", "pin", "drop")), st.integers(0, 40)),
        max_size=60,
    )
)
def test_it_never_holds_more_than_its_bound(steps: list[tuple[str, int]]) -> None:
    held: dict[int, int] = {}
    coming: list[int] = []
    pinned: set[int] = set()
    ledger: Ledger[int] = Ledger(100, held.__delitem__)
    for step, number in steps:
        if step == "come" and ledger.reserve(number):
            coming.append(number)
        elif step == "settle" and coming:
            size = coming.pop()
            key = len(held) + 1000 * len(steps) + number
            if key in held:
                ledger.release(size)
            else:
                held[key] = size
                ledger.add(key, size)
        elif step == "use" and held:
            ledger.use(list(held)[number % len(held)])
        elif step == "pin" and held:
            key = list(held)[number % len(held)]
            if key not in pinned:
                ledger.pin(key)
                pinned.add(key)
        elif step == "drop" and coming:
            ledger.release(coming.pop())
        assert ledger.used_bytes == sum(held.values()) + sum(coming) <= 100
        assert pinned <= held.keys()
