"""What planning asks of a device."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.compute.adapters import AdapterProperties
from gpuwire.ir.dtypes import ALL_DTYPES, DType
from gpuwire.kernels.matmul_spec import Tile
from gpuwire.kernels.shader_types import shader_type

BINDING_ALIGNMENT = 256
"""Bytes. What plans align bindings within a buffer to: the largest that WebGPU lets an adapter
ask for."""


@dataclass(frozen=True, slots=True)
class ReductionShape:
    """How reductions in the group form are divided."""

    workers: int = 1 << 19
    """Invocations that fill the device: below that, outputs are split into parts."""
    workgroup_size: int = 256
    unroll: int = 4
    """Elements, or quads, that an invocation has on the way at once."""
    interleaved: bool = False
    """Whether the parts of an output take turns along its elements."""


LARGE = Tile(128, 128, 16, 8, 8, unroll=16)
"""Of products of large matrices. `lowering.plan_matmul` has the others, and what they reach. Half
the depth and no step written out reaches 31 TFLOP/s on an H200 in place of 38; 16 rows a lane reach
39, with twice the registers, which other devices may lack."""


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
    reductions: ReductionShape = ReductionShape()
    large_tile: Tile = LARGE


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
