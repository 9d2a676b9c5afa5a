"""`python -m gpuwire.host.listing`: the child of `probe`; it writes the devices to stdout."""

from __future__ import annotations

import sys

from gpuwire.compute.adapters import adapters
from gpuwire.compute.server import WgpuServer
from gpuwire.errors import GpuwireError, NoAdapter
from gpuwire.host.envelopes import pack_devices, pack_error
from gpuwire.host.opening import describe
from gpuwire.host.probe import FAILED, LISTED
from gpuwire.lowering import Lowering
from gpuwire.wire.messages import DeviceInfo


def main() -> None:
    try:
        output = LISTED + pack_devices(_devices())
    except GpuwireError as error:
        output = FAILED + pack_error(error)
    sys.stdout.buffer.write(output)


def _devices() -> tuple[DeviceInfo, ...]:
    found = adapters()
    if not found:
        raise NoAdapter(
            "this machine has no graphics adapter that wgpu can use; install its Vulkan driver, or "
            "a software one (Debian: mesa-vulkan-drivers)"
        )
    return tuple(describe(adapter, Lowering(WgpuServer.init(adapter.index))) for adapter in found)


if __name__ == "__main__":
    main()
