"""Frame numbers and acknowledgements of one session, in both directions.

Frames are counted from 1 without gaps. A frame sent is kept until the peer says it took it in, so
that it can be sent again over a new link; what comes a second time is noticed and dropped. One
`FrameNumbering` belongs to the session, not to its link.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gpuwire.errors import SessionError, UnexpectedMessage
from gpuwire.wire.limits import WireLimits

_DUE_PART = 8
"""An acknowledgement is due at this part of the sender's window: early enough that it never stops
while one is on its way, rare enough to cost little where no frame goes back."""


@dataclass(frozen=True, slots=True)
class KeptFrame:
    """A frame that the peer has not acknowledged."""

    sequence: int
    count: int
    body: memoryview
    traceparent: str = ""


class FrameNumbering:
    """The counters of one end. To send: `check_room`, `tell`, `keep`. For what arrives, in the
    order of arrival: `take_acknowledgement`, `take_in`."""

    def __init__(self, limits: WireLimits) -> None:
        self._limits = limits
        self.sent = 0
        """The highest number sent."""
        self.acknowledged_by_peer = 0
        self.received = 0
        """The highest number taken in."""
        self._told_peer = 0
        self._received_bytes_untold = 0
        self._kept: deque[KeptFrame] = deque()
        self.kept_bytes = 0
        """Bytes of the bodies kept."""

    # --- Sending

    @property
    def has_room(self) -> bool:
        """Whether one more frame may be kept."""
        return not self._kept or (
            len(self._kept) < self._limits.max_unacknowledged_frames
            and self.kept_bytes < self._limits.max_unacknowledged_bytes
        )

    @property
    def kept(self) -> tuple[KeptFrame, ...]:
        """The frames that the peer has not acknowledged, oldest first."""
        return tuple(self._kept)

    def check_room(self) -> None:
        """`SessionError` if no more frames may be kept."""
        if not self.has_room:
            raise SessionError(
                f"{len(self._kept)} frames of {self.kept_bytes} bytes wait for the peer's "
                f"acknowledgement; the next must wait until it comes"
            )

    def keep(self, count: int, body: memoryview, traceparent: str = "") -> None:
        """Number the next frame `sent + 1` and keep it."""
        self.sent += 1
        self._kept.append(KeptFrame(self.sent, count, body, traceparent))
        self.kept_bytes += len(body)

    def take_acknowledgement(self, acknowledged: int) -> None:
        """The peer has everything up to this number. It never takes that back, and cannot have
        what was not sent: `UnexpectedMessage`."""
        if not self.acknowledged_by_peer <= acknowledged <= self.sent:
            raise UnexpectedMessage(
                f"the peer acknowledges frame {acknowledged}; it acknowledged "
                f"{self.acknowledged_by_peer} before, and {self.sent} were sent",
                kind="acknowledgement",
                state=f"{self.acknowledged_by_peer} to {self.sent}",
            )
        self.acknowledged_by_peer = acknowledged
        while self._kept and self._kept[0].sequence <= acknowledged:
            self.kept_bytes -= len(self._kept.popleft().body)

    # --- Receiving

    def take_in(self, sequence: int, nbytes: int) -> bool:
        """Whether the frame is new; False for one that came before. `UnexpectedMessage` where
        frames before it are missing."""
        if sequence > self.received + 1:
            raise UnexpectedMessage(
                f"frame {sequence} came after frame {self.received}",
                kind=f"frame {sequence}",
                state=f"frame {self.received} was the last",
            )
        if sequence <= self.received:
            return False
        self.received = sequence
        self._received_bytes_untold += nbytes
        return True

    @property
    def acknowledgement_due(self) -> bool:
        """Whether the peer should be told now, lest its window fill."""
        frames = self.received - self._told_peer
        return (
            frames >= max(self._limits.max_unacknowledged_frames // _DUE_PART, 1)
            or self._received_bytes_untold >= self._limits.max_unacknowledged_bytes // _DUE_PART > 0
        )

    @property
    def acknowledgement_owed(self) -> bool:
        """Whether the peer does not yet know all that was taken in."""
        return self.received > self._told_peer

    def tell(self) -> int:
        """The acknowledgement to send now; counts as told."""
        self._told_peer = self.received
        self._received_bytes_untold = 0
        return self.received
