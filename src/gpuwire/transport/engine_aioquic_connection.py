"""aioquic's connection with pinned keys, known causes of its end, and datagrams that grow.

On top of `SchedulingQuic`. Checked against aioquic 1.7.2, whose private attributes are used here
and in the other `engine_aioquic_*` modules, and nowhere else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from aioquic import tls
from aioquic._buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import END_STATES, QuicReceiveContext
from aioquic.quic.packet import QuicFrameType, QuicPacketType
from aioquic.quic.packet_builder import QuicDeliveryState, QuicPacketBuilder
from cryptography.exceptions import UnsupportedAlgorithm

from gpuwire.transport.congestion import CoarsePacer, MeasuringReno
from gpuwire.transport.engine import Datagram, TerminationCause
from gpuwire.transport.engine_aioquic_sending import SchedulingQuic
from gpuwire.transport.fingerprints import fingerprint_of
from gpuwire.transport.options import SMALLEST_DATAGRAM_BYTES, TransportOptions

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

SIZE_PROBES = 3
"""A size that was lost so often does not pass (RFC 8899 section 5.1.2, MAX_PROBES)."""

BLACK_HOLE_TIMEOUTS = 3
"""Probe timeouts in a row after which large datagrams are blamed."""


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
        self._loss._logger = None
        self.congestion = MeasuringReno(max_datagram_size=self._max_datagram_size)
        self._loss._cc = self.congestion
        self._loss._pacer = CoarsePacer(max_datagram_size=self._max_datagram_size)
        self._pinned = pinned
        self.peer_fingerprint: str | None = None
        self.cause: TerminationCause | None = None
        self._size_target = largest_datagram_bytes
        self._size_probes_left = SIZE_PROBES
        self._size_probe_under_way = False

    @property
    def is_over(self) -> bool:
        """Ended, and whatever had to be said to the peer is said."""
        return self._close_event is not None and not self._close_pending

    def set_datagram_bytes(self, size: int) -> None:
        """Sends full datagrams of `size` bytes from now on."""
        self._max_datagram_size = size
        self.congestion.set_datagram_bytes(size)
        pacer = self._loss._pacer
        assert isinstance(pacer, CoarsePacer)
        pacer.set_datagram_bytes(size)

    def limit_datagrams(self) -> None:
        """Goes back to the smallest full datagram, for good."""
        self._size_target = 0
        self.set_datagram_bytes(SMALLEST_DATAGRAM_BYTES)

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        self.has_more_to_send = False
        datagrams = super().datagrams_to_send(now)
        if (
            self._size_target > self._max_datagram_size
            and self._handshake_confirmed
            and self._size_probes_left
            and not self._size_probe_under_way
            and self._state not in END_STATES
        ):
            datagrams += self._size_probe(now)
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
        if (
            self._loss._pto_count >= BLACK_HOLE_TIMEOUTS
            and self._max_datagram_size > SMALLEST_DATAGRAM_BYTES
        ):
            self.limit_datagrams()

    # --- Datagram size ------------------------------------------------------------------------

    def _size_probe(self, now: float) -> list[Datagram]:
        """One padded PING of the size that is hoped for (RFC 9000 section 14.4)."""
        builder = QuicPacketBuilder(
            host_cid=self.host_cid,
            is_client=self._is_client,
            max_datagram_size=self._size_target,
            packet_number=self._packet_number,
            peer_cid=self._peer_cid.cid,
            spin_bit=self._spin_bit,
            version=self._version or 0,
        )
        builder.start_packet(QuicPacketType.ONE_RTT, self._cryptos[tls.Epoch.ONE_RTT])
        frame = builder.start_frame(
            QuicFrameType.PING,
            handler=self._on_size_probe_delivery,
            handler_args=(self._size_target,),
        )
        frame.push_bytes(bytes(builder.remaining_buffer_space))
        self._size_probe_under_way = True
        return self._flush_builder(
            builder=builder,
            network_path=self._network_paths[0],
            peer_cid=self._peer_cid.cid,
            now=now,
        )

    def _on_size_probe_delivery(self, delivery: QuicDeliveryState, size: int) -> None:
        self._size_probe_under_way = False
        if delivery is not QuicDeliveryState.ACKED:
            self._size_probes_left -= 1
        elif size == self._size_target:
            self.set_datagram_bytes(size)
