"""Arrays for other libraries: NumPy, DLPack, another device. All of it is by copy in host memory,
because the elements are on another machine."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuwire.array.conversion import from_host
from gpuwire.array.devices import ArrayDevice, meeting_device
from gpuwire.array.recording import brought
from gpuwire.client.aio import AsyncDevice
from gpuwire.errors import ArgumentError, NotSupported

if TYPE_CHECKING:
    from gpuwire.array.array_object import Array

API_VERSION = "2024.12"
"""The version of the Array API standard that the namespace follows."""

DLPACK_CPU = (1, 0)
"""kDLCPU, device 0 (DLPack, `DLDeviceType`)."""


def to_numpy(x: Array) -> Any:
    """See `Array.to_numpy`."""
    return x._device.read(x._tensor)


def read(x: Array) -> np.ndarray[Any, Any]:
    """The elements, now. `NotSupported` on an asyncio device, whose reads are awaited, unless they
    were asked for ahead and are here."""
    if isinstance(x._device, AsyncDevice):
        arrived = x._device.arrived(x._tensor)  # type: ignore[arg-type]
        if arrived is not None:
            return arrived
        raise NotSupported(
            "the values of an array on an asyncio device come by `await x.to_numpy()`; "
            "converting it in passing would stop the event loop"
        )
    array: np.ndarray[Any, Any] = x._device.read(x._tensor)
    return array


def as_numpy(x: Array, dtype: Any, copy: bool | None) -> np.ndarray[Any, Any]:
    """See `Array.__array__`."""
    if copy is False:
        raise ArgumentError("copy=False: the elements are on a device and can only be copied here")
    array = read(x)
    return array if dtype is None else array.astype(dtype, copy=False)


def namespace(api_version: str | None) -> ModuleType:
    """See `Array.__array_namespace__`."""
    if api_version is not None and api_version not in _API_VERSIONS:
        raise ArgumentError(
            f"there is no version {api_version!r} of the Array API here; "
            f"there are {', '.join(_API_VERSIONS)}"
        )
    # Arrays are made by the namespace's functions, so it has been imported.
    return sys.modules["gpuwire"]


_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def has_function(name: str) -> bool:
    """Whether the namespace has a function of that name."""
    found = getattr(sys.modules["gpuwire"], name, None)
    return callable(found) and not isinstance(found, type)


def dlpack(
    x: Array,
    stream: object,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """See `Array.__dlpack__`."""
    if stream is not None:
        raise ArgumentError("stream must be None: the copy is in host memory")
    if dl_device is not None and tuple(dl_device) != DLPACK_CPU:
        raise BufferError(f"only a copy in host memory can be given, not DLPack device {dl_device}")
    if copy is False:
        raise BufferError("copy=False: the elements are on a device and can only be copied here")
    return read(x).__dlpack__(max_version=max_version)


def to_device(x: Array, device: ArrayDevice, stream: object) -> Array:
    """See `Array.to_device`."""
    if stream is not None:
        raise ArgumentError("stream must be None: gpuwire orders work by the program's order")
    met = meeting_device(device, x._device)
    if met is not None:
        return brought(x, met)
    return x.__class__(from_host(read(x), x.dtype, device), device)
