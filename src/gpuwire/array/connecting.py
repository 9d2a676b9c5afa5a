"""`gpuwire.connect`, and the device that creation functions use when none is named."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from gpuwire import client
from gpuwire.array.devices import ArrayDevice, DefaultDevice
from gpuwire.client.device import Device
from gpuwire.config import Config


def connect(
    ticket: str | None = None,
    *,
    device: int = 0,
    config: Config | None = None,
    authority: Path | None = None,
) -> Device:
    """Opens a session on one device of a server; see `gpuwire.client.device.connect`.

    The first device that a process connects to is also its default device, for as long as it is
    open: the one that `zeros(3)` and other creation functions use when they name none.
    """
    opened = client.device.connect(ticket, device=device, config=config, authority=authority)
    _default.note(opened)
    return opened


def default_device() -> ArrayDevice:
    """The first device this process connected to that is still open; without one, `connect()`."""
    return _default.find()


def place_of(device: ArrayDevice | None) -> ArrayDevice:
    """Where a function puts what it makes, told `device`: there, or on the default device."""
    return _default.place(device)


def traced_device() -> ArrayDevice | None:
    """The device of the function that this thread traces, if it does."""
    return _default.traced


def tracing(device: ArrayDevice) -> AbstractContextManager[None]:
    """While a function is traced on this thread: what it makes is recorded on `device`."""
    return _default.tracing(device)


# The one state of the process that gpuwire keeps: the standard's creation functions can be called
# without a device, and then have nothing else to ask.
_default = DefaultDevice(client.device.connect)
