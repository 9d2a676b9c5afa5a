"""What planning asks of a device."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.compute.adapters import AdapterProperties
from gpuwire.ir.dtypes import ALL_DTYPES, DType
from gpuwire.kernels.shader_types import shader_type

BINDING_ALIGNMENT = 256
"""Bytes. What plans align bindings within a buffer to: the largest that WebGPU lets an adapter
ask for."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Limits and data types of one device."""

    dtypes: tuple[DType, ...]
    max_binding_bytes: int
    max_buffers: int
    """Storage buffers of one launch."""
    max_workgroup_invocations: int
    max_workgroup_memory: int
    is_software: bool
    """A CPU that plays a device: a few wide cores, and barriers that cost."""
    max_tensor_bytes: int = 1 << 40
    """What one buffer holds."""
    max_immediate_bytes: int = 128
    """Of a launch's parameters; more go through a buffer."""


def device_facts(properties: AdapterProperties) -> DeviceFacts:
    """The facts of an adapter."""
    dtypes = tuple(
        dtype for dtype in ALL_DTYPES if shader_type(dtype).features <= properties.features
    )
    return DeviceFacts(
        dtypes=dtypes,
        max_binding_bytes=properties.max_binding_bytes & ~(BINDING_ALIGNMENT - 1),
        max_buffers=properties.max_buffers,
        max_workgroup_invocations=properties.max_workgroup_invocations,
        max_workgroup_memory=properties.max_workgroup_memory,
        is_software=properties.kind == "cpu",
        max_tensor_bytes=properties.max_buffer_bytes,
        max_immediate_bytes=properties.max_immediate_bytes,
    )
