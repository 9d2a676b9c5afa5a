"""What can be tried: one candidate is one setting of everything that a search may change."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, replace
from itertools import product

from gpuwire.config import QuicEngine, RemoteConfig

KIB = 1024

Value = int | str | None
"""Of a setting; None is a key left out."""

FLUSH_THRESHOLDS = (1, 4, 16, 64, 256)
"""Tasks. Below 4 nothing is batched; above 256 a batch is longer than any burst of ours."""

DATAGRAM_BYTES = (1_452, 8_952)
"""What Ethernet carries of IPv6 and UDP, plain and in jumbo frames."""

FLUSH_BYTES_THRESHOLDS = (64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB)


@dataclass(frozen=True, slots=True)
class Candidate:
    """The keys of `[remote]` that a search may change, by their names there."""

    flush_threshold: int
    flush_bytes_threshold: int
    segmentation_offload: bool
    quic_engine: QuicEngine
    datagram_bytes: int | None

    @classmethod
    def of(cls, remote: RemoteConfig) -> Candidate:
        """What a configuration says now."""
        return cls(
            remote.flush_threshold,
            remote.flush_bytes_threshold,
            remote.segmentation_offload,
            remote.quic_engine,
            remote.datagram_bytes,
        )

    def applied_to(self, remote: RemoteConfig) -> RemoteConfig:
        """The configuration of a session that is measured: nothing else of it changes, but that it
        shows no progress of its own."""
        return remote.model_copy(update={**self.settings(), "progress": "off"})

    def settings(self) -> dict[str, Value]:
        """Keys of `[remote]` and their values."""
        return {
            "flush_threshold": self.flush_threshold,
            "flush_bytes_threshold": self.flush_bytes_threshold,
            "segmentation_offload": self.segmentation_offload,
            "quic_engine": self.quic_engine,
            "datagram_bytes": self.datagram_bytes,
        }

    def changes_from(self, other: Candidate) -> dict[str, Value]:
        """The settings that differ from `other`'s."""
        theirs = other.settings()
        return {key: value for key, value in self.settings().items() if value != theirs[key]}

    def with_link_of(self, other: Candidate) -> Candidate:
        """These thresholds over the other's way of sending."""
        return replace(
            self,
            segmentation_offload=other.segmentation_offload,
            quic_engine=other.quic_engine,
            datagram_bytes=other.datagram_bytes,
        )


DEFAULT = Candidate.of(RemoteConfig())
"""What gpuwire does when told nothing; every measurement is compared with it."""


@dataclass(frozen=True, slots=True)
class Space:
    """What a search tries."""

    flush_thresholds: tuple[int, ...] = FLUSH_THRESHOLDS
    flush_bytes_thresholds: tuple[int, ...] = FLUSH_BYTES_THRESHOLDS
    links: tuple[Candidate, ...] = ()
    """Ways of sending, at the default thresholds."""

    def thresholds(self, base: Candidate) -> tuple[Candidate, ...]:
        """Every pair of thresholds, sent as `base` sends."""
        pairs = product(self.flush_thresholds, self.flush_bytes_thresholds)
        return tuple(
            replace(base, flush_threshold=tasks, flush_bytes_threshold=size)
            for tasks, size in pairs
        )


def links_here() -> tuple[Candidate, ...]:
    """The ways of sending that this machine has: engines with and without offload, and smaller
    datagrams than would be found by probing, sent as the default sends."""
    engines: list[QuicEngine] = ["aioquic"]
    if importlib.util.find_spec("qh3") is not None:
        engines.append("qh3")
    offloads = (False, True) if sys.platform == "linux" else (False,)
    ways = product(engines, offloads)
    sent = [
        replace(DEFAULT, quic_engine=engine, segmentation_offload=offload)
        for engine, offload in ways
    ]
    return (*sent, *(replace(DEFAULT, datagram_bytes=size) for size in DATAGRAM_BYTES))
