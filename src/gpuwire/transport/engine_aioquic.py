"""The engine that stands on aioquic."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence

from aioquic.quic import events as quic_events
from aioquic.quic.configuration import QuicConfiguration

from gpuwire.transport.engine import (
    ALPN,
    CERTIFICATE_ALERTS,
    CONNECTION_ID_BYTES,
    HANDSHAKE_FAILURE,
    NO_APPLICATION_PROTOCOL,
    Address,
    ConnectionIdIssued,
    ConnectionIdRetired,
    Datagram,
    Event,
    HandshakeCompleted,
    StreamAcknowledged,
    StreamWasReset,
    StreamWasStopped,
    Terminated,
    TerminationCause,
)
from gpuwire.transport.engine_aioquic_connection import Quic
from gpuwire.transport.engine_aioquic_windows import Arrival
from gpuwire.transport.identity import Identity
from gpuwire.transport.options import SMALLEST_DATAGRAM_BYTES, TransportOptions
from gpuwire.transport.path import RoundTrip
from gpuwire.transport.stateless_reset import ResetTokens, is_reset
from gpuwire.transport.trust import PinnedKey, Trust
from gpuwire.transport.windows import (
    FIRST_CONNECTION_WINDOW_BYTES,
    FIRST_STREAM_WINDOW_BYTES,
    FlowWindows,
)


class AioquicEngine:
    """A `QuicEngine` on aioquic's `QuicConnection`."""

    name = "aioquic"

    def __init__(self, quic: Quic) -> None:
        self._quic = quic
        self._handshake_completed = False
        self._termination_told = False

    @property
    def peer_fingerprint(self) -> str | None:
        return self._quic.peer_fingerprint

    @property
    def connection_id(self) -> bytes:
        return self._quic.host_cid

    @property
    def has_peer(self) -> bool:
        return self._quic._remote_initial_source_connection_id is not None

    def is_reset(self, data: bytes) -> bool:
        return is_reset(data, self._quic.peer_reset_token)

    def connect(self, address: Address, now: float) -> None:
        self._quic.connect(address, now)

    def receive(self, datagrams: Sequence[Datagram], now: float) -> None:
        self._quic.receive_batch(datagrams, now)

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        if not self._quic._network_paths:
            return []
        return self._quic.datagrams_to_send(now)

    @property
    def has_more_to_send(self) -> bool:
        return self._quic.has_more_to_send

    def timer(self) -> float | None:
        if self._quic._close_at is None:
            return None
        return self._quic.get_timer()

    def handle_timer(self, now: float) -> None:
        self._quic.handle_timer(now)

    def events(self) -> Iterator[Event]:
        queue = self._quic._events
        while queue:
            event = self._translate(queue.popleft())
            if event is not None:
                yield event
        progress = self._quic.progress
        if progress:
            self._quic.progress = {}
            for stream_id, (position, is_final) in progress.items():
                yield StreamAcknowledged(stream_id, position, is_final)
        if self._quic.is_over and not self._termination_told:
            self._termination_told = True
            yield self._termination()

    def open_stream(self, *, bidirectional: bool) -> int:
        stream_id = self._quic.get_next_available_stream_id(is_unidirectional=not bidirectional)
        self._quic._get_or_create_stream_for_send(stream_id)
        return stream_id

    def send(self, stream_id: int, data: bytes | memoryview, *, end: bool) -> None:
        self._quic._streams[stream_id].sender.write(data, end)  # type: ignore[arg-type]

    def reset(self, stream_id: int, error_code: int) -> None:
        stream = self._quic._streams.get(stream_id)
        if stream is not None:
            stream.sender.reset(error_code)

    def stop(self, stream_id: int, error_code: int) -> None:
        stream = self._quic._streams.get(stream_id)
        if stream is not None and not stream.receiver.is_finished:
            stream.receiver.stop(error_code)

    def consume(self, stream_id: int, count: int) -> bool:
        return self._quic.consume(stream_id, count)

    def release(self, stream_id: int) -> bool:
        return self._quic.release(stream_id)

    def close(self, error_code: int, reason: str) -> None:
        if self._quic._close_event is None:
            self._quic.cause = TerminationCause.CLOSED_HERE
        self._quic.close(error_code=error_code, reason_phrase=reason)

    def move(self) -> None:
        self._quic.change_connection_id()

    def datagram_refused(self, size: int, now: float) -> None:
        self._quic.datagram_refused(size, now)

    @property
    def unconsumed_bytes(self) -> int:
        return self._quic.unconsumed_bytes

    @property
    def address(self) -> Address:
        return self._quic.get_peer_address()

    @property
    def datagram_bytes(self) -> int:
        return self._quic._max_datagram_size

    @property
    def round_trip(self) -> RoundTrip:
        return self._quic.congestion.round_trip

    @property
    def congestion_window_bytes(self) -> int:
        return self._quic.congestion.congestion_window

    @property
    def flow_windows(self) -> FlowWindows:
        return self._quic.flow_windows

    @property
    def bytes_per_second(self) -> float:
        return self._quic.congestion.bottleneck_rate

    @property
    def datagram_search(self) -> str:
        return self._quic.size_search.story

    @property
    def packets_sent(self) -> int:
        return self._quic.congestion.packets_sent

    @property
    def packets_lost(self) -> int:
        return self._quic.congestion.packets_lost

    @property
    def timeouts_in_a_row(self) -> int:
        return self._quic._loss._pto_count

    def _translate(self, event: quic_events.QuicEvent | Arrival) -> Event | None:
        if isinstance(event, Arrival):
            return self._quic.arrived(event)
        if isinstance(event, quic_events.HandshakeCompleted):
            if event.alpn_protocol != ALPN:
                self._quic.cause = TerminationCause.NO_COMMON_VERSION
                self._quic.close(NO_APPLICATION_PROTOCOL, 0, f"only {ALPN} is spoken here")
                return None
            self._handshake_completed = True
            return HandshakeCompleted()
        if isinstance(event, quic_events.StreamReset):
            return StreamWasReset(event.stream_id, event.error_code)
        if isinstance(event, quic_events.StopSendingReceived):
            return StreamWasStopped(event.stream_id, event.error_code)
        if isinstance(event, quic_events.ConnectionIdIssued):
            return ConnectionIdIssued(event.connection_id)
        if isinstance(event, quic_events.ConnectionIdRetired):
            return ConnectionIdRetired(event.connection_id)
        return None

    def _termination(self) -> Terminated:
        close = self._quic._close_event
        assert close is not None
        cause = self._quic.cause
        if cause is None:
            is_trust = self._quic._is_client and close.error_code in CERTIFICATE_ALERTS
            cause = (
                TerminationCause.UNTRUSTED_CERTIFICATE
                if is_trust
                else TerminationCause.BROKEN_RULES
            )
        refusals = (NO_APPLICATION_PROTOCOL, HANDSHAKE_FAILURE)
        if (
            cause is TerminationCause.CLOSED_BY_PEER
            and not self._handshake_completed
            and close.error_code in refusals
        ):
            cause = TerminationCause.NO_COMMON_VERSION
        return Terminated(cause, close.error_code, close.reason_phrase)


