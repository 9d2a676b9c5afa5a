"""A connection: streams over one QUIC engine."""

from __future__ import annotations

from gpuwire.errors import GpuwireError
from gpuwire.transport.path import PathInfo
from gpuwire.transport.streams import ReceiveStream, SendStream, Stream


class Connection:
    """A QUIC connection with one control stream and any number of bulk streams.

    Used from the event loop's thread only. Control bytes go out before bulk bytes, and bulk
    streams take turns packet by packet.
    """

    async def open_control(self) -> Stream:
        """Client: opens the one control stream. Call it once."""
        raise NotImplementedError

    async def accept_control(self) -> Stream:
        """Server: waits for the client's control stream. Raises `close_cause` if none comes."""
        raise NotImplementedError

    def open_bulk(self) -> SendStream:
        """Opens a unidirectional stream to the peer, on both sides. Never waits: where the peer
        allows no further stream yet, the bytes wait in the stream until it does."""
        raise NotImplementedError

    async def accept_bulk(self) -> ReceiveStream:
        """The next unidirectional stream that the peer opened, in the order of opening."""
        raise NotImplementedError

    @property
    def path(self) -> PathInfo:
        """What is known of the way to the peer now."""
        raise NotImplementedError

    def close(self, error_code: int = 0, reason: str = "") -> None:
        """Tells the peer and ends the connection at once; bytes not yet acknowledged may be lost
        (`SendStream.wait_acknowledged` comes before). Does nothing if it is closed already."""
        raise NotImplementedError

    async def wait_closed(self) -> None:
        """Returns when the connection has ended, whoever ended it."""
        raise NotImplementedError

    @property
    def close_cause(self) -> GpuwireError | None:
        """Why it ended; None while it is open. `ConnectionClosed` by either side with its code and
        reason, `LinkLost` after silence, `ProtocolError` when the peer broke QUIC's rules."""
        raise NotImplementedError
