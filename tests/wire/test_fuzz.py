"""A fixed part of `property/fuzz_wire.py`, which throws 100,000 damaged frames when run by hand."""

from __future__ import annotations

from property.fuzz_wire import PEAK_BYTES, run


def test_damaged_frames_meet_typed_errors_in_bounded_memory() -> None:
    outcome = run(2500, seed=1)
    # It must reach all layers: a fuzzer whose every frame falls at the first check tests nothing.
    assert outcome.refused["MalformedMessage"] > 500
    assert outcome.refused["LimitBreached"] > 100
    assert outcome.refused["UnexpectedMessage"] > 100
    assert outcome.unharmed > 500
    assert outcome.items > 500
    assert outcome.graphs > 50
    assert outcome.peak_bytes < PEAK_BYTES
