"""`traceparent` as W3C Trace Context asks: the malformed is ignored, later versions are read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.telemetry.trace_context import TraceContext, parse_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_the_text_is_that_of_the_standard() -> None:
    context = TraceContext(int(TRACE, 16), int(SPAN, 16), 1)
    assert context.traceparent() == f"00-{TRACE}-{SPAN}-01"
    assert context.is_sampled
    assert not TraceContext(1, 2, 0).is_sampled


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
@settings(derandomize=True, deadline=None)
def test_a_context_comes_back_from_its_text(trace: int, span: int, flags: int) -> None:
    context = TraceContext(trace, span, flags)
    assert parse_traceparent(context.traceparent()) == context


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no trace",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"01-{TRACE}-{SPAN}-01more",
        f"00-{TRACE[:-1]}٣-{SPAN}-01",
    ],
)
def test_what_is_malformed_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_later_version_may_say_more() -> None:
    found = parse_traceparent(f"01-{TRACE}-{SPAN}-01-more-of-it")
    assert found == TraceContext(int(TRACE, 16), int(SPAN, 16), 1)
