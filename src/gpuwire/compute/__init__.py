"""The compute server: kernels, buffers and streams on one wgpu device. Knows no arrays."""

from gpuwire.compute.adapters import AdapterProperties, adapters
from gpuwire.compute.completion import Completion
from gpuwire.compute.exchange import CommunicationOptions
from gpuwire.compute.handles import Binding, CopyDescriptor, Handle
from gpuwire.compute.launches import Indirect, LaunchArguments, LaunchMode, WorkgroupCount
from gpuwire.compute.memory.manager import AllocationMode
from gpuwire.compute.memory.report import MemoryReport, PoolKind, PoolReport
from gpuwire.compute.properties import CompilationOptions
from gpuwire.compute.reductions import Reduction
from gpuwire.compute.server import WgpuServer
from gpuwire.compute.uploads import Staging

__all__ = [
    "AdapterProperties",
    "AllocationMode",
    "Binding",
    "CommunicationOptions",
    "CompilationOptions",
    "Completion",
    "CopyDescriptor",
    "Handle",
    "Indirect",
    "LaunchArguments",
    "LaunchMode",
    "MemoryReport",
    "PoolKind",
    "PoolReport",
    "Reduction",
    "Staging",
    "WgpuServer",
    "WorkgroupCount",
    "adapters",
]
