"""The compute server: kernels, buffers and streams on one wgpu device. Knows no arrays."""

from gpuwire.compute.adapters import AdapterProperties, adapters
from gpuwire.compute.completion import Completion
from gpuwire.compute.handles import Binding, CopyDescriptor, Handle
from gpuwire.compute.launches import Indirect, LaunchArguments, LaunchMode, WorkgroupCount
from gpuwire.compute.server import WgpuServer

__all__ = [
    "AdapterProperties",
    "Binding",
    "Completion",
    "CopyDescriptor",
    "Handle",
    "Indirect",
    "LaunchArguments",
    "LaunchMode",
    "WgpuServer",
    "WorkgroupCount",
    "adapters",
]
