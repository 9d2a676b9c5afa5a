"""The channel between the front and one device host: messages over a local socket.

A hop is one `send` and one `recv`. From process to process on a 2-core machine, half of a round
trip: 30 µs for a small message, 63 µs with 16 KiB behind it; most is the kernel's waking.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from gpuwire.host.channel_messages import LENGTH, ChannelMessage, decode, encode

JOIN_BYTES = 64 * 1024
"""Up to this, copying the payload behind its head is cheaper than a second `send`."""


class Channel(asyncio.Protocol):
    """One end. `handle` gets each message in order, `lost` is called once at the end.

    Sending never waits: what is under way is bounded by the credits that the two sides give each
    other for task bytes, reply bytes and slots, not by the socket.
    """

    def __init__(self, handle: Callable[[ChannelMessage], None], lost: Callable[[], None]) -> None:
        self._handle = handle
        self._lost = lost
        self._partial = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    @classmethod
    async def over(
        cls,
        connected: socket.socket,
        handle: Callable[[ChannelMessage], None],
        lost: Callable[[], None],
    ) -> Channel:
        """The channel over one end of a socket pair, which it owns from now on."""
        channel = cls(handle, lost)
        await channel.open(connected)
        return channel

    async def open(self, connected: socket.socket) -> None:
        """Begins, over one end of a socket pair, which it owns from now on. The first message may
        be handled before this returns."""
        connected.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, sock=connected)

    def send(self, message: ChannelMessage) -> None:
        """Sends it after everything sent before; does nothing once the channel is lost."""
        if self._transport is None:
            return
        head, payload = encode(message)
        if len(payload) <= JOIN_BYTES:
            self._transport.write(b"".join((head, payload)) if payload else head)
        else:
            self._transport.write(head)
            self._transport.write(payload)

    def close(self) -> None:
        """Ends the channel once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        if self._partial:
            self._partial += data
            if len(self._partial) < LENGTH.size + self._announced(self._partial):
                return
            whole, self._partial = self._partial, bytearray()
            view = memoryview(whole)
        else:
            view = memoryview(data)
        while len(view) >= LENGTH.size:
            end = LENGTH.size + self._announced(view)
            if len(view) < end:
                break
            self._handle(decode(view[:end]))
            view = view[end:]
        self._partial += view

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost()

    def _announced(self, data: bytearray | memoryview) -> int:
        """The length of the message that begins `data`, 0 where that is not known yet."""
        return cast("int", LENGTH.unpack_from(data)[0]) if len(data) >= LENGTH.size else 0
