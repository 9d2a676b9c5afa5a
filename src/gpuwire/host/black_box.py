"""What a device host was doing, kept where its death cannot take it: in memory shared with the
front.

Before native code is entered for a session, the host notes the session and the kernel. A host that
must end because of one session's work leaves a verdict. The front reads both once the process has
ended. A note costs 0.5 µs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwire.errors import GpuwireError
from gpuwire.host.envelopes import pack_error, unpack_error

_NOTE = struct.Struct("<QH")
"""The session, 0 for none; the bytes of the kernel's name behind it."""
_NAME_BYTES = 256
_VERDICT = struct.Struct("<II")
"""How many sessions, how many bytes of the error; then the sessions' numbers, then the error."""
_VERDICT_PLACE = 512


@dataclass(frozen=True, slots=True)
class LastWords:
    """What a dead host has left."""

    session: int | None
    """Whose work was being handed to the device."""
    kernel: str
    """The kernel of the user's that was, if it was one."""
    condemned: tuple[int, ...]
    """The sessions for whose work the host ended itself …"""
    verdict: GpuwireError | None
    """… and what they are to be told."""


class BlackBox:
    """The record, seen from either side."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory

    def note(self, session: int, kernel: bytes = b"") -> None:
        """Native code is about to be entered for a session."""
        _NOTE.pack_into(self._memory, 0, session, len(kernel))
        if kernel:
            place = _NOTE.size
            self._memory[place : place + len(kernel)] = kernel

    def clear(self) -> None:
        """It has returned."""
        _NOTE.pack_into(self._memory, 0, 0, 0)

    def condemn(self, sessions: Sequence[int], error: GpuwireError) -> None:
        """This process ends because of those sessions. From any thread."""
        packed = struct.pack(f"<{len(sessions)}Q", *sessions) + pack_error(error)
        room = len(self._memory) - _VERDICT_PLACE - _VERDICT.size
        if len(packed) > room:
            return
        start = _VERDICT_PLACE + _VERDICT.size
        self._memory[start : start + len(packed)] = packed
        length = len(packed) - 8 * len(sessions)
        _VERDICT.pack_into(self._memory, _VERDICT_PLACE, len(sessions), length)

    def last_words(self) -> LastWords:
        """What is left, once the process has ended."""
        session, length = _NOTE.unpack_from(self._memory, 0)
        name = bytes(self._memory[_NOTE.size : _NOTE.size + length])
        count, size = _VERDICT.unpack_from(self._memory, _VERDICT_PLACE)
        start = _VERDICT_PLACE + _VERDICT.size
        condemned = struct.unpack_from(f"<{count}Q", self._memory, start)
        start += 8 * count
        verdict = unpack_error(bytes(self._memory[start : start + size])) if size else None
        return LastWords(
            session or None, name.decode("utf-8", "replace"), tuple(condemned), verdict
        )


def kernel_note(name: str) -> bytes:
    """A kernel's name as `BlackBox.note` takes it: cut to the room there is."""
    return name.encode("utf-8", "replace")[:_NAME_BYTES]
