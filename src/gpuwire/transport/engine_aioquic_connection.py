"""aioquic's connection with pinned keys, known causes of its end, and datagrams that grow.

On top of `SchedulingQuic`. Checked against aioquic 1.7.2, whose private attributes are used here
and in the other `engine_aioquic_*` modules, and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aioquic import tls
from aioquic._buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import END_STATES, QuicReceiveContext
from aioquic.quic.packet import QuicFrameType, QuicPacketType
from aioquic.quic.packet_builder import QuicDeliveryState, QuicPacketBuilder
from aioquic.quic.recovery import QuicPacketSpace
from aioquic.quic.stream import QuicStream
from cryptography.exceptions import UnsupportedAlgorithm

from gpuwire.transport.datagram_size import DatagramSizeSearch
from gpuwire.transport.engine import Datagram, TerminationCause
from gpuwire.transport.engine_aioquic_sending import SchedulingQuic
from gpuwire.transport.fingerprints import fingerprint_of
from gpuwire.transport.options import TransportOptions

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


class Quic(SchedulingQuic):
    """One connection; `AioquicEngine` is its face."""

    def __init__(
        self,
        configuration: QuicConfiguration,
        options: TransportOptions,
        *,
        pinned: str | None = None,
        largest_datagram_bytes: int = 0,
        **connection_ids: Any,
    ) -> None:
        super().__init__(configuration, options, **connection_ids)
        # A warning about every broken peer on the server's stderr helps nobody: the cause is in
        # `Terminated`. A logger outside the registry that is switched off costs least.
        self._logger = logging.Logger("aioquic", logging.CRITICAL + 1)  # type: ignore[assignment]
        self._pinned = pinned
        self._reset_token: Callable[[bytes], bytes] | None = None
        self.peer_fingerprint: str | None = None
        self.cause: TerminationCause | None = None
        self.size_search = DatagramSizeSearch(most=largest_datagram_bytes)

    def use_reset_tokens(self, token: Callable[[bytes], bytes]) -> None:
        """A server's connection, before it has said a word: its ids come with these tokens."""
        self._reset_token = token
        self._host_cids[0].stateless_reset_token = token(self._host_cids[0].cid)

    @property
    def peer_reset_token(self) -> bytes | None:
        """What the peer would show if it did not know the connection any more."""
        return self._peer_cid.stateless_reset_token or None

    def _replenish_connection_ids(self) -> None:
        super()._replenish_connection_ids()
        if self._reset_token is not None:
            for issued in self._host_cids:
                if not issued.was_sent:
                    issued.stateless_reset_token = self._reset_token(issued.cid)

    @property
    def is_over(self) -> bool:
        """Ended, and whatever had to be said to the peer is said."""
        return self._close_event is not None and not self._close_pending

    def receive_batch(self, datagrams: Sequence[Datagram], now: float) -> None:
        super().receive_batch(datagrams, now)
        loss = self._loss
        if loss.large_acknowledged:
            loss.large_acknowledged = False
            self.size_search.large_acknowledged()
        if loss.large_lost:
            if self.size_search.large_lost(loss.large_lost, loss._rtt_smoothed, now):
                self._take_size()
            loss.large_lost.clear()

    def datagram_refused(self, size: int, now: float) -> None:
        """The system refused a datagram for its size."""
        self.size_search.refused(size, now)
        self._take_size()

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        datagrams = super().datagrams_to_send(now)
        if self._handshake_confirmed and self._state not in END_STATES:
            size = self.size_search.next_probe(now)
            if size is not None:
                datagrams += self._size_probe(size, now)
        return datagrams

    # --- The handshake, and the end -----------------------------------------------------------

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        if not self._is_client:
            return
        take_certificate = self.tls._set_peer_certificate

        def check_key(message: Any) -> None:
            take_certificate(message)
            certificate: Certificate | None = self.tls._peer_certificate
            assert certificate is not None
            try:
                self.peer_fingerprint = fingerprint_of(certificate.public_key())
            except (ValueError, UnsupportedAlgorithm):
                self.peer_fingerprint = "a key of an unknown kind"
            if self._pinned is not None and self.peer_fingerprint != self._pinned:
                # Before the client's Finished: the server learns nothing but that it is not wanted.
                self.cause = TerminationCause.WRONG_KEY
                raise tls.AlertBadCertificate("the key is not the pinned one")

        self.tls._set_peer_certificate = check_key  # type: ignore[assignment, method-assign]

    def _write_crypto_frame(
        self, builder: QuicPacketBuilder, space: QuicPacketSpace, stream: QuicStream
    ) -> bool:
        wrote = super()._write_crypto_frame(builder, space, stream)
        is_first_flight = not self._cryptos[tls.Epoch.HANDSHAKE].send.is_valid()
        if wrote and self._is_client and is_first_flight and not len(stream.sender._pending):
            # aioquic pads the first datagram behind its packet. That is allowed, but qh3's server
            # does not count it towards what it may send before the address is proven, and the
            # handshake takes two timeouts more.
            frame = builder.start_frame(QuicFrameType.PADDING)
            frame.push_bytes(bytes(max(0, builder.remaining_flight_space)))
        return wrote

    def _handle_connection_close_frame(
        self, context: QuicReceiveContext, frame_type: int, buf: Buffer
    ) -> None:
        if self._close_event is None:
            self.cause = TerminationCause.CLOSED_BY_PEER
        super()._handle_connection_close_frame(context, frame_type, buf)

    def _receive_version_negotiation_packet(self, header: Any, now: float) -> None:
        super()._receive_version_negotiation_packet(header, now)
        if self._close_event is not None and self.cause is None:
            self.cause = TerminationCause.NO_COMMON_VERSION

    def _abandon_path_validation(self) -> None:
        super()._abandon_path_validation()
        if self._close_event is not None and self.cause is None:
            self.cause = TerminationCause.SILENCE

    def handle_timer(self, now: float) -> None:
        if self._close_event is None and self._close_at is not None and now >= self._close_at:
            self.cause = TerminationCause.SILENCE
        super().handle_timer(now)
        if self.size_search.timed_out(self._loss._pto_count, now):
            self._take_size()

    # --- Datagram size ------------------------------------------------------------------------

    def _take_size(self) -> None:
        size = self.size_search.size
        if size != self._max_datagram_size:
            self._max_datagram_size = size
            self.congestion.set_datagram_bytes(size)

    def _size_probe(self, size: int, now: float) -> list[Datagram]:
        """One padded PING of the size that is hoped for (RFC 9000 section 14.4)."""
        self.size_search.probe_sent(size)
        builder = QuicPacketBuilder(
            host_cid=self.host_cid,
            is_client=self._is_client,
            max_datagram_size=size,
            packet_number=self._packet_number,
            peer_cid=self._peer_cid.cid,
            spin_bit=self._spin_bit,
            version=self._version or 0,
        )
        builder.start_packet(QuicPacketType.ONE_RTT, self._cryptos[tls.Epoch.ONE_RTT])
        frame = builder.start_frame(
            QuicFrameType.PING, handler=self._on_size_probe_delivery, handler_args=(size, now)
        )
        frame.push_bytes(bytes(builder.remaining_buffer_space))
        return self._flush_builder(
            builder=builder,
            network_path=self._network_paths[0],
            peer_cid=self._peer_cid.cid,
            now=now,
        )

    def _on_size_probe_delivery(
        self, delivery: QuicDeliveryState, size: int, sent_at: float
    ) -> None:
        if delivery is QuicDeliveryState.ACKED:
            self.size_search.probe_acknowledged(size, sent_at)
        else:
            self.size_search.probe_lost(size, sent_at)
        self._take_size()
