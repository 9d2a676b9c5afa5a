"""`gpuwire.connect`, and the device that creation functions use when none is named."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from gpuwire import client
from gpuwire.array.devices import ArrayDevice, DefaultDevice
from gpuwire.client.device import Device
from gpuwire.config import Config
from gpuwire.errors import ArgumentError


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


def profile(path: str | Path, *, device: ArrayDevice | None = None) -> AbstractContextManager[None]:
    """`with gw.profile("run.json"):` writes what the block does as a timeline for Perfetto
    (ui.perfetto.dev) or Chrome (chrome://tracing): recording, encoding, frames on the link and
    waiting for the device host, the host's handing work to the device, launches that were timed.

    Everything is on this machine's clock; how far the server's is off is estimated by round trips
    (RFC 5905 section 8). The block ends with a sync. `device` is one that `connect` gave, by
    default the default device; asyncio's have no profile. The server times few launches and tells
    at most some 1,000 operations a second: the file says how many it left out. Raises as `connect`
    does, and `OSError` where the file cannot be written, both before the block begins.
    """
    found = device if device is not None else default_device()
    if not isinstance(found, Device):
        raise ArgumentError("a profile wants a device that gpuwire.connect gave")
    return found.timeline(path)


# The one state of the process that gpuwire keeps: the standard's creation functions can be called
# without a device, and then have nothing else to ask.
_default = DefaultDevice(client.device.connect)
