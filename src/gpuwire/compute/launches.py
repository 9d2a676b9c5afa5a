"""What a launch is told: how many workgroups, which buffers, which parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gpuwire.compute.handles import Binding
from gpuwire.kernels.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Indirect:
    """Three 32-bit counts that an earlier launch wrote."""

    binding: Binding


WorkgroupCount = int | tuple[int, int, int] | Indirect
"""A linear number (folded over three dimensions where it is above 65,535), an explicit grid, or
counts read on the device."""


@dataclass(frozen=True, slots=True)
class LaunchArguments:
    """Buffers in binding order, and the 32-bit parameter words, little-endian."""

    buffers: Sequence[Binding]
    params: bytes = b""


class LaunchMode(Enum):
    """normal runs; skip only compiles; queue leaves the compilation to `compile_queued`."""

    NORMAL = "normal"
    SKIP = "skip"
    QUEUE = "queue"


class LaunchObserver(Protocol):
    """Is told of every launch, while it is being told."""

    def before(self, kernel: Kernel, stream: int) -> None:
        """The launch is about to begin."""

    def after(self, kernel: Kernel, stream: int) -> None:
        """It is queued, or has failed."""
