"""Drives one QUIC engine: time, datagrams in and out, events.

The time is `time.monotonic`, not the loop's: uvloop's stands still within a turn and counts whole
milliseconds, from which no round trip of a near path can be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import ceil
from time import monotonic

from gpuwire.transport.datagrams import HAS_OFFLOAD
from gpuwire.transport.engine import Datagram, Event, QuicEngine, Terminated
from gpuwire.transport.offload import Offload
from gpuwire.transport.options import TransportOptions

SOON_SECONDS = 0.0005
"""A timer due so soon is looked at in each turn of the loop: one of the loop's own takes a whole
millisecond. qh3's core paces every datagram, also the one that answers an echo: 1.3 ms became
0.5."""


class EngineDriver:
    """Calls an engine in the order that it wants and hands its events on.

    `send(datagrams, offload)` puts datagrams on the wire, together where `offload` allows it;
    `handle(event)` takes each event, in order.
    """

    def __init__(
        self,
        engine: QuicEngine,
        send: Callable[[Sequence[Datagram], Offload], None],
        handle: Callable[[Event], None],
        options: TransportOptions,
    ) -> None:
        self._engine = engine
        self._send = send
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._transmission: asyncio.Handle | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_fires = 0.0
        self._is_stopped = False
        self.offload = Offload(
            wanted=options.segmentation_offload, available=HAS_OFFLOAD, tell=options.tell
        )
        self._watches_offload = self.offload.is_active
        self.bytes_sent = 0
        self.bytes_received = 0

    def receive(self, datagrams: Sequence[Datagram]) -> None:
        """Takes in a batch, then sends what it calls for."""
        if self._is_stopped:
            return
        for data, _ in datagrams:
            self.bytes_received += len(data)
        now = monotonic()
        self._engine.receive(datagrams, now)
        if self._watches_offload:
            self._watch_offload(now)
        self._dispatch()
        self.transmit()

    def transmit_soon(self) -> None:
        """Sends in the next turn of the loop, together with what else is written in this one."""
        if self._transmission is None and not self._is_stopped:
            self._transmission = self._loop.call_soon(self.transmit)

    def transmit(self) -> None:
        """Sends one burst now, and sees to it that the rest and the next timer follow."""
        if self._transmission is not None:
            self._transmission.cancel()
            self._transmission = None
        if self._is_stopped:
            return
        datagrams = self._engine.datagrams_to_send(monotonic())
        if datagrams:
            for data, _ in datagrams:
                self.bytes_sent += len(data)
            self._send(datagrams, self.offload)
        self._dispatch()
        if self._engine.has_more_to_send:
            self.transmit_soon()
        self._arm()

    def stop(self) -> None:
        """Ends all activity."""
        self._is_stopped = True
        if self._transmission is not None:
            self._transmission.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._transmission = self._timer = None

    def datagram_refused(self, size: int) -> None:
        """The system refused a datagram for its size."""
        self._engine.datagram_refused(size, monotonic())

    def _watch_offload(self, now: float) -> None:
        engine = self._engine
        self.offload.observe(
            sent=engine.packets_sent,
            lost=engine.packets_lost,
            now=now,
            round_trip=engine.round_trip.smoothed or 0.0,
            timeouts=engine.timeouts_in_a_row,
        )

    def _dispatch(self) -> None:
        for event in self._engine.events():
            self._handle(event)
            if isinstance(event, Terminated):
                self.stop()

    def _arm(self) -> None:
        """Only a timer that is due earlier replaces the one that is set: the deadline moves with
        every packet, mostly outwards, and a cancelled timer stays in the loop's heap."""
        if self._is_stopped:
            return
        due = self._engine.timer()
        if due is None:
            return
        if self._timer is not None:
            if self._timer_fires <= due:
                return
            self._timer.cancel()
        now = monotonic()
        if due - now < SOON_SECONDS:
            self._timer = self._loop.call_soon(self._on_timer)
            self._timer_fires = now
        else:
            # Rounded up as the loops' own waits are: less would wake up before the time.
            seconds = ceil((due - now) * 1e3) / 1e3
            self._timer = self._loop.call_later(seconds, self._on_timer)
            self._timer_fires = now + seconds

    def _on_timer(self) -> None:
        self._timer = None
        due = self._engine.timer()
        now = monotonic()
        if due is not None and due <= now + 1e-6:
            self._engine.handle_timer(max(now, due))
            if self._watches_offload:
                self._watch_offload(now)
            self._dispatch()
            self.transmit()
        else:
            self._arm()
