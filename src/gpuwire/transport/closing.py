"""How the end of a connection becomes an error."""

from __future__ import annotations

from gpuwire.errors import (
    ConnectError,
    ConnectionClosed,
    ConnectTimeout,
    GpuwireError,
    LinkLost,
    ProtocolError,
    QuotaExceeded,
    VersionMismatch,
    WrongFingerprint,
)
from gpuwire.transport.engine import ALPN, CONNECTION_REFUSED, Terminated, TerminationCause
from gpuwire.transport.options import TransportOptions
from gpuwire.transport.trust import PinnedKey, Trust


def close_cause(end: Terminated, options: TransportOptions) -> GpuwireError:
    """Why an established connection is over."""
    said = f"code {end.error_code}" + (f", {end.reason!r}" if end.reason else "")
    if end.cause is TerminationCause.CLOSED_BY_PEER:
        return ConnectionClosed(
            f"the peer closed the connection ({said})",
            error_code=end.error_code,
            reason=end.reason,
            by_peer=True,
        )
    if end.cause is TerminationCause.CLOSED_HERE:
        return ConnectionClosed(
            f"the connection was closed by this side ({said})",
            error_code=end.error_code,
            reason=end.reason,
            by_peer=False,
        )
    if end.cause is TerminationCause.SILENCE:
        seconds = options.idle_timeout_seconds
        return LinkLost(f"nothing was heard of the peer for {seconds:g} s", seconds=seconds)
    return ProtocolError(f"the peer broke the rules of QUIC ({said}); the connection is closed")


def connect_error(
    end: Terminated,
    host: str,
    port: int,
    trust: Trust,
    found: str | None,
    options: TransportOptions,
) -> ConnectError:
    """Why a connection did not come about. `found` is the fingerprint of the server's key."""
    place = f"{host} port {port}"
    if end.cause is TerminationCause.WRONG_KEY and isinstance(trust, PinnedKey):
        return WrongFingerprint(
            f"the server at {place} has another key than the ticket says: wanted "
            f"{trust.fingerprint}, found {found}. Nothing was sent to it. If the server was set up "
            "anew, ask for a new ticket; if not, somebody may be in between",
            host=host,
            port=port,
            wanted=trust.fingerprint,
            found=found,
        )
    if end.cause is TerminationCause.NO_COMMON_VERSION:
        return VersionMismatch(
            f"{place} answers, but does not speak {ALPN}: it is no gpuwire server, or one of "
            "another version",
            host=host,
            port=port,
            ours=ALPN,
            theirs=None,
        )
    if end.cause is TerminationCause.SILENCE:
        seconds = options.idle_timeout_seconds
        return ConnectTimeout(
            f"{place} did not answer within {seconds:g} s: is the server running, and does a "
            "firewall let UDP through to it?",
            host=host,
            port=port,
            seconds=seconds,
        )
    if end.cause is TerminationCause.UNTRUSTED_CERTIFICATE:
        return ConnectError(
            f"the certificate of {place} was not accepted: {end.reason}", host=host, port=port
        )
    by_peer = end.cause is TerminationCause.CLOSED_BY_PEER
    if by_peer and end.error_code == CONNECTION_REFUSED:
        return QuotaExceeded(
            f"the server at {place} has as many connections as it takes: try again later",
            host=host,
            port=port,
            quota="connections",
        )
    by_whom = "ended" if by_peer else "broke"
    return ConnectError(
        f"{place} {by_whom} the handshake (code {end.error_code}, {end.reason!r})",
        host=host,
        port=port,
    )
