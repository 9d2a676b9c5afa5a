"""Whether UDP segmentation offload is used on one path: asked for, refused, or found out.

With offload the kernel takes up to 64 datagrams in one call and cuts them itself, or lets the card
do it: 0.2 µs a datagram of 1,452 bytes in place of 3 to 10 µs on loopback. Some kernels and cards
refuse such calls and some take them and damage what they send; either way the path goes on without.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

OffloadState = Literal["off", "on", "on trial", "unavailable", "refused", "lossy"]

PHASE_PACKETS = 512
"""Packets after which a phase's loss is judged."""

EARLY_PACKETS = 32
EARLY_LOSS = 0.25
"""… or after so few, when so many of them are lost."""

SUSPICIOUS_LOSS = 0.02
"""Below this nothing is suspected; above it, the same path is tried without offload."""

CLEARLY_WORSE = 2.0
"""How many times the loss without offload the loss with it must be."""

SETTLING_ROUND_TRIPS = 4
"""Losses are noticed late: after a change, so many round trips count for neither side."""

REST_PHASES = 64
"""Phases between two trials on a path that loses either way."""


@dataclass(frozen=True, slots=True)
class OffloadInfo:
    """Offload on one path, as `PathInfo` shows it."""

    state: OffloadState
    """off: not asked for. on trial: compared with sending without. unavailable: this system has
    none. refused: the kernel took no such datagrams. lossy: they were lost far more often."""
    reason: str
    """Why it is not used, in words; empty while it is."""


class Offload:
    """The state of one path. The socket asks `is_active` and reports refusals; the connection
    reports what was sent and lost."""

    def __init__(self, *, wanted: bool, available: bool, tell: Callable[[str], None]) -> None:
        """`tell` gets one line for each change that an operator wants to know of."""
        self._tell = tell
        self._state: OffloadState = "off"
        self._reason = "not asked for (remote.segmentation_offload)"
        if wanted and available:
            self._state, self._reason = "on", ""
        elif wanted:
            self._state, self._reason = "unavailable", "this system has no UDP segmentation offload"
            tell(f"UDP segmentation offload is not used: {self._reason}")
        self._phase_sent = 0
        self._phase_lost = 0
        self._settled_at: float | None = None
        self._suspect_loss: float | None = None
        self._rests = 0

    @property
    def is_active(self) -> bool:
        """Whether the next datagrams may go out together."""
        return self._state == "on"

    @property
    def info(self) -> OffloadInfo:
        """State and reason."""
        return OffloadInfo(self._state, self._reason)

    def refuse(self, error: OSError) -> None:
        """The kernel took no segmented datagrams; none are tried on this path again."""
        if self._state in ("on", "on trial"):
            code = error.errno or 0
            self._end("refused", f"the kernel refused it ({os.strerror(code)})")

    def observe(
        self, *, sent: int, lost: int, now: float, round_trip: float, timeouts: int = 0
    ) -> None:
        """Packets sent and declared lost since the connection's start, and probe timeouts in a
        row; called as often as one likes."""
        if self._state not in ("on", "on trial"):
            return
        if self._settled_at is None or now < self._settled_at:
            if self._settled_at is None:
                self._settled_at = now
            self._phase_sent, self._phase_lost = sent, lost
            return
        count, failed = sent - self._phase_sent, lost - self._phase_lost
        early = count >= EARLY_PACKETS and failed >= EARLY_LOSS * count
        silent = self._state == "on" and timeouts >= 2
        if count < PHASE_PACKETS and not early and not silent:
            return
        loss = 1.0 if silent else failed / count
        if self._state == "on":
            self._judge_phase_with(loss, now, round_trip)
        else:
            self._judge_phase_without(loss, now, round_trip)
        self._phase_sent, self._phase_lost = sent, lost

    def _judge_phase_with(self, loss: float, now: float, round_trip: float) -> None:
        if self._rests:
            self._rests -= 1
        elif loss >= SUSPICIOUS_LOSS:
            self._suspect_loss = loss
            self._state, self._reason = "on trial", f"{loss:.0%} lost with it: trying without"
            self._settled_at = now + SETTLING_ROUND_TRIPS * round_trip

    def _judge_phase_without(self, loss: float, now: float, round_trip: float) -> None:
        before = self._suspect_loss or 0.0
        if before > CLEARLY_WORSE * loss:
            self._end("lossy", f"{before:.0%} of packets were lost with it, {loss:.1%} without")
            return
        self._state, self._reason = "on", ""
        self._rests = REST_PHASES
        self._settled_at = now + SETTLING_ROUND_TRIPS * round_trip

    def _end(self, state: OffloadState, reason: str) -> None:
        self._state, self._reason = state, reason
        self._tell(f"UDP segmentation offload stays off on this path: {reason}")
