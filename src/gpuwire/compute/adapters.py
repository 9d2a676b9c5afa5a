"""The adapters of this machine, as the compute server sees them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdapterProperties:
    """One adapter. Sizes in bytes."""

    index: int
    """Its place in `adapters()`; what `WgpuServer.init` takes."""
    name: str
    backend: str
    """Vulkan, Metal, D3D12 or OpenGL."""
    kind: str
    """discrete, integrated, virtual, cpu or unknown."""
    driver: str
    features: frozenset[str]
    """wgpu's names, such as `shader-f16`, `shader-f64`, `shader-int64`, `subgroup`."""
    max_buffer_bytes: int
    max_binding_bytes: int
    """The largest range that one binding of a launch may have."""
    storage_alignment: int
    """What a binding's offset must be a multiple of."""
    max_immediate_bytes: int
    max_buffers: int
    """Storage buffers of one launch."""
    max_workgroup_invocations: int
    max_workgroup_size: tuple[int, int, int]
    max_workgroup_memory: int
    max_workgroups: int
    """Along one dimension of a dispatch."""
    subgroup_sizes: tuple[int, int]


def adapters() -> tuple[AdapterProperties, ...]:
    """Every usable adapter, best first: discrete before integrated before software."""
    raise NotImplementedError
