"""The list of this machine's devices, from a child process."""

from __future__ import annotations

import asyncio

import pytest

from gpuwire.errors import ServerStartError
from gpuwire.host import probe as probe_module
from gpuwire.host.probe import probe


def test_every_device_is_listed_once_and_described(runtime_directory) -> None:
    devices = asyncio.run(probe())
    assert [device.index for device in devices] == list(range(len(devices)))
    assert len({(device.name, device.backend) for device in devices}) == len(devices)
    best = devices[0]
    assert best.kind in ("discrete", "integrated", "virtual", "cpu", "unknown")
    assert "float32" in best.dtypes
    assert best.max_buffer_bytes >= best.max_binding_bytes > 0


def test_a_child_that_dies_is_an_error_with_its_last_words(monkeypatch) -> None:
    monkeypatch.setattr(probe_module.sys, "executable", "/bin/false")
    with pytest.raises(ServerStartError, match="exit code 1"):
        asyncio.run(probe())
