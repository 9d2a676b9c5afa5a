"""What limits a phase, from who was busy during it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

BUSY = 0.8
"""Of one core, or of the GPU's time: who is as busy as that has little left to give. Packets and
tasks go through one thread at a time of each process, since it holds the interpreter."""

WAITING = 0.25
"""Of the time, for a core that others held: more than a busy neighbour takes now and then."""


class Limit(StrEnum):
    """What to make faster."""

    LINK = "link"
    CLIENT_CPU = "client CPU"
    SERVER_CPU = "server CPU"
    GPU = "GPU"
    SHARED_CPU = "CPU of the one machine that client and server share"
    OTHER_PROGRAMS = "other programs on this machine"
    LINK_OR_SERVER = "link or server"


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy everyone was, in cores; None where nobody told."""

    client: float
    front: float | None
    """The server's network process."""
    host: float | None
    """The server's process that owns the device."""
    waited: float | None
    """How much the client could have run and had to wait for a core, in cores."""
    gpu: float | None
    """Share of the time in which kernels ran; an estimate from samples."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where it was measured."""

    is_one_machine: bool
    cores: int
    """Of this machine."""
    is_software: bool
    """Whether the adapter computes on the server's processor."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What limits, and why that is said."""

    limit: Limit
    reason: str


def find_limit(busy: Busy, place: Place) -> Finding:
    """Whoever was busiest, if that was busy enough; the link where nobody was.

    The link is found by exclusion: no end of it can see how much more it would take.
    """
    busiest = max(_candidates(busy, place), key=lambda each: each[0])
    if busiest[0] >= BUSY:
        return busiest[1]
    used = busy.client
    if place.is_one_machine:
        used += (busy.front or 0.0) + (busy.host or 0.0)
    if place.is_one_machine and used >= BUSY * place.cores:
        return Finding(
            Limit.SHARED_CPU, f"{used:.1f} of {place.cores} cores busy with both sides of it"
        )
    if busy.waited is not None and busy.waited >= WAITING:
        # A server on the same machine waits as well, and is not seen to.
        wanted = BUSY / 2 if place.is_one_machine else BUSY
        if busy.client + busy.waited >= wanted:
            return Finding(
                Limit.OTHER_PROGRAMS,
                f"{busy.client:.2f} cores used here, and {busy.waited:.2f} waited for",
            )
    if busy.front is None:
        return Finding(
            Limit.LINK_OR_SERVER,
            f"the client's processor is free ({busy.client:.2f} cores), and the server does not "
            "tell how busy it is",
        )
    return Finding(Limit.LINK, f"nobody was busy (at most {busiest[0]:.2f}), so it was waited for")


def _candidates(busy: Busy, place: Place) -> Iterator[tuple[float, Finding]]:
    yield busy.client, Finding(Limit.CLIENT_CPU, f"{busy.client:.2f} cores busy here")
    if busy.front is not None:
        reason = f"{busy.front:.2f} cores busy in the server's network process"
        yield busy.front, Finding(Limit.SERVER_CPU, reason)
    if busy.host is not None:
        reason = f"{busy.host:.2f} cores busy in the device's process"
        if place.is_software:
            reason += ", which computes too: the adapter is a software one"
        yield busy.host, Finding(Limit.SERVER_CPU, reason)
    if busy.gpu is not None and not place.is_software:
        yield busy.gpu, Finding(Limit.GPU, f"kernels ran {busy.gpu:.0%} of the time")
