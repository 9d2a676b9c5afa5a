"""The device of arrays: the default one, closed ones, and what a device has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.array.devices import DefaultDevice
from gpuwire.errors import DeviceClosed

Send = Callable[..., gw.Array]
Check = Callable[..., None]


def test_an_array_of_a_closed_device_says_so(server_ticket: str) -> None:
    with gw.connect(server_ticket) as device:
        x = gw.ones(3, device=device)
    for use in (lambda: x + 1, lambda: np.asarray(x), lambda: float(x[0]), lambda: gw.sum(x)):
        with pytest.raises(DeviceClosed):
            use()
    assert x.shape == (3,)


def test_the_default_device_is_the_first_open_one(server_ticket: str) -> None:
    opened: list[gw.Device] = []

    def connect() -> gw.Device:
        opened.append(gw.connect(server_ticket))
        return opened[-1]

    default = DefaultDevice(connect)
    with gw.connect(server_ticket) as first, gw.connect(server_ticket) as second:
        default.note(first)
        default.note(second)
        assert default.find() is first
        first.close()
        assert default.find() is second
    assert default.find() is opened[0]
    assert default.find() is opened[0]
    opened[0].close()
    assert default.find() is opened[1]
    opened[1].close()


def test_creation_functions_use_the_default_device(device: gw.Device, check: Check) -> None:
    default = gw.default_device()
    for x in (gw.zeros(2), gw.asarray([1.0]), gw.arange(3), gw.eye(2), gw.linspace(0, 1, 3)):
        assert x.device is default


def test_the_namespace_describes_itself(device: gw.Device) -> None:
    info = gw.__array_namespace_info__()
    assert info.default_device() is gw.default_device()
    assert info.devices() == [gw.default_device()]
    assert info.default_dtypes(device=device) == {
        "real floating": gw.float32,
        "complex floating": gw.complex64,
        "integral": device.default_int,
        "indexing": device.default_int,
    }
    dtypes = info.dtypes(device=device)
    assert dtypes["float32"] is gw.float32
    assert "float16" not in dtypes
    assert set(info.dtypes(device=device, kind="bool")) == {"bool"}
    assert set(info.dtypes(device=device, kind=("signed integer",))) <= {
        "int8", "int16", "int32", "int64",
    }  # fmt: skip
    assert info.capabilities()["max dimensions"] == 32


def test_astype(send: Send, check: Check) -> None:
    x = send([1.7, -1.7, 0.0])
    check(gw.astype(x, gw.int32), np.array([1, -1, 0], np.int32))
    check(gw.astype(x, "bool"), [True, True, False])
    check(gw.astype(x, np.float16), np.array([1.7, -1.7, 0], np.float16))
    assert gw.astype(x, gw.float32, copy=False) is x
    assert gw.astype(x, gw.float32) is not x