def client_engine(
    host: str, trust: Trust, options: TransportOptions, *, is_loopback: bool
) -> AioquicEngine:
    """An engine that has yet to `connect`."""
    configuration = _configuration(options, is_client=True)
    pinned = None
    if isinstance(trust, PinnedKey):
        pinned = trust.fingerprint
        configuration.verify_mode = ssl.CERT_NONE
    else:
        configuration.verify_mode = ssl.CERT_REQUIRED
        configuration.cafile = str(trust.path)
        configuration.server_name = trust.server_name or host
    return AioquicEngine(
        Quic(
            configuration,
            options,
            pinned=pinned,
            largest_datagram_bytes=options.largest_datagram_bytes(is_loopback=is_loopback),
        )
    )


def server_engine(
    identity: Identity,
    options: TransportOptions,
    *,
    is_loopback: bool,
    original_connection_id: bytes,
    retry_connection_id: bytes | None,
) -> AioquicEngine:
    """An engine for a client's first datagram. `original_connection_id` is what the client first
    chose for the server, `retry_connection_id` what a Retry told it to use instead."""
    configuration = _configuration(options, is_client=False)
    configuration.certificate = identity.certificate
    configuration.certificate_chain = list(identity.chain)
    configuration.private_key = identity.key
    quic = Quic(
        configuration,
        options,
        largest_datagram_bytes=options.largest_datagram_bytes(is_loopback=is_loopback),
        original_destination_connection_id=original_connection_id,
        retry_source_connection_id=retry_connection_id,
    )
    quic.use_reset_tokens(ResetTokens(identity).token)
    return AioquicEngine(quic)


def _configuration(options: TransportOptions, *, is_client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        alpn_protocols=[ALPN],
        connection_id_length=CONNECTION_ID_BYTES,
        idle_timeout=options.idle_timeout_seconds,
        is_client=is_client,
        max_data=min(FIRST_CONNECTION_WINDOW_BYTES, options.connection_window_bytes),
        max_stream_data=min(FIRST_STREAM_WINDOW_BYTES, options.stream_window_bytes),
        max_datagram_size=SMALLEST_DATAGRAM_BYTES,
    )
