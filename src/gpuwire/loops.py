"""The event loop that ours run in, in programs and in processes of a server: uvloop's if it is
installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes a new event loop: `uvloop.new_event_loop` (extra `fast`), else asyncio's own."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = new_event_loop
    return factory
