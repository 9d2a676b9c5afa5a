"""Opening a session: its link, its log, and what it may need later."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwire.client.connecting import Admission, address_of, open_link, reopen_link
from gpuwire.client.session import Session
from gpuwire.client.watching import watch
from gpuwire.config import RemoteConfig
from gpuwire.telemetry.logs import open_logger
from gpuwire.telemetry.tracing import open_tracer
from gpuwire.transport import Ticket

if TYPE_CHECKING:
    from gpuwire.client.tracing import Tracing
    from gpuwire.telemetry.otel import Tracer


async def open_session(
    ticket: Ticket, device: int, config: RemoteConfig, authority: Path | None = None
) -> Session:
    """Opens a session on the running event loop; raises as `connecting.open_link`."""
    logger = open_logger(config.logger, "client")
    tracer = open_tracer(config.tracing, "gpuwire-client", logger, key="remote.tracing")
    try:
        link, admission = await open_link(ticket, device, config, authority)
    except BaseException:
        if tracer is not None:
            await asyncio.to_thread(tracer.close)
        raise
    session = Session(
        link,
        admission,
        config,
        logger,
        address_of(ticket),
        lambda: watch(ticket, config, authority, closely=True),
        lambda resumption, seconds: reopen_link(ticket, resumption, config, seconds, authority),
        None if tracer is None else _tracing(tracer, admission),
    )
    session.start()
    return session


def _tracing(tracer: Tracer, admission: Admission) -> Tracing:
    from gpuwire.client.tracing import Tracing

    return Tracing(tracer, admission.session.hex()[:8], admission.device.name)
