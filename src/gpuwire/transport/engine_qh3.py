"""The engine that stands on qh3, whose protocol core is native code: half the time a packet.

Checked against qh3 2.1, some of whose private attributes are used here and nowhere else. What its
core does by itself, and differently from `AioquicEngine`:

- it extends the peer's windows as events are taken out of it, whoever reads them. So events stay
  inside while the program has `connection_window_bytes` / 2 unread; that is back-pressure on the
  connection as a whole, where the other engine has it stream by stream;
- its windows stay as they were at the start: half of the options' most;
- it copies what it is given, late (`SendingStreams`);
- it probes sizes from the client's side and up to 1,472 bytes, or begins at a size it is told (on
  loopback). It does not come down again: a connection that stands still with datagrams larger than
  1,200 bytes is given up as silent, and the session resumes on a new one;
- its congestion control is its own, and takes loss for congestion;
- it sees the server's key once the handshake is over, not before the client's last word in it.
  Nothing else is said before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from cryptography import x509
from qh3.quic import events as quic_events

from gpuwire.transport.congestion import NEAR_SECONDS
from gpuwire.transport.engine import (
    ALPN,
    CERTIFICATE_ALERTS,
    HANDSHAKE_FAILURE,
    NO_APPLICATION_PROTOCOL,
    STREAM_LIMIT_ERROR,
    Address,
    ConnectionIdIssued,
    ConnectionIdRetired,
    Datagram,
    Event,
    HandshakeCompleted,
    StreamData,
    StreamWasReset,
    StreamWasStopped,
    Terminated,
    TerminationCause,
)
from gpuwire.transport.engine_qh3_connection import client_quic, server_quic
from gpuwire.transport.engine_qh3_sending import UNIDIRECTIONAL, SendingStreams
from gpuwire.transport.fingerprints import fingerprint_of
from gpuwire.transport.identity import Identity
from gpuwire.transport.options import SMALLEST_DATAGRAM_BYTES, TransportOptions
from gpuwire.transport.path import RoundTrip, RoundTrips
from gpuwire.transport.trust import PinnedKey, Trust
from gpuwire.transport.windows import FlowWindows

BURST_BYTES = 256 * 1024
STANDSTILL_TIMEOUTS = 6
"""Probe timeouts in a row after which large datagrams are blamed."""

MOST_UNRELEASED_STREAMS = 4_096
"""The core lets the peer open a stream for each that has ended, read or not. Holding events back
would hold control back with them, so a peer that goes so far is cut off."""

NO_ROOM = "packet builder capacity exhausted"


class Qh3Engine:
    """A `QuicEngine` on qh3's `QuicConnection`."""

    name = "qh3"

    def __init__(self, quic: Any, options: TransportOptions, pinned: str | None = None) -> None:
        """`quic` is a `QuicConnection`; `pinned` the fingerprint that the server must show."""
        self._quic = quic
        self._pinned = pinned
        self._window = options.connection_window_bytes // 2
        self._drain_core = self._quic._drain_core
        # The methods that receive call it.
        self._quic._drain_core = self._drain
        self._sending = SendingStreams(quic)
        self._unconsumed = 0
        self._unreleased: set[int] = set()
        self._highest_arrival = -1
        self._is_held = False
        self._trips = RoundTrips()
        self._last_trip: float | None = None
        self._address: Address = ("", 0)
        self._handshake_completed = False
        self._cause: TerminationCause | None = None
        self._end: tuple[int, str] | None = None
        self._closing_sent = False
        self._is_over = False
        self._more = False
        self.packets_sent = 0

    # --- Facts --------------------------------------------------------------------------------

    def is_reset(self, data: bytes) -> bool:
        return False  # Its core keeps the tokens to itself: silence says the same, later.

    @property
    def peer_fingerprint(self) -> str | None:
        certificate = self._quic.get_peercert()
        if certificate is None:
            return None
        try:
            return fingerprint_of(
                x509.load_der_x509_certificate(certificate.public_bytes()).public_key()
            )
        except ValueError:
            return "a key of an unknown kind"

    @property
    def connection_id(self) -> bytes:
        return bytes(self._quic.host_cid)

    @property
    def has_peer(self) -> bool:
        core = self._quic._core
        return core is not None and bool(core.received_authenticated_packet)

    @property
    def has_more_to_send(self) -> bool:
        return self._more

    @property
    def unconsumed_bytes(self) -> int:
        return self._unconsumed

    @property
    def address(self) -> Address:
        core = self._quic._core
        return self._address if core is None else core.active_path[2]

    @property
    def datagram_bytes(self) -> int:
        core = self._quic._core
        return SMALLEST_DATAGRAM_BYTES if core is None else int(core.active_path[5])

    @property
    def datagram_search(self) -> str:
        started = self._quic.configuration.max_datagram_size
        if started > SMALLEST_DATAGRAM_BYTES:
            return "loopback takes it"
        return "every path takes it" if self.datagram_bytes == started else "qh3 probed it"

    @property
    def round_trip(self) -> RoundTrip:
        return self._trips.summary

    @property
    def congestion_window_bytes(self) -> int:
        core = self._quic._core
        return 0 if core is None else int(core.congestion_window)

    @property
    def flow_windows(self) -> FlowWindows:
        configuration = self._quic.configuration
        return FlowWindows(configuration.max_stream_data, configuration.max_data)

    @property
    def bytes_per_second(self) -> float:
        # The core keeps no rate; a window for each round trip is the most that it lets out.
        trip = self._trips.smoothed
        return self.congestion_window_bytes / trip if trip else 0.0

    @property
    def packets_lost(self) -> int:
        core = self._quic._core
        return 0 if core is None else int(core.loss_total)

    @property
    def timeouts_in_a_row(self) -> int:
        core = self._quic._core
        return 0 if core is None else int(core.pto_count)

    # --- Time and datagrams -------------------------------------------------------------------

    def connect(self, address: Address, now: float) -> None:
        self._address = address
        self._quic.connect(address, now)

    def receive(self, datagrams: Sequence[Datagram], now: float) -> None:
        for address, group in groupby(datagrams, key=lambda datagram: datagram[1]):
            self._address = address if self._quic._core is None else self._address
            self._quic.receive_many_datagrams([data for data, _ in group], address, now)
        core = self._quic._core
        if core is not None and core.latest_rtt is not None and core.latest_rtt != self._last_trip:
            self._last_trip = core.latest_rtt
            self._trips.add(core.latest_rtt)

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        core = self._quic._core
        self._more = False
        if core is None or self._is_over:
            return []
        if self._is_held and self._unconsumed < self._window:
            self._drain()
        datagrams: list[Datagram] = []
        left = BURST_BYTES
        is_near = self._trips.minimum is not None and self._trips.minimum < NEAR_SECONDS
        while left > 0:
            if self._end is None:
                self._sending.feed(core, is_near=is_near)
            try:
                transmit = core.poll_transmit(now)
            except RuntimeError as error:
                # To an address that is not proven yet three times what it sent may be sent; where
                # that ends within a packet the core has no other word for it.
                if NO_ROOM not in str(error):
                    raise
                break
            if transmit is None:
                break
            datagrams.append((transmit[0], transmit[1]))
            left -= len(transmit[0])
        else:
            self._more = True
        self.packets_sent += len(datagrams)
        if self._end is not None:
            self._closing_sent = True
        return datagrams

    def timer(self) -> float | None:
        due: float | None = self._quic.get_timer()
        return due

    def handle_timer(self, now: float) -> None:
        self._quic.handle_timer(now)
        if (
            self.timeouts_in_a_row >= STANDSTILL_TIMEOUTS
            and self.datagram_bytes > SMALLEST_DATAGRAM_BYTES
        ):
            self._terminate(TerminationCause.SILENCE, 0, "nothing is acknowledged any more")

    def events(self) -> Iterator[Event]:
        queue = self._quic._events
        while queue:
            event = self._translate(queue.popleft())
            if event is not None:
                yield event
        core = self._quic._core
        if core is not None and not self._is_over:
            yield from self._sending.acknowledged(core)
        self._look_for_the_end()
        if self._end is not None and self._closing_sent and not self._is_over:
            self._is_over = True
            assert self._cause is not None
            yield Terminated(self._cause, *self._end)

    # --- Commands -----------------------------------------------------------------------------

    def open_stream(self, *, bidirectional: bool) -> int:
        stream_id: int = self._quic._open_stream(is_unidirectional=not bidirectional)
        return stream_id

    def send(self, stream_id: int, data: bytes | memoryview, *, end: bool) -> None:
        self._sending.send(stream_id, data, end=end)

    def reset(self, stream_id: int, error_code: int) -> None:
        if self._sending.give_up(stream_id) and self._end is None:
            self._quic.reset_stream(stream_id, error_code)

    def stop(self, stream_id: int, error_code: int) -> None:
        if self._end is None:
            self._quic.stop_stream(stream_id, error_code)

    def consume(self, stream_id: int, count: int) -> bool:
        self._unconsumed -= count
        return self._is_held and self._unconsumed < self._window

    def release(self, stream_id: int) -> bool:
        self._unreleased.discard(stream_id)
        return False

    def close(self, error_code: int, reason: str) -> None:
        if self._end is None:
            self._quic.close(error_code, None, reason)
            self._cause, self._end = TerminationCause.CLOSED_HERE, (error_code, reason)

    def move(self) -> None:
        if self._end is None:
            self._quic.change_connection_id()

    def datagram_refused(self, size: int, now: float) -> None:
        """The core finds out by the loss."""

    # --- Inside -------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Takes events out of the core, unless the program has too much unread."""
        self._is_held = self._unconsumed >= self._window and self._quic._close_event is None
        if not self._is_held:
            self._drain_core()

    def _translate(self, event: Any) -> Event | None:
        if isinstance(event, quic_events.StreamDataReceived):
            self._unconsumed += len(event.data)
            self._note_arrival(event.stream_id)
            return StreamData(event.stream_id, (event.data,), event.end_stream)
        if isinstance(event, quic_events.HandshakeCompleted):
            return self._judge_handshake(event.alpn_protocol)
        if isinstance(event, quic_events.StreamReset):
            self._note_arrival(event.stream_id)
            return StreamWasReset(event.stream_id, event.error_code)
        if isinstance(event, quic_events.StopSendingReceived):
            self._sending.give_up(event.stream_id)
            return StreamWasStopped(event.stream_id, event.error_code)
        if isinstance(event, quic_events.ConnectionIdIssued):
            return ConnectionIdIssued(event.connection_id)
        if isinstance(event, quic_events.ConnectionIdRetired):
            return ConnectionIdRetired(event.connection_id)
        return None

    def _note_arrival(self, stream_id: int) -> None:
        """Counts a bulk stream of the peer's until it is released."""
        if stream_id <= self._highest_arrival or not stream_id & UNIDIRECTIONAL:
            return
        self._highest_arrival = stream_id
        self._unreleased.add(stream_id)
        if len(self._unreleased) > MOST_UNRELEASED_STREAMS and self._end is None:
            self.close(STREAM_LIMIT_ERROR, "more streams than are read")
            self._cause = TerminationCause.BROKEN_RULES

    def _judge_handshake(self, protocol: str | None) -> Event | None:
        if protocol != ALPN:
            self.close(NO_APPLICATION_PROTOCOL, f"only {ALPN} is spoken here")
            self._cause = TerminationCause.NO_COMMON_VERSION
            return None
        if self._pinned is not None and self.peer_fingerprint != self._pinned:
            self.close(min(CERTIFICATE_ALERTS), "the key is not the pinned one")
            self._cause = TerminationCause.WRONG_KEY
            return None
        self._handshake_completed = True
        return HandshakeCompleted()

    def _look_for_the_end(self) -> None:
        """Whether the core has ended the connection; `close` has its own way."""
        event = self._quic._close_event
        if event is None or self._end is not None:
            return
        code, reason = int(event.error_code), str(event.reason_phrase)
        core = self._quic._core
        state = "terminated" if core is None else core.state
        if state == "closing":
            is_trust = self._quic._is_client and code in CERTIFICATE_ALERTS
            self._cause = (
                TerminationCause.UNTRUSTED_CERTIFICATE
                if is_trust
                else TerminationCause.BROKEN_RULES
            )
            self._end = (code, reason)
            return
        if state == "draining":
            refused = code in (NO_APPLICATION_PROTOCOL, HANDSHAKE_FAILURE)
            cause = TerminationCause.CLOSED_BY_PEER
            if refused and not self._handshake_completed:
                cause = TerminationCause.NO_COMMON_VERSION
        elif "protocol version" in reason:
            cause = TerminationCause.NO_COMMON_VERSION
        else:
            cause = TerminationCause.SILENCE
        self._terminate(cause, code, reason)

    def _terminate(self, cause: TerminationCause, code: int, reason: str) -> None:
        """The end, with nothing more to say to the peer."""
        if self._end is None:
            self._cause, self._end, self._closing_sent = cause, (code, reason), True


def client_engine(
    host: str, trust: Trust, options: TransportOptions, *, is_loopback: bool
) -> Qh3Engine:
    """An engine that has yet to `connect`."""
    pinned = trust.fingerprint if isinstance(trust, PinnedKey) else None
    return Qh3Engine(client_quic(host, trust, options, is_loopback=is_loopback), options, pinned)


def server_engine(
    identity: Identity,
    options: TransportOptions,
    *,
    is_loopback: bool,
    original_connection_id: bytes,
    retry_connection_id: bytes | None,
) -> Qh3Engine:
    """An engine for a client's first datagram. `original_connection_id` is what the client first
    chose for the server, `retry_connection_id` what a Retry told it to use instead."""
    quic = server_quic(
        identity,
        options,
        is_loopback=is_loopback,
        original_connection_id=original_connection_id,
        retry_connection_id=retry_connection_id,
    )
    return Qh3Engine(quic, options)
