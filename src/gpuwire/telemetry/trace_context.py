"""Which trace a piece of work belongs to, as W3C Trace Context writes it.

https://www.w3.org/TR/trace-context/, section 3.2. Of it we carry `traceparent`; `tracestate`, which
vendors may drop, stays behind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SAMPLED = 0x01
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span in a trace: that of the caller, to whoever works for it."""

    trace_id: int
    """128 bits, never 0."""
    span_id: int
    """64 bits, never 0."""
    flags: int
    """8 bits, of which `SAMPLED` says that the caller's span is kept."""

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    def traceparent(self) -> str:
        """Its text, in version 00."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def parse_traceparent(text: str) -> TraceContext | None:
    """The context of a text; None for one that is malformed, which is to be ignored. A later
    version may have more after the four fields that we know, version 00 may not."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    context = TraceContext(int(trace, 16), int(span, 16), int(flags, 16))
    return context if context.trace_id and context.span_id else None
