"""One call of a kernel, checked, on its way to the device or into a captured graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpuwire.client.tensor import Tensor
from gpuwire.errors import GpuwireError
from gpuwire.ids import KernelId
from gpuwire.wire.device_tasks import Grid


class DeviceArray(Protocol):
    """An array: a name for a tensor, which may be given another tensor."""

    _tensor: Tensor


@dataclass(frozen=True, slots=True)
class Launch:
    """One call of a kernel."""

    kernel: KernelId
    name: str
    grid: Grid
    arrays: tuple[DeviceArray, ...]
    written: tuple[bool, ...]
    """For each array, whether the kernel writes it."""
    params: bytes
    keep: object
    """What must live as long as the launch may be replayed: the kernel."""

    @property
    def pairs(self) -> tuple[tuple[DeviceArray, bool], ...]:
        """Each array with whether it is written."""
        return tuple(zip(self.arrays, self.written, strict=True))


class LaunchRecorder(Protocol):
    """Where the launches of a thread go: to the device, or into a captured graph."""

    def launch(self, launch: Launch) -> None:
        """Takes a launch whose arguments have been checked."""

    def refused(self, error: GpuwireError) -> None:
        """A call could not become a launch."""
