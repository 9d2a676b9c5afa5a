"""Which engine a connection stands on."""

from __future__ import annotations

import importlib.util

from gpuwire.errors import ConfigError
from gpuwire.transport import engine_aioquic
from gpuwire.transport.engine import QuicEngine
from gpuwire.transport.identity import Identity
from gpuwire.transport.options import TransportOptions
from gpuwire.transport.trust import Trust


def check_engine(options: TransportOptions) -> None:
    """Raises `ConfigError` where the wanted engine is not installed."""
    if options.engine == "qh3" and importlib.util.find_spec("qh3") is None:
        raise ConfigError(
            'remote.quic_engine is "qh3", which is not installed: pip install "gpuwire[fast]", or '
            'use "auto" or "aioquic"',
            key="remote.quic_engine",
        )


def client_engine(
    host: str, trust: Trust, options: TransportOptions, *, is_loopback: bool
) -> QuicEngine:
    """An engine that has yet to `connect`. `auto` is aioquic: it finds sizes in both directions and
    keeps its rate on a lossy path."""
    if options.engine == "qh3":
        from gpuwire.transport import engine_qh3

        return engine_qh3.client_engine(host, trust, options, is_loopback=is_loopback)
    return engine_aioquic.client_engine(host, trust, options, is_loopback=is_loopback)


def server_engine(
    identity: Identity,
    options: TransportOptions,
    *,
    is_loopback: bool,
    original_connection_id: bytes,
    retry_connection_id: bytes | None,
) -> QuicEngine:
    """An engine for a client's first datagram, which need not come from the same engine."""
    make = engine_aioquic.server_engine
    if options.engine == "qh3":
        from gpuwire.transport import engine_qh3

        return engine_qh3.server_engine(
            identity,
            options,
            is_loopback=is_loopback,
            original_connection_id=original_connection_id,
            retry_connection_id=retry_connection_id,
        )
    return make(
        identity,
        options,
        is_loopback=is_loopback,
        original_connection_id=original_connection_id,
        retry_connection_id=retry_connection_id,
    )
