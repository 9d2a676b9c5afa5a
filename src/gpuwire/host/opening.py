"""Opening the device of a host, and describing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwire.compute.adapters import AdapterProperties, adapters
from gpuwire.compute.server import WgpuServer
from gpuwire.config import Config
from gpuwire.errors import NoAdapter, NoSuchDevice
from gpuwire.host.device import Device
from gpuwire.lowering import Lowering
from gpuwire.wire.messages import DeviceInfo


@dataclass(frozen=True, slots=True)
class OpenedDevice:
    """A device ready for sessions."""

    device: Device
    info: DeviceInfo
    adapters: int
    """How many this machine has."""


def open_device(
    adapter: int, config: Config, lost: Callable[[BaseException], None]
) -> OpenedDevice:
    """Opens the machine's adapter of that place, best first. Raises `NoAdapter`, `NoSuchDevice`."""
    found = adapters()
    if not found:
        raise NoAdapter(
            "this machine has no graphics adapter that wgpu can use; install its Vulkan driver, or "
            "a software one (Debian: mesa-vulkan-drivers)"
        )
    if not 0 <= adapter < len(found):
        raise NoSuchDevice(
            f"there is no device {adapter}: this machine has {len(found)}, numbered from 0",
            index=adapter,
            count=len(found),
        )
    server = WgpuServer.init(adapter, memory=config.memory, streaming=config.streaming)
    lowering = Lowering(server)
    device = Device(server, lowering, lost)
    return OpenedDevice(device, describe(found[adapter], lowering), len(found))


def describe(adapter: AdapterProperties, lowering: Lowering) -> DeviceInfo:
    """The adapter as clients see it."""
    return DeviceInfo(
        index=adapter.index,
        name=adapter.name,
        backend=adapter.backend,
        kind=adapter.kind,
        driver=adapter.driver,
        dtypes=tuple(dtype.name for dtype in lowering.dtypes),
        features=tuple(sorted(adapter.features)),
        max_buffer_bytes=adapter.max_buffer_bytes,
        max_binding_bytes=adapter.max_binding_bytes,
        max_workgroup_invocations=adapter.max_workgroup_invocations,
        max_workgroup_memory=adapter.max_workgroup_memory,
    )
