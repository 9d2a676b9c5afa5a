"""Spans of the frames that a session's front takes in, for clients that trace."""

from __future__ import annotations

from gpuwire.host.channel_messages import Traced
from gpuwire.telemetry.otel import CONSUMER, Facts, Span, Tracer
from gpuwire.telemetry.trace_context import parse_traceparent
from gpuwire.wire.messages import TaskFrame

_LOW = (1 << 64) - 1


class FrameTracing:
    """Those of one session."""

    def __init__(self, tracer: Tracer, session: str, device: int) -> None:
        """`session` is its name, as the log has it."""
        self._tracer = tracer
        self._facts: Facts = {"session": session, "device_index": device}

    def begin(self, frame: TaskFrame) -> Span | None:
        """The span of a frame that has come, in its sender's trace; None where that is malformed,
        or nobody keeps it."""
        context = parse_traceparent(frame.traceparent)
        if context is None or not context.is_sampled:
            return None
        facts: Facts = {
            **self._facts,
            "frame": frame.sequence,
            "tasks": frame.count,
            "bytes": len(frame.tasks),
        }
        return self._tracer.begin("gpuwire.session", context, facts, kind=CONSUMER)


def traced(session: int, span: Span) -> Traced:
    """What tells the device host that a session's next frame belongs to a span."""
    context = span.context
    return Traced(
        session, context.trace_id >> 64, context.trace_id & _LOW, context.span_id, context.flags
    )
