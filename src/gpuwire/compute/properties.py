"""What a compute server is made of and says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpuwire.compute.adapters import AdapterProperties
from gpuwire.telemetry.logs import Logger


@dataclass(frozen=True, slots=True)
class MemoryProperties:
    """What the server may do with the device's memory. Sizes in bytes."""

    alignment: int
    """Of every slice: a multiple of what bindings need."""
    max_buffer: int
    limit: int | None
    """Over all buffers; None where only the driver knows."""


@dataclass(frozen=True, slots=True)
class CompilationOptions:
    """How kernels are compiled."""

    checked: bool = True
    """Keep indices within their buffer and loops finite. Off only for kernels that are trusted."""


class Backend(Enum):
    """What wgpu drives the device through."""

    VULKAN = "Vulkan"
    METAL = "Metal"
    D3D12 = "D3D12"
    OPENGL = "OpenGL"


class TimingMethod(Enum):
    """Where durations come from."""

    DEVICE = "device"
    SYSTEM = "system"


class Stage(Enum):
    """A stage of the way from an array operation to the device."""

    LOWERING = "lowering"
    COMPUTE = "compute"


class LayoutPolicy(Enum):
    """How tensors lie in memory."""

    CONTIGUOUS = "contiguous"


@dataclass(frozen=True, slots=True)
class ServerUtilities:
    """What the server shares with those who use it."""

    properties: AdapterProperties
    memory: MemoryProperties
    logger: Logger
    layout_policy: LayoutPolicy = LayoutPolicy.CONTIGUOUS
